"""Contestants with and without rounds in one comparison."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report.conftest import WriteRun
from tests.report.roundless_runs import BUFFERED, SLOTS, TRAINING, Job, cell, job_rows, play

from fedmuster.core.config import from_table
from fedmuster.core.errors import ConfigError
from fedmuster.experiments.run import prepare
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Federation
from fedmuster.report.curves import all_charts, evaluations
from fedmuster.report.page import to_html
from fedmuster.report.page_data import page_data
from fedmuster.report.participation import choice_densities, group_shares
from fedmuster.report.runs import Comparison, load
from fedmuster.report.score_series import planes, timelines
from fedmuster.report.summary import summarise
from fedmuster.report.tables import tables, to_csv
from fedmuster.report.write import write_report

LABELS = ("random-rounds", "random", "bsfl-rounds", "bsfl")
SEEDS = (0, 1)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("mixed")
    return [
        play(base, label, seed=seed, rounds=400, seconds=8.0, training=TRAINING)
        for label in LABELS
        for seed in SEEDS
    ]


@pytest.fixture(scope="module")
def comparison(folders: list[Path]) -> Comparison:
    return load(folders)


def test_who_has_rounds(comparison: Comparison) -> None:
    assert comparison.in_rounds == ("random-rounds", "bsfl-rounds")
    assert comparison.round_less == ("random", "bsfl")
    assert comparison.step == "aggregation"
    assert str(SLOTS) in comparison.who_is_chosen
    more = [
        len(comparison.runs[label][0].columns["seconds"]) for label in ("random-rounds", "random")
    ]
    assert more[0] < more[1]  # more aggregations in the same time


def test_regret_is_of_rounds_alone(comparison: Comparison) -> None:
    summary = summarise(comparison)
    by_label = {policy.label: policy for policy in summary.policies}
    assert np.isfinite(by_label["bsfl-rounds"].means["regret_a_round"].mean)
    for label in comparison.round_less:
        assert {"regret_a_round", "reward"} <= by_label[label].absent.keys()
    for label in comparison.in_rounds:
        assert not {"regret_a_round", "reward"} & by_label[label].absent.keys()
    shown = [table for table in tables(summary) if any("egret" in name for name in table.columns)]
    for table in shown:
        place = next(n for n, name in enumerate(table.columns) if "egret" in name)
        cells = {row[0]: row[place] for row in table.rows}
        for label in set(comparison.round_less) & cells.keys():
            assert cells[label] == by_label[label].absent["regret_a_round"]
    assert shown
    regret = next(chart for chart in all_charts(comparison, None) if chart.name == "regret-total")
    assert [curve.label for curve in regret.curves] == list(comparison.in_rounds)


def test_no_cell_is_left_empty(comparison: Comparison) -> None:
    text = to_csv(summarise(comparison))
    assert "costs_started_mean" in text
    for table in tables(summarise(comparison)):
        for row in table.rows:
            assert all("nan" not in cell.lower() and cell for cell in row)


def test_accuracy_against_client_updates(comparison: Comparison) -> None:
    for curve in evaluations(comparison, "accuracy", "updates"):
        runs = comparison.runs[curve.label]
        ends = [np.concatenate([[0], np.cumsum(run.cohort_sizes)])[-1] for run in runs]
        assert curve.x[-1] >= max(ends)  # of jobs that ended; some are open
        assert curve.x[-1] <= max(ends) + SLOTS


def test_groups_are_shares_of_all_updates(comparison: Comparison) -> None:
    groups = group_shares(comparison)
    assert groups.equal == 1 / comparison.num_clients
    for label, shares in zip(comparison.labels, groups.shares, strict=True):
        runs = comparison.runs[label]
        counts = np.concatenate([run.selection_counts() / len(run.chosen) for run in runs])
        members = np.concatenate([run.groups for run in runs])
        expected = [counts[members == group].mean() for group in np.unique(members)]
        assert shares.tolist() == pytest.approx(expected)


def test_heat_maps_have_a_column_for_aggregations(comparison: Comparison) -> None:
    maps = choice_densities(comparison)
    for label, own in zip(comparison.labels, maps, strict=True):
        assert own.rounds == min(run.rounds for run in comparison.runs[label])
        assert own.density.mean() == pytest.approx(1.0, abs=0.25)


def test_the_spec_of_the_whole_has_every_way_of_working(comparison: Comparison) -> None:
    again = Experiment.from_table(comparison.experiment.to_table())
    assert again.federation == from_table(Federation, BUFFERED)
    assert again.federations.keys() == set(comparison.in_rounds)
    for label in comparison.in_rounds:
        assert again.federations[label] == Federation(rounds=True)


def test_experiments_that_work_differently_may_be_compared(tmp_path: Path) -> None:
    one = play(tmp_path, "random", rounds=4)
    two = play(tmp_path, "bsfl", rounds=4, federation={"concurrency": SLOTS, "buffer": 3})
    three = play(tmp_path, "oort-rounds", rounds=4)
    together = load([one, two, three]).experiment
    assert together.federation is None
    assert together.federation_of("random") == from_table(Federation, BUFFERED)
    assert together.federation_of("bsfl") == Federation(concurrency=SLOTS, buffer=3)
    assert together.federation_of("oort-rounds") == Federation(concurrency=SLOTS, rounds=True)


def test_one_label_has_one_way_of_working(tmp_path: Path) -> None:
    play(tmp_path, "random", rounds=3)
    other = tmp_path / "other" / "seed-1"
    changed = replace(
        cell("random", seed=1, rounds=3), federation=Federation(concurrency=3, buffer=1)
    )
    prepare(other, changed)
    with pytest.raises(ConfigError, match=str(other)):
        load([tmp_path / "random" / "seed-0", other])


def test_runs_in_rounds_alone_are_reported_as_before(write_run: WriteRun, tmp_path: Path) -> None:
    """Nothing of what only runs without rounds have."""
    folders = [write_run(label, accuracy=[0.1, 0.2, 0.3], loss=[3, 2, 1]) for label in ("a", "b")]
    comparison = load(folders)
    summary = summarise(comparison)
    assert comparison.step == "round"
    assert not [metric.key for metric in summary.metrics if metric.key.startswith(("cost", "end_"))]
    assert "jobs" not in page_data(summary)
    written = write_report(folders, tmp_path / "out", formats=[], parquet=True)
    assert {path.name for path in written} == {
        *("report.html", "summary.md", "summary.csv"),
        *("rounds.csv", "clients.csv", "rounds.parquet", "clients.parquet"),
    }


def test_the_page_tells_of_costs(comparison: Comparison) -> None:
    page = to_html(summarise(comparison, target=0.3))
    for table in tables(summarise(comparison, target=0.3)):
        assert table.title.split(":")[0] in page
    data = page_data(summarise(comparison))
    assert {"age-seconds", "busy-seconds", "accuracy-updates"} <= {
        chart["name"] for chart in data["charts"]
    }


def test_a_target_that_is_never_reached_has_no_costs(write_run: WriteRun) -> None:
    rows = job_rows([[Job(0, 0.0, 1.0)], [Job(1, 0.0, 2.0, age=1)]])
    folders = [
        write_run("random", seconds=[1.0, 1.0], loss=[2.0, 1.0], accuracy=[0.2, 0.4]),
        write_run("slow", seconds=[1.0, 1.0], jobs=rows, loss=[3.0, 3.0], accuracy=[0.1, 0.1]),
    ]
    summary = summarise(load(folders), "random")
    slow = summary.policies[1]
    assert slow.reached("costs_to_target_used") == 0
    assert slow.means["costs_used"].mean == 2


def test_edge_servers(tmp_path: Path) -> None:
    """Utility and shares of budgets are of rounds; participants and costs are of all."""
    more: dict[str, Any] = {
        "world": {"name": "edge-network", "num_clients": 12},
        "federation": {"concurrency": 3, "buffer": 1},
    }
    # Listed first, so that the comparison's network is not that of its first run.
    without = play(tmp_path, "random", rounds=10, **more)
    in_rounds = play(tmp_path, "random-rounds", rounds=10, **{**more, "federation": {}})
    summary = summarise(load([without, in_rounds]))
    one, two = summary.policies
    assert "utility" in one.absent
    assert np.isfinite(two.means["utility"].mean)
    assert np.isnan(one.means["budget_spent_percent"].mean)
    assert np.isfinite(two.means["budget_spent_percent"].mean)
    for policy in (one, two):
        assert np.isfinite(policy.means["participants_a_round"].mean)
        assert np.isfinite(policy.means["costs_started"].mean)
    (run,) = summary.comparison.runs["random"]
    assert run.slots == 3 * 3
    written = write_report([without, in_rounds], tmp_path / "out", formats=["svg"])
    assert {"utility.svg", "budget-use.svg", "slots.svg"} <= {path.name for path in written}


def test_edge_servers_without_any_rounds(tmp_path: Path) -> None:
    world = {"name": "edge-network", "num_clients": 12}
    federation = {"concurrency": 3, "buffer": 1}
    folder = play(tmp_path, "cocs", rounds=8, world=world, federation=federation)
    written = write_report([folder], tmp_path / "out", formats=["svg"])
    assert not {"utility.svg", "budget-use.svg"} & {path.name for path in written}
    assert "overview.svg" in {path.name for path in written}


def test_candidates_that_policies_count_in_rounds_are_left_out(tmp_path: Path) -> None:
    """FedSUV says in which round a client left; aggregations are no rounds."""
    world = {"name": "validity-utility", "num_clients": 20}
    more: dict[str, Any] = {"rounds": 6, "world": world, "watch": {"every": 1}}
    without = play(tmp_path, "fedsuv", **more, federation={"concurrency": 4, "buffer": 2})
    in_rounds = play(tmp_path, "fedsuv-rounds", **more, federation={"concurrency": 4})
    comparison = load([without, in_rounds])
    assert timelines(comparison).keys() == {"fedsuv-rounds"}
    assert planes(comparison).keys() <= {"fedsuv-rounds"}
