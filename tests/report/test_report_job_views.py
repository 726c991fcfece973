"""What pictures of runs without rounds show: ages, busy slots, who trains when, work."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from tests.report.roundless_runs import SLOTS, TRAINING, Job, job_rows, play

from fedmuster.report import figures
from fedmuster.report.costs import costs
from fedmuster.report.job_views import (
    FATES,
    age_chart,
    age_shares,
    busy_chart,
    busy_shares,
    fates,
    fill_slots,
    jobs_of,
    slot_chart,
    slot_charts,
    work_done,
)
from fedmuster.report.page_data import job_data
from fedmuster.report.runs import Comparison, load
from fedmuster.report.target import Target
from fedmuster.report.write import write_report

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun

USED, LOST, GIVEN_UP, OPEN = range(len(FATES))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("views")
    return [
        play(base, label, seed=seed, rounds=60, training=TRAINING)
        for label in ("random-rounds", "random", "oort")
        for seed in (0, 1)
    ]


@pytest.fixture(scope="module")
def comparison(folders: list[Path]) -> Comparison:
    return load(folders)


def test_ages_by_hand(write_run: "WriteRun") -> None:
    ages = [0, 0, 1, 2, 1, 0]
    rows = [
        [Job(0, 0.0, place + 1.0, age=age), Job(1, 0.0, 1.0, age=age, used=False)]
        for place, age in enumerate(ages)
    ]
    found = age_shares(load([write_run("bsfl", seconds=[1.0] * 6, jobs=job_rows(rows))]))
    assert found.names == ("0", "1", "2")
    assert found.shares["bsfl"].tolist() == pytest.approx([3 / 6, 2 / 6, 1 / 6])
    assert found.means["bsfl"] == pytest.approx(np.mean(ages))


def test_many_ages_share_bins(write_run: "WriteRun") -> None:
    rows = [[Job(0, 0.0, place + 1.0, age=place)] for place in range(300)]
    found = age_shares(load([write_run("bsfl", seconds=[1.0] * 300, jobs=job_rows(rows))]))
    assert len(found.names) <= 12
    assert found.shares["bsfl"].sum() == pytest.approx(1.0)
    assert found.shares["bsfl"][0] == pytest.approx(25 / 300)  # 0 … 24


def test_no_answer_was_ever_used(write_run: "WriteRun") -> None:
    rows = job_rows([[Job(0, 0.0, 1.0, answered=False, used=False)]])
    comparison = load([write_run("bsfl", seconds=[1.0], jobs=rows)])
    assert age_shares(comparison).names == ()
    assert age_chart(comparison).curves == []
    figures.staleness(comparison)


def test_busy_slots_against_counting(comparison: Comparison) -> None:
    """The share at many moments, averaged, is the share of a span."""
    run = comparison.runs["random"][0]
    jobs, edges = jobs_of(run), np.linspace(0.0, float(run.elapsed_seconds[-1]), 7)
    ends = np.where(jobs.open, np.inf, jobs.ended_at_seconds)
    moments = (np.arange(40_000) + 0.5) / 40_000 * edges[-1]
    begun = np.searchsorted(np.sort(jobs.asked_at_seconds), moments, side="right")
    busy = begun - np.searchsorted(np.sort(ends), moments, side="right")
    places = np.minimum((moments / edges[-1] * 6).astype(int), 5)
    expected = [busy[places == place].mean() / SLOTS for place in range(6)]
    assert busy_shares(run, edges).tolist() == pytest.approx(expected, abs=2e-3)


def test_charts_are_of_contestants_without_rounds(comparison: Comparison) -> None:
    for chart in (age_chart(comparison), busy_chart(comparison)):
        assert [curve.label for curve in chart.curves] == list(comparison.round_less)
    overall = {
        label: np.mean([costs(run).mean_concurrency / SLOTS for run in comparison.runs[label]])
        for label in comparison.round_less
    }
    for curve in busy_chart(comparison).curves:
        assert curve.mean.max() <= 1 + 1e-9
        assert np.mean(curve.mean[:-1]) == pytest.approx(overall[curve.label], abs=0.05)


def test_mean_age_over_time_by_hand(write_run: "WriteRun") -> None:
    rows = [[Job(0, 0.0, 1.0)], [Job(0, 1.0, 2.0, age=1)], *([[]] * 6), [Job(1, 0.0, 9.0, age=8)]]
    folder = write_run("bsfl", seconds=[1.0] * 9 + [1.0], jobs=job_rows([*rows, []]))
    (curve,) = age_chart(load([folder])).curves
    assert curve.x.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]  # spans of two seconds
    assert curve.mean.tolist() == [0.5, 0.5, 0.5, 0.5, 8.0, 8.0]


def test_slots_hold_one_job_at_a_time(comparison: Comparison) -> None:
    for label in comparison.round_less:
        for run in comparison.runs[label]:
            jobs = jobs_of(run)
            lanes = fill_slots(jobs)
            assert lanes.min() == 0
            assert lanes.max() == SLOTS - 1
            ends = np.where(jobs.open, np.inf, jobs.ended_at_seconds)
            for lane in range(SLOTS):
                (own,) = np.nonzero(lanes == lane)
                own = own[np.argsort(jobs.asked_at_seconds[own])]
                assert (jobs.asked_at_seconds[own][1:] >= ends[own][:-1]).all()


def test_slots_by_hand(write_run: "WriteRun") -> None:
    rows = [
        [Job(0, 0.0, 1.0)],
        [Job(1, 0.0, 2.0, age=1, used=False), Job(2, 1.0, 2.0, answered=False, used=False)],
        [Job(3, 2.0, 4.0, decision=3)],
    ]
    folder = write_run("bsfl", seconds=[1.0, 1.0, 2.0], jobs=job_rows(rows))
    (run,) = load([folder]).every_run
    chart = slot_chart(run)
    assert (chart.begin_seconds, chart.end_seconds, chart.slots, chart.all_slots) == (0, 4, 2, 2)
    told = zip(chart.client.tolist(), chart.slot.tolist(), chart.fate.tolist(), strict=True)
    assert sorted(told) == [(0, 0, USED), (1, 1, LOST), (2, 0, GIVEN_UP), (3, 0, USED)]
    assert chart.aggregated_at_seconds.tolist() == [1.0, 2.0, 4.0]


def test_a_window_in_the_middle_of_a_long_run(tmp_path: Path) -> None:
    (run,) = load([play(tmp_path, "random", rounds=200)]).every_run
    chart, end = slot_chart(run), float(run.elapsed_seconds[-1])
    assert 0 < chart.begin_seconds < end / 2 < chart.end_seconds < end
    assert 55 <= len(chart.client) <= 60 + 2 * SLOTS
    assert (chart.asked_at_seconds < chart.end_seconds).all()
    assert (chart.ended_at_seconds > chart.begin_seconds).all()


def test_few_of_many_slots_are_shown(tmp_path: Path) -> None:
    world = {"name": "bsfl-groups", "num_clients": 90, "cohort_size": 50}
    federation = {"concurrency": 50, "buffer": 10}
    folder = play(tmp_path, "random", rounds=20, world=world, federation=federation)
    (chart,) = slot_charts(load([folder])).values()
    assert (chart.slots, chart.all_slots) == (30, 50)
    assert chart.slot.max() == 29


def test_work_adds_up(comparison: Comparison) -> None:
    done = work_done(comparison)
    for label, updates, seconds in zip(comparison.labels, *done, strict=True):
        spent = [costs(run) for run in comparison.runs[label]]
        assert updates.sum() == pytest.approx(np.mean([own.started for own in spent]))
        assert updates[USED] == pytest.approx(np.mean([own.used for own in spent]))
        assert np.isnan(seconds).all() == (label in comparison.in_rounds)
        if label in comparison.round_less:
            assert seconds.sum() == pytest.approx(np.mean([own.client_seconds for own in spent]))
            lost = np.mean([own.lost_client_seconds for own in spent])
            assert seconds[LOST] + seconds[GIVEN_UP] == pytest.approx(lost)
            assert updates[OPEN] > 0


def bars_of(axes: Axes) -> list[BarContainer]:
    return [one for one in axes.containers if isinstance(one, BarContainer)]


def test_the_picture_of_slots(comparison: Comparison) -> None:
    figure = figures.slots(comparison)
    charts = slot_charts(comparison)
    *panels, busy = figure.axes
    assert len(panels) == len(charts)
    for panel, chart in zip(panels, charts.values(), strict=True):
        (bars,) = bars_of(panel)
        assert len(bars.patches) == len(chart.client)
        assert panel.get_xlim() == (chart.begin_seconds, chart.end_seconds)
        for bar, slot in zip(bars.patches, chart.slot.tolist(), strict=True):
            assert bar.get_y() + bar.get_height() / 2 == pytest.approx(slot + 1)
            assert chart.begin_seconds <= bar.get_x()
            assert bar.get_x() + bar.get_width() <= chart.end_seconds + 1e-9
        colours = {
            fate: bar.get_facecolor() for bar, fate in zip(bars.patches, chart.fate, strict=True)
        }
        assert len(set(colours.values())) == len(colours)
    assert [line.get_label() for line in busy.lines] == list(charts)


def test_the_other_pictures(comparison: Comparison) -> None:
    ages, over_time = figures.staleness(comparison).axes
    found = age_shares(comparison)
    for bars, shares in zip(bars_of(ages), found.shares.values(), strict=True):
        assert [bar.get_height() for bar in bars.patches] == pytest.approx(shares.tolist())
    assert len(over_time.lines) == len(comparison.round_less)
    updates, seconds = figures.work(comparison).axes
    done = work_done(comparison)
    for fate, bars in enumerate(bars_of(updates)):
        widths = [bar.get_width() for bar in bars.patches]
        assert widths == pytest.approx(done.updates[:, fate].tolist())
    assert bars_of(seconds)[USED].patches[0].get_width() == 0  # in rounds
    by_time, by_updates = figures.accuracy_work(
        comparison, Target(column="accuracy", value=0.5)
    ).axes
    assert by_updates.get_xlim()[1] == max(costs(run).started for run in comparison.every_run)
    assert len(by_time.lines) == len(comparison.labels) + 1  # and the target


def test_every_figure_is_written(folders: list[Path], tmp_path: Path) -> None:
    written = {path.name for path in write_report(folders, tmp_path, formats=["svg"])}
    assert {"slots.svg", "staleness.svg", "work.svg", "accuracy-work.svg"} <= written
    assert {"costs.csv", "jobs.csv"} <= written


def test_what_the_page_draws(comparison: Comparison) -> None:
    data = job_data(comparison)
    assert data["ages"]["shares"][0] is None  # in rounds
    assert data["work"]["seconds"][0] is None
    assert [chart["policy"] for chart in data["slots"]] == [1, 2]
    chart = slot_charts(comparison)["random"]
    assert data["slots"][0]["client"] == chart.client.tolist()
    assert data["slots"][0]["fate"] == chart.fate.tolist()
    assert fates(jobs_of(comparison.runs["random"][0])).max() == OPEN
