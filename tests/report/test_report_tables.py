import csv
import io
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fedmuster.report.runs import Comparison, load
from fedmuster.report.statistics import student_t
from fedmuster.report.summary import evenness, summarise
from fedmuster.report.tables import Table, tables, to_csv, to_markdown

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun


@pytest.fixture
def comparison(write_run: "WriteRun") -> Comparison:
    """bsfl is 7 s faster in both seeds; its regret is lower by 1 and by 5."""
    even = [[0, 1], [2, 3]]
    return load(
        [
            write_run("bsfl", 0, seconds=[1.0, 2.0], regret=[1.0, 0.0], num_completed=1),
            write_run("bsfl", 1, seconds=[1.0, 4.0], regret=[1.0, 2.0], num_completed=1),
            write_run("random", 0, seconds=[5.0, 5.0], regret=[1.0, 1.0], cohorts=even),
            write_run("random", 1, seconds=[5.0, 7.0], regret=[4.0, 4.0], cohorts=even),
        ]
    )


def test_numbers_by_hand(comparison: Comparison) -> None:
    summary = summarise(comparison)
    bsfl, random = summary.policies
    t = student_t(1, 0.95)
    assert (bsfl.label, random.label, summary.baseline) == ("bsfl", "random", "random")
    means = {
        "simulated_seconds": (4.0, t * 1.0),  # 3 and 5: sd / sqrt(2) = 1
        "round_seconds": (2.0, t * 0.5),
        "regret": (2.0, t * 1.0),  # 1 and 3
        "reward": (9.0, t * 0.5),  # 9.5 and 8.5
        "completed_percent": (50.0, 0.0),
        "evenness": (0.5, 0.0),  # 2 of 4 clients do all
    }
    for key, (mean, half_width) in means.items():
        assert bsfl.means[key].mean == pytest.approx(mean)
        assert bsfl.means[key].half_width == pytest.approx(half_width)
    assert random.means["evenness"].mean == 1.0
    assert random.means["completed_percent"].mean == 100.0
    assert not random.differences
    assert bsfl.differences["simulated_seconds"].interval.mean == -7.0
    assert bsfl.differences["simulated_seconds"].verdict == "lower"
    assert bsfl.differences["regret"].interval.half_width == pytest.approx(2 * t)
    assert bsfl.differences["regret"].verdict == "no significant difference"


def test_tables_by_hand(comparison: Comparison) -> None:
    means, differences = tables(summarise(comparison))
    assert means.title == "2 rounds, 2 seeds, 2 of 4 clients a round"
    assert means.columns == (
        "Policy",
        "Simulated time (s)",
        "Regret",
        "Mean reward",
        "Completed (%)",
        "Evenness",
    )
    assert means.rows[0] == ("bsfl", "4 ± 13", "2 ± 13", "9.0 ± 6.4", "50.000 ± 0", "0.50000 ± 0")
    assert differences.title == "Compared with random, seed by seed"
    assert differences.rows == (
        ("bsfl", "faster by 7.0000 ± 0 s (64 %)", "no significant difference (−3 ± 25)"),
    )
    assert differences.footnotes == (
        "± half-width of the 95 % Student-t interval of the paired difference.",
    )


def test_that_all_completed_goes_without_saying(write_run: "WriteRun") -> None:
    summary = summarise(load([write_run(cohorts=[[0, 1]] * 3)]))
    (means,) = tables(summary)
    assert "Completed (%)" not in means.columns
    assert "completed_percent_mean" in to_csv(summary)


def test_the_other_way_round(comparison: Comparison) -> None:
    _, differences = tables(summarise(comparison, "bsfl"))
    assert differences.rows == (
        ("random", "slower by 7.0000 ± 0 s (175 %)", "no significant difference (+3 ± 25)"),
    )


def test_regret_of_some_is_shown_beside_none(write_run: "WriteRun") -> None:
    folders = [write_run("bsfl", regret=[1.0, 2.0, 3.0]), write_run("random")]
    means, differences = tables(summarise(load(folders)))
    assert [row[2] for row in means.rows] == ["6.0000", "–"]
    assert differences.rows[0][2] == "–"


