from typing import TYPE_CHECKING

import numpy as np
import pytest

from fedmuster import Random
from fedmuster.experiments.spec import Experiment
from fedmuster.report.participation import choice_density, group_shares, resolution
from fedmuster.report.runs import Comparison, Run, load
from fedmuster.worlds import BSFLRates

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun


def test_group_shares_by_hand(write_run: "WriteRun") -> None:
    comparison = load(
        [
            write_run(seed=0, seconds=[1.0, 1.0], cohorts=[[0, 1], [0, 2]]),
            write_run(seed=1, seconds=[1.0, 1.0], cohorts=[[0, 1], [1, 3]]),
        ]
    )
    # Fast: 3 choices of 2 clients in 2 rounds, in both seeds; slow: 1 of 2 in 2.
    groups = group_shares(comparison)
    np.testing.assert_allclose(groups.shares, [[0.75, 0.25]])
    np.testing.assert_allclose(groups.latencies, [0.2, 0.9])


def test_density_by_hand(write_run: "WriteRun") -> None:
    cohorts = [[0, 1], [0, 2], [0, 3], [3]]
    (run,) = load([write_run(seconds=[1.0] * 4, cohorts=cohorts)]).runs["bsfl"]
    # 7 choices over 4 clients and 4 rounds: an equal share is 7/16 of a choice.
    whole = choice_density([run], rows=4, bins=4)
    np.testing.assert_allclose(
        whole * 7 / 16, [[1, 1, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]]
    )
    halves = choice_density([run], rows=2, bins=2)
    np.testing.assert_allclose(halves * 7 / 16 * 4, [[3, 1], [1, 2]])


def test_density_does_not_depend_on_the_size_of_cohorts(write_run: "WriteRun") -> None:
    (run,) = load([write_run(seconds=[1.0] * 3, cohorts=[[0, 1, 2, 3]] * 3)]).runs["bsfl"]
    np.testing.assert_allclose(choice_density([run], rows=4, bins=3), 1.0)


def test_density_averages_to_one_where_bins_are_uneven(write_run: "WriteRun") -> None:
    cohorts = [[0, 1], [1, 2], [0, 3], [2, 3], [0, 2]]
    (run,) = load([write_run(seconds=[1.0] * 5, cohorts=cohorts)]).runs["bsfl"]
    density = choice_density([run], rows=3, bins=2)  # 2, 1, 1 clients and 3, 2 rounds
    places = np.outer([2, 1, 1], [3, 2])
    np.testing.assert_allclose(np.average(density, weights=places), 1.0)


@pytest.mark.parametrize(
    ("num_clients", "cohort_size", "rounds", "rows_and_bins"),
    [
        (4, 2, 3, (4, 3)),  # no more than there are
        (500, 25, 10_000, (100, 200)),  # no more than can be seen
        (500, 25, 1_000, (100, 25)),  # each client has 50 turns, two to a bin
        (1_000, 10, 200, (20, 25)),  # too few choices for more, however coarse
        (1_000, 100, 200, (100, 25)),
    ],
)
def test_resolution(
    num_clients: int, cohort_size: int, rounds: int, rows_and_bins: tuple[int, int]
) -> None:
    run = Run(
        label="any",
        seed=0,
        columns={},
        cohort_sizes=np.zeros(rounds, dtype=np.int64),
        chosen=np.zeros(0, dtype=np.int64),
        groups=np.zeros(num_clients, dtype=np.int64),
        typical_latency_seconds=np.ones(num_clients),
        cohort_size=1,
        rejections=np.zeros(num_clients, dtype=np.int64),
    )
    comparison = Comparison(
        runs={"any": (run,)},
        seeds=(0,),
        rounds=rounds,
        cohort_size=cohort_size,
        notes=(),
        experiment=Experiment(policies={"any": Random()}, world=BSFLRates(), rounds=rounds),
    )
    assert resolution(comparison) == rows_and_bins


def test_density_of_runs_that_differ_in_length(write_run: "WriteRun") -> None:
    cohorts = [[0, 1], [0, 2], [0, 3], [3]]
    long, short = load(
        [
            write_run(seed=0, seconds=[1.0] * 4, cohorts=cohorts, horizon=4.0),
            write_run(seed=1, seconds=[2.0] * 2, cohorts=cohorts[:2], horizon=4.0),
        ]
    ).runs["bsfl"]
    assert (long.rounds, short.rounds) == (4, 2)
    # Of the two rounds that both have: twice the same 4 choices of 4 clients.
    np.testing.assert_allclose(
        choice_density([long, short], rows=4, bins=2) / 2, [[1, 1], [1, 0], [0, 1], [0, 0]]
    )


def test_a_run_with_fewer_rounds_than_bins_has_wider_bins(write_run: "WriteRun") -> None:
    runs = [
        write_run("bsfl", seconds=[1.0] * 5, cohorts=[[0, 1]] * 5),
        write_run("random", seconds=[1.0] * 2, cohorts=[[0, 1], [2]], planned=5, ending="over"),
    ]
    comparison = load(runs)
    rows, bins = resolution(comparison)
    assert (rows, bins) == (4, 5)  # of the longest
    density = choice_density(comparison.runs["random"], rows=rows, bins=bins)
    # 3 choices over 4 clients and 2 rounds, of which the first fills three bins.
    expected = [[1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]
    np.testing.assert_allclose(density * 3 / 8, expected)
