"""The arithmetic and the picture of the race; its processes run in the quick form of the claim."""

import json
from dataclasses import replace
from pathlib import Path

import matplotlib.colors
import numpy as np
import pytest
from matplotlib.patches import Rectangle

from claims.flower.race import Race, Track, Tracks, _is_finished, _setting
from claims.flower.wall_clock import FLOWER, RaceTimes, accuracy_over_time

RACE = Race(
    policies={FLOWER: "", "random": "random", "BSFL": "bsfl"},
    node_seconds=(0.5, 0.5, 10.0),
    cohort_size=2,
    rounds=3,
    seeds=(4, 7),
)


def track(seconds: list[float], accuracy: list[float], chosen: list[list[int]]) -> Track:
    return Track(
        seconds=np.array([0.0, *seconds]),
        accuracy=np.array([0.1, *accuracy]),
        chosen=tuple(map(np.array, chosen)),
    )


SLOW, FAST = [[0, 2], [1, 2], [0, 2]], [[0, 2], [0, 1], [0, 1]]
TRACKS: Tracks = {
    FLOWER: (
        track([18, 36, 54], [0.3, 0.72, 0.6], SLOW),
        track([18, 36, 54], [0.3, 0.5, 0.9], SLOW),
    ),
    "random": (
        track([20, 36, 52], [0.3, 0.5, 0.9], SLOW),
        track([20, 36, 52], [0.3, 0.9, 0.9], SLOW),
    ),
    "BSFL": (
        track([12, 28, 35], [0.3, 0.4, 0.8], FAST),
        track([12, 28, 35], [0.3, 0.4, 0.7], FAST),
    ),
}
TIMES = RaceTimes(race=RACE, tracks=TRACKS)


def test_the_target_is_what_flower_comes_to_in_every_seed() -> None:
    assert TIMES.target.text == "72 %"
    assert TIMES.seconds(FLOWER).tolist() == [36, 54]
    assert TIMES.seconds("random").tolist() == [52, 36]
    assert TIMES.seconds("BSFL").tolist() == [35, np.inf]


def test_sooner_means_in_every_seed() -> None:
    bsfl = TIMES.sooner("BSFL", FLOWER)
    assert not bsfl.holds
    assert "seed 4: 35 s against 36 s; seed 7: not reached against 54 s" in bsfl.measured
    assert bsfl.measured.endswith("3 % less time where both reach it")
    ahead = RaceTimes(race=RACE, tracks={**TRACKS, "BSFL": (TRACKS["BSFL"][0],) * 2})
    assert ahead.sooner("BSFL", FLOWER).holds
    assert not ahead.sooner(FLOWER, "random").holds


def test_overhead_leaves_out_the_first_round_and_the_slowest_node() -> None:
    assert TIMES.overhead(FLOWER).tolist() == [8, 8]
    assert TIMES.overhead("BSFL").tolist() == [(16 - 0.5 + 7 - 0.5) / 2] * 2
    assert TIMES.less_overhead().holds
    (row,) = (row for row in TIMES.table().rows if row[0] == "BSFL")
    assert row[1:] == (
        "35 s",
        "not reached",
        "3, –",
        "75.0 %",
        "12.0 s",
        "11.5 s",
        "0.5 s",
        "11.0 s",
    )


def test_other_targets_count_the_seeds_that_reach_them() -> None:
    rows = {row[0]: row[1:] for row in TIMES.to_other_targets().rows}
    assert TIMES.to_other_targets().columns[1:] == ("60 %", "70 %", "72 %")
    assert rows[FLOWER] == ("45 s", "45 s", "45 s")
    assert rows["BSFL"] == ("35 s", "35 s", "reached in 1 of 2 seeds")


def test_notes_are_read_also_where_a_node_failed(tmp_path: Path) -> None:
    lines = [
        {"round": 0, "seconds": 0.0, "accuracy": 0.1, "clients": []},
        {"round": 1, "seconds": 9.5, "accuracy": 0.4, "clients": [0, 2]},
        {"round": 2, "seconds": 20.0, "accuracy": 0.5, "clients": [1]},
    ]
    path = tmp_path / "notes.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    read = Track.read(path)
    assert read.rounds == 2
    assert read.round_seconds.tolist() == [9.5, 10.5]
    assert [cohort.tolist() for cohort in read.chosen] == [[0, 2], [1]]
    assert read.rounds_to(0.4) == 1
    assert read.rounds_to(0.6) is None


def test_the_picture_shows_everybody() -> None:
    figure = accuracy_over_time(RACE, TRACKS, TIMES.target)
    curves, choices = figure.axes
    colours = {matplotlib.colors.to_hex(line.get_color()) for line in curves.get_lines()[:-1]}
    assert len(colours) == len(TRACKS)
    # BSFL: the two fast nodes in 5 of 2 × 3 places, the slow one in 1 of 3 rounds.
    heights = [bar.get_height() for bar in choices.patches if isinstance(bar, Rectangle)]
    assert heights[-2:] == pytest.approx([100 * 5 / 6, 100 / 3])


def test_only_the_very_run_that_is_wanted_counts_as_finished(tmp_path: Path) -> None:
    lines = [{"seconds": float(n), "accuracy": 0.5, "clients": [0]} for n in range(4)]
    text = "\n".join(json.dumps(line) for line in lines)
    race = replace(RACE, policies={FLOWER: ""}, seeds=(4,))
    cell = tmp_path / "flowers-random-seed-4"
    cell.mkdir()
    (cell / "setting.json").write_text(_setting(race, FLOWER, 4), encoding="utf-8")
    for notes, wanted, finished in (
        (text, race, True),
        (text[:-5], race, False),  # killed in the middle of a line
        (text, replace(race, rounds=4), False),
        (text, replace(race, node_seconds=(0.5, 0.5, 30.0)), False),
    ):
        (cell / "rounds.jsonl").write_text(notes, encoding="utf-8")
        assert _is_finished(cell, wanted, FLOWER, 4) == finished
