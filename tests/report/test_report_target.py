import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fedmuster.core.errors import ConfigError
from fedmuster.report.runs import Comparison, load
from fedmuster.report.statistics import student_t
from fedmuster.report.summary import summarise
from fedmuster.report.tables import tables, target_table, to_csv
from fedmuster.report.target import Target, find_target

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun

NAN = math.nan


@pytest.fixture
def comparison(write_run: "WriteRun") -> Comparison:
    """random comes to 0.84 in every seed; of bsfl one seed never does."""
    return load(
        [
            write_run("bsfl", 0, accuracy=[NAN, 0.9, 0.8], loss=[NAN, 0.5, 0.7]),
            write_run("bsfl", 1, accuracy=[NAN, 0.5, 0.83], loss=[NAN, 1.0, 0.6]),
            write_run("pause", 0, accuracy=[0.84, NAN, 0.9], loss=[0.6, NAN, 0.5]),
            write_run("pause", 1, accuracy=[0.2, NAN, 0.9], loss=[2.0, NAN, 0.4]),
            write_run("random", 0, accuracy=[0.2, NAN, 0.84], loss=[2.0, NAN, 0.5]),
            write_run("random", 1, accuracy=[0.2, 0.84, 0.85], loss=[2.0, 0.8, 0.4]),
        ]
    )


def test_target_is_what_every_seed_of_the_baseline_reaches_rounded_down(
    comparison: Comparison,
) -> None:
    assert find_target(comparison, "random") == Target(column="accuracy", value=0.84)
    assert find_target(comparison, "pause").value == 0.9  # a whole per cent stays what it is
    assert find_target(comparison, "bsfl").value == 0.83
    assert find_target(comparison, "random", 0.5).value == 0.5


@pytest.mark.parametrize("wanted", [-0.1, 1.1, 84.0, math.nan, math.inf])
def test_no_such_accuracy(comparison: Comparison, wanted: float) -> None:
    with pytest.raises(ConfigError, match=r"0.*1"):
        find_target(comparison, "random", wanted)


def test_seconds_until_the_first_evaluation_that_reaches_it(comparison: Comparison) -> None:
    target = Target(column="accuracy", value=0.84)  # rounds last 1, 2 and 3 s
    seconds = [[target.seconds(run) for run in runs] for runs in comparison.runs.values()]
    np.testing.assert_array_equal(seconds, [[3.0, NAN], [1.0, 6.0], [6.0, 3.0]])


def test_tables_by_hand(comparison: Comparison) -> None:
    summary = summarise(comparison)
    learned, _, differences, _ = tables(summary)
    assert learned.title.startswith("What the model learned: 3 rounds, 2 seeds")
    assert learned.columns == ("Policy", "Final accuracy (%)", "Final loss", "Time to 84 % (s)")
    assert [row[3] for row in learned.rows] == ["reached in 1 of 2 seeds", "4 ± 32", "4 ± 19"]
    assert learned.rows[1][1] == "90.000 ± 0"
    assert differences.columns == ("Policy", "Final accuracy", "Final loss", "Time to 84 %")
    # Bonferroni over two: 90 less 84 and less 85 are 5.5 points on average.
    assert 0.5 * student_t(1, 0.975) == pytest.approx(12.7, abs=0.05)
    assert differences.rows[1][1] == "no significant difference (+6 ± 13 points)"
    assert differences.rows[0][3] == "not reached in every seed by bsfl"
    assert differences.rows[1][3].startswith("no significant difference (−1")


def test_who_never_reaches_it_has_no_interval(comparison: Comparison) -> None:
    summary = summarise(comparison, target=0.9)
    bsfl, pause, random = summary.policies
    assert [policy.reached("seconds_to_target") for policy in summary.policies] == [1, 2, 0]
    assert math.isnan(bsfl.means["seconds_to_target"].mean)
    assert not {"seconds_to_target"} & (bsfl.differences.keys() | pause.differences.keys())
    table = target_table(summary)
    assert table.columns[1:3] == ("Time to 90 % (s)", "Compared with random")
    assert [row[1] for row in table.rows] == [
        "reached in 1 of 2 seeds",
        "6.0000 ± 0",
        "never reached",
    ]
    assert [row[2] for row in table.rows] == [
        "not reached in every seed by bsfl and random",
        "not reached in every seed by random",
        "baseline",
    ]
    header, _, line, _ = to_csv(summary).splitlines()
    row = dict(zip(header.split(","), line.split(","), strict=True))
    assert (row["seconds_to_target_mean"], row["seconds_to_target_reached"]) == ("6.0", "2")
    assert row["seconds_to_target_verdict"] == ""
    assert random.label == summary.baseline


