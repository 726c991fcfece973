"""How much is compared of runs that are unfinished, over, or ended before their time."""

from typing import TYPE_CHECKING

from fedmuster.report.cells import Ending, ending_notes
from fedmuster.report.runs import load
from fedmuster.report.summary import summarise

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun


def test_an_unfinished_run_cuts_all_but_the_shorter(write_run: "WriteRun") -> None:
    comparison = load(
        [
            write_run("bsfl", seconds=[1.0] * 9),
            write_run("random", seconds=[1.0] * 5, planned=9),
            write_run("pause", seconds=[1.0] * 2, planned=9, ending="nobody is left"),
            write_run("fastest", seconds=[1.0] * 7, planned=9, ending="too late to matter"),
        ]
    )
    assert [runs[0].rounds for runs in comparison.runs.values()] == [5, 5, 2, 5]
    assert comparison.notes == (
        "1 of 4 runs unfinished: all are cut to the first 5 of 9 rounds, as far as random, seed 0, "
        "is.",
        "pause, seed 0, ended after 2 rounds: nobody is left.",
    )


def test_by_time_an_early_end_cuts_nobody(write_run: "WriteRun") -> None:
    runs = [
        write_run("bsfl", seconds=[2.0] * 3, horizon=6.0),
        write_run("random", seconds=[1.0] * 2, horizon=6.0, ending="nobody is left"),
    ]
    comparison = load(runs)
    assert [own[0].rounds for own in comparison.runs.values()] == [3, 2]
    assert comparison.notes == ("random, seed 0, ended after 2 rounds: nobody is left.",)
    assert comparison.length == "6 s"
    unfinished = write_run("pause", seconds=[1.0] * 4, horizon=6.0)
    comparison = load([*runs, unfinished])
    assert [own[0].rounds for own in comparison.runs.values()] == [2, 2, 4]
    assert "first 4 of 6 s, as far as pause" in comparison.notes[0]


def test_runs_that_all_ended_alike_are_as_long_as_each_other(write_run: "WriteRun") -> None:
    comparison = load(
        [write_run(label, planned=9, ending="nobody is left") for label in ("bsfl", "random")]
    )
    assert not comparison.uneven
    assert comparison.length == "3 rounds"
    assert "simulated_seconds" in {metric.key for metric in summarise(comparison).tested}


def test_an_end_at_the_horizon_is_not_early(write_run: "WriteRun") -> None:
    assert load([write_run(ending="nobody is left")]).notes == ()
    assert load([write_run("random", horizon=6.0, ending="nobody is left")]).notes == ()


def test_a_run_that_has_all_of_its_rounds_before_its_time_is_named(write_run: "WriteRun") -> None:
    comparison = load(
        [
            write_run("bsfl", seconds=[2.0] * 4, horizon=8.0, planned=5),
            write_run("random", seconds=[1.0] * 5, horizon=8.0, planned=5),
        ]
    )
    assert len(comparison.notes) == 1
    assert comparison.notes[0].startswith("random, seed 0, ended after 5 rounds: ")


def test_many_endings_are_told_in_one_note() -> None:
    endings = [Ending("pause", seed, 100 + seed, f"reason {seed}") for seed in range(5)]
    endings += [Ending("random", seed, 1_200, "another") for seed in (1, 3)]
    assert ending_notes(endings, seeds=5, runs=15) == (
        "7 of 15 runs ended early: pause after 100–104 rounds, random after 1,200 rounds "
        "(2 of 5 seeds). pause, seed 0: reason 0.",
    )
    assert ending_notes([], seeds=5, runs=15) == ()
