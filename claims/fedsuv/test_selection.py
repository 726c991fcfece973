"""What the claim on Fig. 6 measures, on candidates and choices written by hand."""

import numpy as np
import pytest

from claims.by_hand import run_by_hand
from claims.fedsuv import selection as candidates
from claims.fedsuv.selection import Stay
from fedmuster.report.edge_rows import Scores
from fedmuster.report.runs import Run

NAN = np.nan
VALIDITY = np.array([0.1, 0.3, 0.6, 0.9])
UTILITY = np.array([0.9, 0.2, 0.8, 0.7])


def run(
    left_round: list[float], left_by: list[float], cohorts: list[list[int]], seed: int = 0
) -> Run:
    """Of four clients, all of them watched in the last round."""
    flat = np.ones((1, 4))
    return run_by_hand(
        "fedsuv",
        seed,
        cohorts,
        {},
        clients=4,
        cohort_size=2,
        validity=VALIDITY,
        utility=UTILITY,
        scores=Scores(
            rounds=np.array([100]),
            clients=np.arange(4),
            values={
                "left_round": np.array([left_round]),
                "left_by": np.array([left_by]),
                **{f"{w}_{end}": flat for w in ("validity", "utility") for end in ("low", "high")},
            },
        ),
    )


def stay(first: float, second: float, *, cohorts: list[list[int]] | None = None) -> Stay:
    """The two of low validity leave in these rounds, the others remain."""
    gone = [first, second, NAN, NAN]
    return Stay.of(run(gone, [1.0, 2.0, 0.0, 0.0], cohorts or [[2, 3]] * 100))


def test_a_client_that_leaves_in_round_31_was_a_candidate_in_30() -> None:
    found = stay(31, 21)
    assert found.rounds.tolist() == [30, 20, 100, 100]
    assert (found.low_rounds, found.other_rounds) == (25.0, 100.0)
    assert found.eliminated.tolist() == [True, False, False, False]
    assert found.remained.tolist() == [False, False, True, True]


@pytest.mark.parametrize(("leaves", "holds"), [(31, True), (10, False), (70, False)])
def test_around_30_is_neither_10_nor_70(leaves: float, holds: bool) -> None:
    stays = [stay(leaves + seed, leaves + seed) for seed in range(5)]
    assert candidates.leave_around_30(stays).holds is holds


def test_removed_means_gone_in_time() -> None:
    assert not candidates.effectively_removed([stay(5, 80)] * 3).holds
    # Half of them left for their validity, and that is not most.
    assert not candidates.effectively_removed([stay(5, 5)] * 3).holds
    both = run([5, 5, NAN, NAN], [1.0, 1.0, 0.0, 0.0], [[2, 3]] * 100)
    assert candidates.effectively_removed([Stay.of(both)] * 3).holds


def test_the_upper_right_corner_is_high_in_both() -> None:
    assert candidates.upper_right([stay(5, 5)] * 3, "remained").holds
    right = stay(5, 5, cohorts=[[2, 3]] * 100)
    assert candidates.upper_right([right] * 3, "chosen").holds
    upper_left = stay(5, 5, cohorts=[[0, 2], *[[0, 1]] * 99])
    assert not candidates.upper_right([upper_left] * 3, "chosen").holds
    # A third of the choices is in the corner, but the mean validity is 0.4.
    mixed = stay(5, 5, cohorts=[[0, 1, 3]] * 100)
    found = candidates.upper_right([mixed] * 3, "chosen")
    assert not found.holds
    assert found.measured.startswith("33.3 ± 0.0 %")


def test_worth_is_relative_to_the_best_cohort() -> None:
    """Clients 2 and 3 are worth 0.48 and 0.63, client 0 0.09."""
    best = run([NAN] * 4, [0.0] * 4, [[2, 3], [2, 3]])
    mixed = run([NAN] * 4, [0.0] * 4, [[2, 3], [0, 3]])
    expected = (2 * 0.63 + 0.48 + 0.09) / (2 * (0.63 + 0.48))
    assert candidates.worth_of([best, mixed]) == pytest.approx([1.0, expected])
    assert candidates.mean_of_chosen([best], "validity") == pytest.approx(0.75)
