"""How all tests are run: one thread each, waiting tests first, hypothesis in two sizes."""

import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings

# Compiled tests are kept, whatever the environment says: rewriting the asserts takes half of the
# time to collect, and every process that a test starts would compile the package again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Workers side by side keep all cores busy: more threads would only wait for each other, and use
# three times the processor time to do so. Before numpy is imported.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# `make thorough`, or `pytest --hypothesis-profile thorough`, looks longer for counterexamples.
settings.register_profile("brief", max_examples=25, deadline=None)
settings.register_profile("thorough", max_examples=2_000, deadline=None)
settings.load_profile("brief")

_WAITING = (
    "tests/deployment/test_flower_examples.py::test_deployment_with_a_killed_supernode",
    "claims/test_claims.py::test_quick_form[flower-time-to-accuracy]",
    "tests/deployment/",
    "tests/nvflare/test_jobs.py",
    "tests/experiments/test_on_ray.py::test_two_nodes",
    "tests/experiments/test_training_runs.py::test_kill_9",
    "tests/experiments/test_journal.py::test_kill_9",
    "tests/faults/test_kills.py::test_a_small_campaign_of_kills",
    "tests/flower/test_queues.py",
    "tests/digests/",
)
"""Minutes of real processes that poll and sleep, then other long ones; the longest first."""


@pytest.hookimpl(optionalhook=True)  # there may be no pytest-xdist
def pytest_xdist_auto_num_workers() -> int | None:
    """One for each core, and one for the tests that wait."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[Any], list[Any]]:
    """No search for examples, object by object, in a file whose text has none."""
    found = yield
    if file_path.suffix != ".py" or ">>>" in file_path.read_text(encoding="utf-8"):
        return found
    return [item for item in found if not isinstance(item, DoctestModule)]


@pytest.hookimpl(tryfirst=True)  # before -m looks at the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long waits first: one that came last would leave every other worker idle."""
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    starts = (rank for rank, start in enumerate(_WAITING) if item.nodeid.startswith(start))
    return next(starts, len(_WAITING))
