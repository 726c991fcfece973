"""How all tests are run: with one thread each, and those first that mostly wait for others."""

import os

import pytest

# Workers side by side keep all cores busy: more threads would only wait for each other, and use
# three times the processor time to do so. Before numpy is imported.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

_WAITING = (
    "tests/deployment/test_flower_examples.py::test_deployment_with_a_killed_supernode",
    "claims/test_claims.py::test_quick_form[flower-time-to-accuracy]",
    "tests/deployment/",
    "tests/experiments/test_on_ray.py::test_two_nodes",
    "tests/experiments/test_training_runs.py::test_kill_9",
    "tests/experiments/test_journal.py::test_kill_9",
    "tests/faults/test_kills.py::test_a_small_campaign_of_kills",
)
"""Minutes of real processes that poll and sleep; the longest first."""


@pytest.hookimpl(optionalhook=True)  # there may be no pytest-xdist
def pytest_xdist_auto_num_workers() -> int | None:
    """One for each core, and one for the tests that wait."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long waits first: one that came last would leave every other worker idle."""
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    starts = (rank for rank, start in enumerate(_WAITING) if item.nodeid.startswith(start))
    return next(starts, len(_WAITING))
