"""Scores against values computed by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from claims.league.record import ContestantRecord, LeagueRecord, RunsRecord, SettingRecord
from claims.league.score import Score, Share, Standing
from claims.league.tables import clients_at_work, leaderboards, rivals
from fedmuster.report.statistics import student_t

BASE = "random, rounds"


def runs(seconds: list[float | None], end: float = 0.9, updates: float = 100.0) -> RunsRecord:
    costs = dict.fromkeys(("client_updates", "server_updates", "wasted"), (updates, updates))
    costs |= {"megabytes_down": (2.0, 2.0), "megabytes_up": (1.0, 1.0)}
    return RunsRecord(
        learning_rate=0.1,
        server={"name": "fedavg", "weights": "data"},
        seconds=tuple(seconds),
        final_accuracy=(end, end),
        costs=costs,
        curve=(),
        at_work={"mean": (8.0, 8.0), "peak": (10.0, 10.0)},
    )


def contestant(label: str, one: RunsRecord, other: RunsRecord) -> ContestantRecord:
    return ContestantRecord(
        label=label,
        in_rounds=label.endswith(", rounds"),
        policy={"name": "x"},
        federation={},
        source_sha256="0" * 64,
        fingerprint="0" * 64,
        servers=(),
        runs={"one": one, "other": other},
    )


def setting(name: str, seconds: float) -> SettingRecord:
    return SettingRecord(name=name, task="t", target=0.8, seconds=seconds, judging="j", tuning="t")


RECORD = LeagueRecord(
    command="fedmuster league",
    quick=False,
    version=1,
    settings_sha256="0" * 64,
    software={},
    rates=(0.1,),
    finalists=1,
    tuning_seeds=(900,),
    judging_seeds=(0, 1),
    settings=(setting("one", 10.0), setting("other", 100.0)),
    contestants=(
        contestant(BASE, runs([8.0, 4.0]), runs([50.0, 80.0])),
        contestant("quick, round-less", runs([2.0, 2.0], updates=50.0), runs([25.0, 40.0], 0.85)),
        contestant("lost, rounds", runs([None, 4.0]), runs([50.0, None], 0.89)),
    ),
)


def test_the_score_is_a_geometric_mean_over_settings_then_seeds() -> None:
    share = Score(RECORD).time_share("quick, round-less")
    first, second = np.sqrt(2 / 8 * 25 / 50), np.sqrt(2 / 4 * 40 / 80)
    assert share.mean == pytest.approx(np.sqrt(first * second))
    spread = np.log([first, second]).std(ddof=1) / np.sqrt(2) * student_t(1, 0.95)
    assert share.low == pytest.approx(share.mean * np.exp(-spread))
    assert share.high == pytest.approx(share.mean * np.exp(spread))


def test_never_counts_as_twice_the_horizon() -> None:
    score = Score(RECORD)
    np.testing.assert_array_equal(score.seconds("lost, rounds"), [[20.0, 4.0], [50.0, 200.0]])
    share = score.time_share("lost, rounds")
    assert share.mean == pytest.approx(((20 / 8) * (200 / 80)) ** 0.25)
    # So do the costs of a run that never gets there.
    assert score.cost("lost, rounds", "client_updates").tolist() == [[200.0, 100.0], [100.0, 200.0]]


def test_a_standing_has_costs_ends_and_rivals() -> None:
    best, base, lost = Score(RECORD).standings(Score(RECORD).labels)
    assert [one.label for one in (best, base, lost)] == [
        *("quick, round-less", BASE, "lost, rounds")
    ]
    assert best.client_updates.mean == pytest.approx(np.sqrt(0.5))  # half in one setting of two
    assert best.megabytes.mean == pytest.approx(1.0)
    assert best.accuracy.setting == "other"
    assert best.accuracy.value == pytest.approx(-5.0)
    assert (lost.missed, lost.runs) == (2, 4)
    # The base needs sqrt(8 · 4) s in the one setting, the best rival 2 s.
    assert base.rival.setting == "one"
    assert base.rival.value == pytest.approx(np.sqrt(32) / 2)
    # The best needs sqrt(25 · 40) s in the other setting, the base sqrt(50 · 80) s.
    assert best.rival.value == pytest.approx(0.5)


def with_runs(label: str, **changes: Any) -> LeagueRecord:
    """The record with other runs of a contestant in the first setting."""

    def changed(old: ContestantRecord) -> ContestantRecord:
        if old.label != label:
            return old
        return replace(old, runs={**old.runs, "one": replace(old.runs["one"], **changes)})

    return replace(RECORD, contestants=tuple(changed(old) for old in RECORD.contestants))


def standing(record: LeagueRecord, label: str) -> Standing:
    (found,) = (one for one in Score(record).standings(Score(record).labels) if one.label == label)
    return found


def test_an_unknown_end_is_not_the_worst() -> None:
    known = standing(RECORD, "lost, rounds").accuracy
    assert known.value == pytest.approx(-1.0)
    assert known.setting == "other"
    unknown = with_runs("lost, rounds", final_accuracy=(None, None))
    assert standing(unknown, "lost, rounds").accuracy == known
    half = with_runs("lost, rounds", final_accuracy=(None, 0.5))
    assert standing(half, "lost, rounds").accuracy.setting == "one"
    assert standing(half, "lost, rounds").accuracy.value == pytest.approx(-40.0)
    assert np.isnan(Score(unknown).accuracy_points("lost, rounds")[0])


def test_the_costs_of_a_failed_run_are_left_out() -> None:
    costs = dict.fromkeys(RECORD.contestants[0].runs["one"].costs, (None, 50.0))
    found = standing(with_runs("lost, rounds", costs=costs), "lost, rounds")
    # The first seed has the other setting alone: 100 of 100; the second is 50 and missed of 100.
    assert found.client_updates.mean == pytest.approx((1.0 * np.sqrt(0.5 * 2)) ** 0.5)


def test_waste_and_clients_at_work() -> None:
    at_work = {"mean": (9.0, None), "peak": (10.0, None)}
    record = with_runs(
        "lost, rounds",
        at_work=at_work,
        costs={**RECORD.contestants[2].runs["one"].costs, "wasted": (10.0, 20.0)},
    )
    found = standing(record, "lost, rounds")
    assert found.at_work == pytest.approx((9 + 8 + 8) / 3)
    assert found.wasted == pytest.approx((10 + 20 + 100 + 100) / 400)
    failed = with_runs("lost, rounds", at_work={"mean": (None, None), "peak": (None, None)})
    assert standing(failed, "lost, rounds").peak == 10.0  # of the other setting
    row = next(row for row in leaderboards(Score(record))[0].rows if "lost, rounds" in row[0])
    assert "8.3 / 10" in row
    rows = clients_at_work(Score(record)).rows
    assert rows[2] == ("lost, rounds", "9.0 / 10", "8.0 / 10")
    assert clients_at_work(Score(failed)).rows[2] == ("lost, rounds", "– / –", "8.0 / 10")


def test_the_base_is_found_by_its_label() -> None:
    backwards = Score(replace(RECORD, contestants=RECORD.contestants[::-1]))
    assert backwards.base == BASE
    assert backwards.time_share(BASE).mean == 1.0


def test_rivals_are_compared_seed_by_seed() -> None:
    score = Score(RECORD)
    ratio = np.log(score.seconds("quick, round-less") / score.seconds("lost, rounds"))
    share = score.time_share("quick, round-less", "lost, rounds")
    assert share.mean == pytest.approx(np.exp(ratio.mean()))


def test_there_is_a_board_for_each_way_of_working() -> None:
    titles = [table.title for table in leaderboards(Score(RECORD))]
    assert len(titles) == 3
    boards = {table.title: [row[0] for row in table.rows] for table in leaderboards(Score(RECORD))}
    assert boards[titles[1]] == [f"1. {BASE}", "2. lost, rounds"]
    assert boards[titles[2]] == ["1. quick, round-less", f"2. {BASE}"]
    assert rivals(Score(RECORD)) is None  # none of the usual ones is there


def test_one_seed_has_no_interval() -> None:
    assert np.isnan(Share.of(np.array([0.5])).low)
    assert str(Share.of(np.array([0.5]))) == "0.500"
