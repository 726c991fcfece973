"""Rounds are the case C = O = B of the one loop: the same bits as without a ``[federation]``."""

import os
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.digests.cases import Case, cases
from tests.digests.digesting import Digests, of_run
from tests.digests.environment import ENVIRONMENT
from tests.digests.playing import play
from tests.forks import FORKS

from fedmuster.core.staleness import DISCARD
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Federation

QUICK = (
    "worlds/lte-cell-quick",
    "settings/seconds",
    "training/server-fedadam",
    "late/fedavg",
    "privacy/uniform-laplace-per-coordinate",
    "edges/training-3",
)
PLAYED = {case.name: case for case in cases() if case.spec and "federation =" not in case.spec}
GROUPS = sorted({name.partition("/")[0] for name in PLAYED})


def test_quick_cases_have_the_same_bits_with_all_slots_spelled_out(tmp_path: Path) -> None:
    _compare(list(QUICK), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_every_case_has_the_same_bits_with_all_slots_spelled_out(
    group: str, tmp_path: Path
) -> None:
    _compare([name for name in PLAYED if name.startswith(f"{group}/")], tmp_path)


def _compare(names: list[str], folder: Path) -> None:
    """In a process of its own, with one thread."""
    assert names
    process = FORKS.Process(target=_compare_here, args=(names, folder))
    process.start()
    process.join()
    wrong = folder / "wrong.txt"
    assert process.exitcode == 0
    assert wrong.read_text(encoding="utf-8") == ""


def _compare_here(names: list[str], folder: Path) -> None:
    os.environ.update(ENVIRONMENT)
    wrong = []
    for number, name in enumerate(names):
        found = [
            _digests(case, folder / f"{number}-{place}")
            for place, case in enumerate((PLAYED[name], *_spelled_out(PLAYED[name])))
        ]
        for other in found[1:]:
            wrong += [f"{name} {run}" for run in other if other[run] != found[0][run]]
    (folder / "wrong.txt").write_text("\n".join(wrong), encoding="utf-8")


def _spelled_out(case: Case) -> list[Case]:
    """The case with C = O = B = m, and with a rule for late answers where policies have none."""
    experiment = Experiment.from_table(tomllib.loads(case.spec))
    world: Any = experiment.world
    size = world.start(0).problem.cohort_size if world.hierarchical else world.cohort_size
    federation = Federation(concurrency=size, refill=size, buffer=size)
    without_rule = {
        label: policy
        for label, policy in experiment.policies.items()
        if policy.stale_answers == DISCARD
    }
    variants = [replace(experiment, federation=federation)]
    if without_rule:
        variants.append(
            replace(
                experiment,
                federation=replace(federation, staleness=DISCARD),
                policies=without_rule,
                unprotected=experiment.unprotected & without_rule.keys(),
            )
        )
    return [replace(case, spec=variant.to_toml()) for variant in variants]


def _digests(case: Case, folder: Path) -> dict[str, Digests]:
    folder.mkdir()
    cells = play(case, folder)
    return {f"{cell.parent.name}/{cell.name}": of_run(cell) for cell in cells}
