"""Runs with edge servers: what is read, counted and said of them, by hand."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.report.edge_runs import WORLD, edge_row, write_network, write_small

from fedmuster import Random
from fedmuster.bandits.utility import EdgeUtility
from fedmuster.core.errors import StateError
from fedmuster.experiments.run import execute, prepare
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import EdgeRow
from fedmuster.report.curves import moving_means, running_totals, window
from fedmuster.report.edge_rows import NetworkHistory
from fedmuster.report.edge_views import budget_check, spread_of_shares
from fedmuster.report.page import opening
from fedmuster.report.participation import group_shares
from fedmuster.report.runs import Comparison, Run, load
from fedmuster.report.summary import summarise
from fedmuster.report.tables import tables, to_csv
from fedmuster.report.write import edge_columns, network_columns
from fedmuster.worlds import EdgeNetwork

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun


def _only(comparison: Comparison) -> tuple[Run, NetworkHistory]:
    ((run,),) = comparison.runs.values()
    assert run.network is not None
    return run, run.network


def test_what_the_journal_says_is_counted(write_run: "WriteRun") -> None:
    run, network = _only(load([write_small(write_run)]))
    assert network.num_edges == 2
    assert network.edges.tolist() == [0, 0, 1, 1, 0]
    assert network.in_time.tolist() == [True, False, True, False, True]
    assert network.participants.tolist() == [2, 0, 1]
    np.testing.assert_array_equal(network.spent, [[3.0, 0.5], [0.0, 0.0], [0.75, 1.5]])
    np.testing.assert_array_equal(network.share, [[1.0, 0.25], [0.0, 0.0], [0.25, 0.75]])
    np.testing.assert_array_equal(run.columns["budget_share"], [0.625, 0.0, 0.5])
    np.testing.assert_array_equal(run.columns["utility"], [1.0, 0.0, 0.5])  # COCS Eq. 8
    assert network.place_km is None
    assert network.radius_km is None


def test_the_square_root_is_taken_of_each_round(write_run: "WriteRun") -> None:
    utility = EdgeUtility(utility="square-root")
    comparison = load([write_small(write_run, utility=utility)])
    run, _ = _only(comparison)
    np.testing.assert_array_equal(run.columns["utility"], [1.0, 0.0, math.sqrt(0.5)])
    words = " ".join(tables(summarise(comparison))[0].footnotes)
    assert "the square root of participants per edge server (COCS Eq. 19)" in words


def test_a_budget_of_many_small_costs_is_not_overstepped_by_rounding(write_run: "WriteRun") -> None:
    cost, other = [0.1] * 10, [0.1, 0.2, 0.3]
    assert sum(other) > math.fsum(other)  # a plain sum would be too much
    rows = [
        edge_row([0] * 10, [1] * 10, cost, budget=(1.0, 1.0)),
        edge_row([1] * 3, [1] * 3, other, budget=(1.0, math.fsum(other))),
    ]
    path = write_run(
        world=WORLD,
        seconds=[1.0, 1.0],
        cohorts=[list(range(10)), [0, 1, 2]],
        network=rows,
        clients={"group": np.zeros(10, dtype=np.int64), "typical_latency_seconds": np.ones(10)},
    )
    comparison = load([path])
    _, network = _only(comparison)
    np.testing.assert_array_equal(network.share, [[1.0, 0.0], [0.0, 1.0]])
    check = budget_check(comparison)
    assert check is not None
    assert check.startswith("No edge server ever spent more than its budget: the largest share")
    assert "was 100 % (bsfl, seed 0, round 1, edge 0)" in check


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ((2.9, 2.0), "A budget was overspent: 103.448 % of it (cocs, seed 0, round 1, edge 0)."),
        ((3.000001, 2.0), "the largest share was 99.99 % (cocs, seed 0, round 1, edge 0)."),
        ((math.inf, 2.0), "the largest share was 75 % (cocs, seed 0, round 3, edge 1)."),
        ((math.inf, math.inf), None),
    ],
)
def test_budgets_are_checked_in_words(
    budget: tuple[float, float], words: str | None, write_run: "WriteRun"
) -> None:
    comparison = load([write_small(write_run, budget=budget)])
    check = budget_check(comparison)
    assert (words is None) is (check is None)
    assert (check or "").endswith(words or "")
    summary = summarise(comparison)
    keys = {metric.key for metric in summary.metrics}
    assert ("budget_spent_percent" in keys) is (words is not None)
    assert (check in tables(summary)[0].footnotes) is (check is not None)


def test_a_budget_of_nothing_has_no_share(write_run: "WriteRun") -> None:
    row = edge_row([0], [1], [0.0], budget=(0.0, 2.0))
    path = write_run(world=WORLD, seconds=[1.0], cohorts=[[1]], network=[row])
    _, network = _only(load([path]))
    np.testing.assert_array_equal(network.share, [[np.nan, 0.0]])
    np.testing.assert_array_equal(network.mean_share, [0.0])


def test_spread_of_shares(write_run: "WriteRun") -> None:
    comparison = load([write_small(write_run, seed=seed) for seed in (0, 1)])
    use = spread_of_shares(comparison.runs["cocs"])
    np.testing.assert_allclose(use.mean, [1.25 / 3, 1.0 / 3])
    np.testing.assert_allclose(use.median, [0.25, 0.25])
    np.testing.assert_allclose(use.largest, [1.0, 0.75])
    np.testing.assert_allclose(use.low, np.percentile([[1, 0.25], [0, 0], [0.25, 0.75]] * 2, 5, 0))


def test_numbers_of_the_summary(write_run: "WriteRun") -> None:
    folders = [write_small(write_run, label) for label in ("cocs", "random")]
    summary = summarise(load(folders))
    (cocs, _) = summary.policies
    assert {key: around.mean for key, around in cocs.means.items()} == pytest.approx(
        {
            "utility": 1.5,
            "participants_a_round": 1.0,
            "in_time_percent": 60.0,
            "budget_spent_percent": 37.5,
            "largest_budget_share_percent": 100.0,
            "simulated_seconds": 6.0,
            "round_seconds": 2.0,
            "regret": 0.75,
            "completed_percent": 120.0,  # the fixture's
            "evenness": 5**2 / (4 * (2**2 + 1 + 2**2)),
        }
    )
    network, selection, *_ = tables(summary)
    assert network.title == ("At the edge servers: 3 rounds, 1 seed, 4 clients at 2 edge servers")
    assert network.columns == (
        "Policy",
        "Utility",
        "Participants a round",
        "Chosen in time (%)",
        "Budget spent (%)",
        "Largest share (%)",
    )
    assert selection.columns == ("Policy", "Simulated time (s)", "Regret", "Evenness")
    assert any("the best placement" in note for note in selection.footnotes)
    assert "utility_mean" in to_csv(summary).splitlines()[0]
    assert opening(summary).startswith(
        "Each of 2 policies placed 4 clients at 2 edge servers, for 3 rounds in the world "
        "edge-network, with 1 seed. Utility: cocs comes first with 1.5000"
    )


def test_without_a_judge_there_is_utility_but_no_regret(write_run: "WriteRun") -> None:
    comparison = load([write_small(write_run, regret=None)])
    (totals,) = running_totals(comparison, "utility")
    assert totals.mean.tolist() == [1.0, 1.0, 1.5]
    assert running_totals(comparison, "regret") == []
    summary = summarise(comparison)
    assert "regret" not in {metric.key for metric in summary.metrics}
    assert not any("best placement" in note for t in tables(summary) for note in t.footnotes)


def test_the_cohort_is_as_large_as_budgets_allow(write_run: "WriteRun") -> None:
    comparison = load([write_small(write_run)])
    assert comparison.cohort_size == 4
    assert comparison.usual_cohort_size == pytest.approx(5 / 3)
    assert group_shares(comparison).equal == pytest.approx(5 / 12)


def test_clients_are_ranked_by_price(write_run: "WriteRun") -> None:
    price = np.array([3.0, 1.0, 2.0, 0.5])
    comparison = load([write_small(write_run, clients={"price": price})])
    run, _ = _only(comparison)
    assert comparison.ranking == ("cheap", "dear", "price")
    assert run.ranking is not run.typical_latency_seconds
    assert load([write_small(write_run, "random")]).ranking == ("fast", "slow", "speed")


@pytest.mark.parametrize("rounds", [7, 40])
def test_moving_means_by_brute_force(rounds: int, write_run: "WriteRun") -> None:
    comparison = load([write_network(write_run, "cocs", seed, rounds=rounds) for seed in (0, 1)])
    width = window(comparison)
    assert width == {7: 1, 40: 5}[rounds]
    (curve,) = moving_means(comparison, "participants")
    values = comparison.column("cocs", "participants")
    for at, mean in zip(curve.x.astype(int), curve.mean, strict=True):
        around = range(max(at - width // 2, 1), min(at + width // 2, rounds) + 1)
        assert mean == pytest.approx(np.mean([values[:, t - 1] for t in around]))


def test_columns_of_clients_and_edges(write_run: "WriteRun") -> None:
    run, _ = _only(load([write_small(write_run)]))
    columns = network_columns(run)
    assert columns["times_chosen"].tolist() == [2, 1, 0, 2]
    assert columns["times_in_time"].tolist() == [1, 0, 0, 2]
    assert columns["paid"].tolist() == [2.5, 2.0, 0.0, 1.25]
    assert np.isnan(columns["start_x_km"]).all()
    assert network_columns(run, everyone=False)["client"].tolist() == [0, 1, 3]
    edges = edge_columns(run)
    assert edges["times_chosen"].tolist() == [3, 2]
    assert edges["times_in_time"].tolist() == [2, 1]
    assert edges["spent"].tolist() == [3.75, 2.0]
    assert edges["budget"].tolist() == [9.0, 6.0]
    assert edges["share_largest"].tolist() == [1.0, 0.75]
    moving, network = _only(load([write_network(write_run, "random", rounds=10)]))
    assert network.place_km is not None
    columns = network_columns(moving)
    for client in range(moving.num_clients):
        own = network.place_km[moving.chosen == client]
        mean = own.mean(axis=0) if len(own) else np.full(2, np.nan)
        found = columns["chosen_mean_x_km"][client], columns["chosen_mean_y_km"][client]
        np.testing.assert_allclose(found, mean)


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([edge_row([0], [1], [1.0])], "round 1 does not say where each of 2 clients trained"),
        ([edge_row([0, 2], [1, 1], [1.0, 1.0])], "round 1 does not say where each of 2 clients"),
        ([edge_row([0, -1], [1, 1], [1.0, 1.0])], "round 1 does not say where each of 2 clients"),
    ],
)
def test_damage_is_told(rows: list[EdgeRow], complaint: str, write_run: "WriteRun") -> None:
    path = write_run(world=WORLD, seconds=[1.0], cohorts=[[0, 1]], network=rows)
    with pytest.raises(StateError, match=complaint):
        load([path])


def test_edges_belong_to_worlds_that_have_them(write_run: "WriteRun") -> None:
    with pytest.raises(StateError):
        load([write_run("cocs", world=WORLD)])
    rows = [edge_row([0, 1], [1, 1], [1.0, 1.0])] * 3
    with pytest.raises(StateError):
        load([write_run("random", network=rows)])


def test_a_network_that_really_ran(tmp_path: Path) -> None:
    world = EdgeNetwork(num_clients=12, num_edges=2, cohort_size=12)
    spec = Experiment(policies={"random": Random()}, world=world, rounds=6)
    prepare(tmp_path / "run", spec)
    execute(tmp_path / "run")
    run, network = _only(load([tmp_path / "run"]))
    np.testing.assert_array_equal(run.columns["utility"], run.columns["reward"])
    assert len(network.edges) == len(run.chosen) > 0
    assert np.nanmax(network.share) <= 1.0
    assert (network.start_km is None, network.place_km is None) == (False, False)
    assert network.radius_km == world.radius_km
    assert network.price is not None
