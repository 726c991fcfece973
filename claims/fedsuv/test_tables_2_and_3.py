"""What the claims on FedSUV's Tables 2 and 3 measure, on runs written by hand."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from claims.by_hand import run_by_hand
from claims.fedsuv import tables_2_and_3 as findings
from claims.fedsuv.device_tasks import (
    AUDIO,
    CIFAR,
    CIFAR_FULL,
    FASHION,
    SERVERS,
    WRITERS,
    DeviceTask,
)
from claims.fedsuv.tables_2_and_3 import TABLES
from claims.measures import different_clients, reached_text, rounds_to
from fedmuster.report.runs import Comparison, Run
from fedmuster.report.target import Target
from fedmuster.training.aggregation import FedYogi

NAN = math.nan
LABELS = ("fedsuv", "fedavg", "safa", "oort", "refl")
TARGET = Target(column="accuracy", value=0.5)
TASKS = {"fashion": FASHION, "writers": WRITERS, "cifar": CIFAR, "audio": AUDIO}


def run(
    label: str,
    seed: int,
    accuracy: Sequence[float],
    *,
    chosen: Sequence[int] = (0, 1),
    completed: float = 1.0,
) -> Run:
    """Two clients a round, of four."""
    rounds = len(accuracy)
    return run_by_hand(
        label,
        seed,
        [chosen] * rounds,
        {
            "seconds": np.ones(rounds),
            "accuracy": accuracy,
            "num_completed": np.full(rounds, completed),
        },
        clients=4,
        num_samples=np.array([10, 20, 30, 40]),
        validity=np.array([0.2, 0.4, 0.6, 0.8]),
    )


def comparison(**special: tuple[Run, ...]) -> Comparison:
    """Three seeds of every policy, those in ``special`` as given."""
    usual = {
        label: tuple(run(label, seed, (0.1, NAN, 0.4, 0.6 + seed / 100)) for seed in range(3))
        for label in LABELS
    }
    return Comparison(
        runs={**usual, **special},
        seeds=(0, 1, 2),
        rounds=4,
        cohort_size=2,
        notes=(),
        experiment=FASHION.experiment(SERVERS["averaging"]),
    )


def fedsuv(*accuracies: Sequence[float]) -> tuple[Run, ...]:
    return tuple(run("fedsuv", seed, own) for seed, own in enumerate(accuracies))


def test_rounds_count_from_one_and_may_be_missing() -> None:
    assert rounds_to(TARGET, run("x", 0, (NAN, 0.4, 0.5, 0.3))) == 3.0
    assert math.isnan(rounds_to(TARGET, run("x", 0, (NAN, 0.4, 0.49, 0.3))))
    assert reached_text(np.array([3.0, NAN, 5.0]), "{:.0f}") == "4 (2 of 3 seeds)"
    assert reached_text(np.array([NAN, NAN]), "{:.0f}") == "never"


def test_fewest_rounds_must_be_significant_and_in_every_seed() -> None:
    soon = comparison(fedsuv=fedsuv(*[(0.6, NAN, 0.6, 0.6)] * 3))
    assert findings.fewest_rounds(soon, TARGET, "averaging").holds
    assert not findings.fewest_rounds(comparison(), TARGET, "averaging").holds
    wavering = comparison(fedsuv=fedsuv((0.6, NAN, 0.6, 0.6), *[(0.1, NAN, 0.1, 0.6)] * 2))
    assert not findings.fewest_rounds(wavering, TARGET, "averaging").holds
    missing = comparison(fedsuv=fedsuv(*[(0.6, NAN, 0.6, 0.6)] * 2, (0.1, NAN, 0.1, 0.1)))
    assert not findings.fewest_rounds(missing, TARGET, "averaging").holds
    too_high = Target(column="accuracy", value=0.99)
    assert not findings.fewest_rounds(soon, too_high, "averaging").holds


def test_rivals_that_never_arrive_are_beaten() -> None:
    late = tuple(run("safa", seed, (0.1, NAN, 0.1, 0.2)) for seed in range(3))
    soon = comparison(fedsuv=fedsuv(*[(0.6, NAN, 0.6, 0.6)] * 3), safa=late)
    assert findings.fewest_rounds(soon, TARGET, "averaging").holds


def test_the_highest_accuracy_is_that_of_the_end() -> None:
    assert not findings.highest_accuracy(comparison(), "averaging").holds  # all are equal
    high = comparison(fedsuv=fedsuv(*[(0.1, NAN, 0.1, 0.7)] * 3))
    found = findings.highest_accuracy(high, "averaging")
    assert found.holds
    assert "significantly higher than fedavg, safa, oort, refl" in found.measured
    early = comparison(fedsuv=fedsuv(*[(0.9, NAN, 0.9, 0.5)] * 3))
    assert not findings.highest_accuracy(early, "averaging").holds


def test_who_was_chosen() -> None:
    one = run("x", 0, (0.1, 0.2), chosen=(1, 3), completed=1.5)
    assert findings.answered_share(one) == 0.75
    assert findings.data_share(one) == pytest.approx(0.6)
    assert different_clients(one) == 2
    assert findings.chosen_validity(one) == pytest.approx(0.6)
    assert findings.most_chosen_share(one) == 1.0


def test_less_data_is_noticed() -> None:
    assert not findings.less_data(comparison()).holds
    chosen = ((2, 3), (1, 3), (2, 3))
    wide = tuple(run("fedavg", s, (0.1, 0.6), chosen=own) for s, own in enumerate(chosen))
    assert findings.less_data(comparison(fedavg=wide)).holds
    assert not findings.more_answers(comparison()).holds
    often = tuple(run("fedsuv", s, (0.1, 0.6), completed=1.5 + s / 50) for s in range(3))
    assert findings.more_answers(comparison(fedsuv=often)).holds


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_a_phone_computes_what_is_trained(task: DeviceTask) -> None:
    experiment = task.experiment(SERVERS["yogi"])
    assert experiment.training is not None
    local, world = experiment.training.local, task.world
    assert (local.batch_size, local.steps) == (world.batch_size, world.local_steps)
    assert local.measure_gain
    assert (world.deadline_seconds, task.cohort_size) == (100.0, 20)
    assert isinstance(experiment.training.server, FedYogi)
    assert tuple(experiment.policies) == LABELS


def test_the_whole_is_there_for_those_who_have_a_machine() -> None:
    heavy = {claim.name for claim in TABLES if claim.heavy}
    assert heavy == {"fedsuv-cifar-full"}
    assert CIFAR_FULL.num_clients == 3500
    assert {claim.name for claim in TABLES} - heavy == {f"fedsuv-{name}" for name in TASKS}


def test_pages_say_what_stands_for_what() -> None:
    for task, missing in ((FASHION, "CIFAR-100"), (WRITERS, "FEMNIST"), (AUDIO, "Google Speech")):
        assert any(missing in note and "stands for" in note for note in task.notes)