def test_three_policies_are_corrected_for(write_run: "WriteRun") -> None:
    labels = ("bsfl", "pause", "random")
    comparison = load([write_run(label, seed) for label in labels for seed in (0, 1)])
    summary = summarise(comparison)
    _, differences = tables(summary)
    assert summary.policies[0].differences["simulated_seconds"].level == pytest.approx(0.975)
    assert "97.50 % Student-t interval" in differences.footnotes[0]
    assert "Bonferroni over the 2 policies compared" in differences.footnotes[0]
    # Three equal runs without a judge.
    assert differences.rows == (
        ("bsfl", "no significant difference (equal in every seed)"),
        ("pause", "no significant difference (equal in every seed)"),
    )


def test_one_seed_says_so(write_run: "WriteRun") -> None:
    slow = write_run("random", seconds=[2000.0, 1000.5])
    fast = write_run("bsfl", seconds=[2.0, 1.0])
    means, differences = tables(summarise(load([fast, slow])))
    assert means.columns == ("Policy", "Simulated time (s)", "Evenness")  # no judge, no regret
    assert means.rows[1][1] == "3,000.5"
    assert means.footnotes[0] == "One seed (0): no intervals."
    assert differences.rows[0][1] == "−2,997.5 s (one seed: no interval)"
    assert "nothing is said about significance" in differences.footnotes[0]


def test_rounding_errors_are_shown_as_nothing(write_run: "WriteRun") -> None:
    folders = [write_run(seed=seed, regret=[1e-17, 0.0, seed * 1e-17]) for seed in (0, 1)]
    (means,) = tables(summarise(load(folders)))
    assert means.rows[0][2] == "0 ± 0"


def test_a_mean_of_zero_keeps_its_interval(write_run: "WriteRun") -> None:
    folders = [write_run("random", seed, seconds=[5.0]) for seed in (0, 1)]
    folders += [write_run("bsfl", seed, seconds=[5.0 + (seed - 0.5) / 32]) for seed in (0, 1)]
    _, differences = tables(summarise(load(folders)))
    assert differences.rows[0][1] == "no significant difference (0 ± 0.20 s)"


def test_one_policy_is_compared_with_nobody(write_run: "WriteRun") -> None:
    assert len(tables(summarise(load([write_run()])))) == 1


def test_notes_stand_under_both_tables(write_run: "WriteRun") -> None:
    folders = [write_run("bsfl", planned=9), write_run("random", planned=9)]
    for table in tables(summarise(load(folders))):
        assert "unfinished" in table.footnotes[-1]


def test_csv_has_every_bit(comparison: Comparison) -> None:
    summary = summarise(comparison)
    bsfl, random = csv.DictReader(io.StringIO(to_csv(summary)))
    own = summary.policies[0]
    assert (bsfl["policy"], bsfl["seeds"], bsfl["rounds"]) == ("bsfl", "2", "2")
    assert float(bsfl["regret_half_width"]) == own.means["regret"].half_width
    assert float(bsfl["regret_difference_low"]) == own.differences["regret"].interval.low
    assert float(bsfl["regret_difference_high"]) == own.differences["regret"].interval.high
    assert bsfl["simulated_seconds_verdict"] == "lower"
    assert random["simulated_seconds_difference_mean"] == random["regret_verdict"] == ""


def test_csv_leaves_out_what_was_not_measured(write_run: "WriteRun") -> None:
    (row,) = csv.DictReader(io.StringIO(to_csv(summarise(load([write_run()])))))
    assert "regret_mean" not in row
    assert row["simulated_seconds_half_width"] == ""
    assert row["simulated_seconds_mean"] == "6.0"


def test_markdown() -> None:
    table = Table(title="T", columns=("a", "b"), rows=(("x|y", "1"),), footnotes=("n",))
    assert to_markdown([table]) == "### T\n\n| a | b |\n|---|---:|\n| x\\|y | 1 |\n\n- n\n"


@pytest.mark.parametrize(
    ("counts", "index"), [([5, 5], 1.0), ([1, 0, 0, 0], 0.25), ([1, 3], 0.8), ([0, 0], 1.0)]
)
def test_evenness_is_jains_index(counts: list[int], index: float) -> None:
    assert evenness(np.array(counts)) == pytest.approx(index)