def test_a_faster_policy_is_called_faster(write_run: "WriteRun") -> None:
    folders = [
        write_run(label, seed, seconds=[quick + seed / 100] * 2, accuracy=[0.5, 0.6], loss=[1, 1])
        for label, quick in (("bsfl", 1.0), ("random", 4.0))
        for seed in (0, 1, 2)
    ]
    _, _, differences, _ = tables(summarise(load(folders)))
    assert differences.rows[0][3] == "faster by 6.0000 ± 0 s (75 %)"


def test_in_a_regression_the_loss_comes_down(write_run: "WriteRun") -> None:
    comparison = load(
        [write_run("bsfl", loss=[0.9, NAN, 0.1234]), write_run("random", loss=[0.8, 0.1222, 0.125])]
    )
    assert comparison.trained
    assert not comparison.classifies
    summary = summarise(comparison)
    assert summary.target == Target(column="loss", value=0.13)  # up, so that random is there
    assert [policy.values["seconds_to_target"][0] for policy in summary.policies] == [6.0, 3.0]
    learned, *_ = tables(summary)
    assert learned.columns == ("Policy", "Final loss", "Best loss", "Time to loss 0.13 (s)")
    assert learned.rows[1] == ("random", "0.12500", "0.12220", "3.0000")
    with pytest.raises(ConfigError, match="expected a loss >= 0"):
        find_target(comparison, "random", -1.0)


def test_runs_that_end_by_time_are_compared_in_rounds(write_run: "WriteRun") -> None:
    folders = [
        write_run("bsfl", seconds=[1.0] * 6, regret=[0.5] * 6, horizon=6.0),
        write_run("random", seconds=[3.0] * 2, regret=[1.0] * 2, horizon=6.0),
    ]
    summary = summarise(load(folders))
    means, differences = tables(summary)
    assert means.title == "6 s, 1 seed, 2 of 4 clients a round"
    assert means.columns == ("Policy", "Rounds", "Regret a round", "Mean reward", "Evenness")
    assert means.rows[0][1:3] == ("6.0000", "0.50000")
    assert differences.columns == ("Policy", "Rounds", "Regret a round")
    assert "simulated_seconds_mean" in to_csv(summary)


def test_an_infinite_loss_does_not_stop_a_report(write_run: "WriteRun") -> None:
    folders = [write_run("bsfl", seed, loss=[1.0, 1.0, math.inf]) for seed in (0, 1)]
    learned, *_ = tables(summarise(load(folders)))
    assert learned.rows[0][1:3] == ("inf", "1.0000 ± 0")


def test_a_single_policy_is_compared_with_nobody(write_run: "WriteRun") -> None:
    summary = summarise(load([write_run("bsfl", seed, loss=[0.9, 0.5, 0.3]) for seed in (0, 1)]))
    table = target_table(summary)
    assert [row[2] for row in table.rows] == ["baseline"]
    assert not any("Bonferroni" in note for note in table.footnotes)


def test_a_run_that_diverged_hides_nobody_elses_curve(write_run: "WriteRun") -> None:
    comparison = load(
        [
            write_run("bsfl", loss=[NAN, NAN, NAN], accuracy=[NAN, NAN, NAN]),
            write_run("random", loss=[0.9, 0.5, 0.3], accuracy=[0.1, 0.5, 0.8]),
        ]
    )
    assert comparison.classifies
    learned, *_ = tables(summarise(comparison))
    assert learned.rows[0][1:] == ("–", "–", "never reached")
    with pytest.raises(ConfigError):
        find_target(comparison, "bsfl")
