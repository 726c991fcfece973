"""What the claims on COCS's training measure, on runs written by hand."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from claims.by_hand import run_by_hand
from claims.claim import Finding
from claims.cocs import accuracy_findings as findings
from claims.cocs import accuracy_sweeps as sweeps
from claims.cocs.accuracy_findings import Accuracies, side_by_side
from claims.cocs.edge_training import CIFAR, CIFAR_FULL, LOGISTIC, STANDARDISED, TRAINING, EdgeTask
from claims.cocs.network import FIVE
from fedmuster import COCS, CUCB, LinUCB, Oracle, Random
from fedmuster.experiments.spec import Experiment
from fedmuster.report.runs import Comparison, Run
from fedmuster.solvers.assignment import FLGreedy
from fedmuster.training.networks import COCSCNN
from fedmuster.worlds import EdgeNetwork

NAN = math.nan
ROUNDS = 5


def run(label: str, seed: int, accuracy: Sequence[float], *, participants: float = 3.0) -> Run:
    """Two of four clients a round; the last of five rounds is what a run ends with."""
    columns = {"accuracy": np.array(accuracy), "participants": np.full(len(accuracy), participants)}
    return run_by_hand(label, seed, [[0, 1]] * len(accuracy), columns, clients=4, cohort_size=4)


def ending(*ends: float, label: str = "x", participants: float = 3.0) -> tuple[Run, ...]:
    """Below 70 % until the last round."""
    return tuple(
        run(label, seed, (0.1, NAN, 0.3, 0.6, end), participants=participants)
        for seed, end in enumerate(ends)
    )


def accuracies(**special: tuple[Run, ...]) -> Accuracies:
    """Three seeds of the five policies, those in ``special`` as given; the target is 70 %."""
    runs = {label: ending(0.71, 0.72, 0.73, label=label) for label in FIVE}
    comparison = Comparison(
        runs={**runs, **special},
        seeds=(0, 1, 2),
        rounds=ROUNDS,
        cohort_size=4,
        notes=(),
        experiment=Experiment(policies={"random": Random()}, world=EdgeNetwork(), rounds=ROUNDS),
    )
    return Accuracies.of(comparison, 0.7)


HIGH = ending(0.81, 0.82, 0.83)
SOON = tuple(run("x", seed, (0.1, NAN, 0.7, 0.7, 0.72)) for seed in range(3))
NEVER = ending(0.61, 0.62, 0.63)


def test_rounds_count_from_one_and_go_on_where_the_target_is_missed() -> None:
    own = accuracies(cocs=SOON, random=(*ending(0.71), *NEVER[1:]))
    assert own.rounds("cocs").tolist() == [3, 3, 3]
    assert own.rounds("random").tolist() == [5, 6, 6]
    assert own.rounds_text("cocs") == "3 ± 0"
    assert own.rounds_text("random").endswith("(1 of 3 seeds)")
    assert own.accuracy("random") == pytest.approx([71, 62, 63])


def test_without_a_wish_the_target_is_what_random_comes_to_in_every_seed() -> None:
    own = Accuracies.of(accuracies(random=ending(0.65, 0.72, 0.73)).comparison)
    assert own.target.value == pytest.approx(0.65)


@pytest.mark.parametrize(("measure", "good"), [("rounds", SOON), ("accuracy", HIGH)])
def test_ahead_means_significantly_and_of_each(
    measure: findings.Measure, good: tuple[Run, ...]
) -> None:
    def both(own: Accuracies) -> list[bool]:
        oracle, ours = findings.oracle_first(own, measure), findings.ours_ahead(own, measure, "so")
        return [oracle.holds, ours.holds]

    assert both(accuracies()) == [False, False]  # all are equal
    assert both(accuracies(oracle=good)) == [True, False]
    assert both(accuracies(cocs=good)) == [False, True]
    assert both(accuracies(cocs=good, linucb=good)) == [False, False]
    wavering = (good[0], *NEVER[1:])
    assert both(accuracies(cocs=wavering)) == [False, False]


def test_who_is_behind_is_told() -> None:
    found = findings.ours_ahead(accuracies(cocs=NEVER, cucb=HIGH), "accuracy", "so")
    assert "worse than cucb, linucb, random" in found.measured


def test_similar_must_be_shown() -> None:
    def near(*ends: float) -> Finding:
        return findings.near_oracle(accuracies(cocs=ending(*ends)))

    assert near(0.715, 0.725, 0.735).holds
    assert not near(0.735, 0.745, 0.755).holds  # above by more than two points
    assert not near(0.685, 0.695, 0.705).holds
    assert not near(0.68, 0.72, 0.76).holds  # who knows


def test_random_is_last_only_if_all_are_above() -> None:
    assert findings.random_last(accuracies(random=NEVER)).holds
    assert not findings.random_last(accuracies(random=NEVER, cucb=NEVER)).holds


def test_participants_and_accuracy_go_together_or_not() -> None:
    def policies(order: Sequence[int]) -> Accuracies:
        ends = {
            label: ending(*(0.5 + place / 20,) * 3, participants=2 + count)
            for label, place, count in zip(FIVE, range(5), order, strict=True)
        }
        return accuracies(**ends)

    assert findings.more_is_better(policies((0, 1, 2, 4, 3))).holds
    assert not findings.more_is_better(policies((4, 3, 2, 1, 0))).holds


def test_evenness_is_of_choices_and_equals_do_not_count() -> None:
    assert findings.evenly(run("x", 0, (0.1, 0.2))) == 0.5  # two of four, always the same
    assert not findings.even_is_better(accuracies()).holds


def swept(rounds: int, **values: tuple[Run, ...]) -> Accuracies:
    """Runs at each value of something; the target is 70 %."""
    comparisons = {
        label: (
            Comparison(
                runs={"cocs": runs},
                seeds=tuple(range(len(runs))),
                rounds=rounds,
                cohort_size=4,
                notes=(),
                experiment=accuracies().comparison.experiment,
            ),
            "cocs",
        )
        for label, runs in values.items()
    }
    side = side_by_side(comparisons)
    assert side.labels == tuple(values)
    return Accuracies.of(side, 0.7)


LOW = ending(0.51, 0.52, 0.53)
RISING = swept(ROUNDS, low=LOW, middle=NEVER, high=HIGH)
LEVEL = swept(ROUNDS, low=LOW, middle=NEVER, high=ending(0.615, 0.626, 0.635))


def test_improvement_and_its_end_are_told_apart() -> None:
    assert sweeps.improves(RISING, "so").holds
    assert not sweeps.stops_improving(RISING, "so").holds
    assert sweeps.stops_improving(LEVEL, "so").holds
    doubtful = swept(ROUNDS, low=LOW, middle=NEVER, high=ending(0.55, 0.62, 0.71))
    assert not sweeps.improves(doubtful, "so").holds
    assert sweeps.improves(doubtful, "so", last=2).holds
    assert not sweeps.stops_improving(doubtful, "so").holds


def test_the_budget_counts_for_more_or_not() -> None:
    little = swept(ROUNDS, low=LOW, middle=LOW, high=ending(0.52, 0.53, 0.545))
    assert sweeps.budget_dominates(RISING, little).holds
    assert not sweeps.budget_dominates(little, RISING).holds


def test_the_law_of_speed_is_found() -> None:
    """Half as many rounds for twice as many participants are an exponent of 1."""
    runs = {
        f"B = {n}": tuple(
            run("x", seed, [0.8 if t >= 16 // n else 0.1 for t in range(1, 17)], participants=n)
            for seed in range(2)
        )
        for n in (1, 2, 4, 8)
    }
    own = swept(16, **runs)
    assert sweeps.speed_exponents(own) == pytest.approx([1, 1])
    assert sweeps.speeds_up(own, "convex").holds
    assert not sweeps.speeds_up(RISING, "convex").holds  # two never reach 70 %


def test_tables_show_the_paper_beside_us() -> None:
    shown = findings.table(accuracies(), "as Table II", {"cocs": "71.84 %, 121"})
    assert [len(row) for row in shown.rows] == [len(shown.columns)] * 5
    assert shown.rows[1][3] == "71.84 %, 121"
    assert shown.rows[0][3] == "–"
    assert len(findings.table(accuracies(), "alone").columns) == len(shown.columns) - 1


@pytest.mark.parametrize("task", [LOGISTIC, STANDARDISED, CIFAR, CIFAR_FULL])
def test_settings_are_those_of_table_i(task: EdgeTask) -> None:
    convex = task.utility.utility == "linear"
    assert (task.world.num_clients, task.world.num_edges) == (50, 3)
    assert (task.world.budget, task.world.deadline) == ((3.5, 3) if convex else (40, 20))
    assert task.epochs == (2 if convex else 5)
    policies = task.policies()
    assert {label: type(policy) for label, policy in policies.items()} == {
        "oracle": Oracle,
        "cocs": COCS,
        "cucb": CUCB,
        "linucb": LinUCB,
        "random": Random,
    }
    cocs = policies["cocs"]
    assert isinstance(cocs, COCS)
    assert isinstance(cocs.solver, FLGreedy) is not convex


def test_learning_rates_are_the_papers() -> None:
    """Up to the scale of the inputs, which decides how long a step is."""
    assert STANDARDISED.learning_rate == 0.005
    assert CIFAR.learning_rate == 0.1
    assert pytest.approx(0.005 * 0.308**2) == LOGISTIC.learning_rate


def test_the_whole_is_there_for_those_who_have_a_machine() -> None:
    (heavy,) = (claim for claim in (*TRAINING, sweeps.BUDGET, sweeps.PARTICIPANTS) if claim.heavy)
    assert heavy.name == "cocs-cifar-full"
    assert (CIFAR_FULL.model, CIFAR_FULL.rounds) == (COCSCNN(), 1_880)
