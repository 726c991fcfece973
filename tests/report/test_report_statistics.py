import numpy as np
import pytest
from scipy import stats

from fedmuster.report.statistics import LEVEL, interval, paired, student_t

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99, 1 - 0.05 / 8, 0.999, 0.9999)


@pytest.mark.parametrize("level", LEVELS)
def test_student_t_agrees_with_scipy(level: float) -> None:
    dofs = range(1, 201)
    ours = [student_t(dof, level) for dof in dofs]
    np.testing.assert_allclose(ours, stats.t.ppf((1 + level) / 2, list(dofs)), rtol=1e-8)


def test_interval_agrees_with_scipy() -> None:
    values = np.random.default_rng(1).normal(5.0, 2.0, 7)
    around = interval(values)
    theirs = stats.ttest_1samp(values, 0.0).confidence_interval(LEVEL)
    assert around.count == 7
    np.testing.assert_allclose(
        [around.mean, around.low, around.high], [values.mean(), theirs.low, theirs.high]
    )


def test_one_value_has_no_interval() -> None:
    around = interval(np.array([3.0]))
    assert around.mean == 3.0
    assert np.isnan(around.half_width)


def test_values_without_spread_have_an_interval_of_no_width() -> None:
    around = interval(np.array([3.0, 3.0, 3.0]))
    assert (around.low, around.mean, around.high) == (3.0, 3.0, 3.0)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([1.0, 2.1, 2.9], "lower"),
        ([9.0, 10.1, 10.9], "higher"),
        ([4.0, 7.0, 6.5], "no significant difference"),
        ([5.0, 6.0, 7.0], "equal"),
        ([4.0, 5.0, 6.0], "lower"),  # by exactly 1 in every seed
        ([5.5, 6.5, 7.5], "higher"),
    ],
)
def test_verdicts_on_pairs(values: list[float], verdict: str) -> None:
    assert paired(np.array(values), np.array([5.0, 6.0, 7.0])).verdict == verdict


def test_one_seed_has_no_verdict() -> None:
    difference = paired(np.array([1.0]), np.array([100.0]))
    assert difference.verdict == "one seed"
    assert difference.interval.mean == -99.0


@pytest.mark.parametrize("comparisons", [1, 8])
def test_verdict_is_that_of_a_paired_t_test(comparisons: int) -> None:
    rng = np.random.default_rng(2)
    seen = set()
    for _ in range(300):
        values, baseline = rng.normal(0.8, 1.0, 6), rng.normal(0.0, 1.0, 6)
        difference = paired(values, baseline, comparisons=comparisons)
        test = stats.ttest_rel(values, baseline)
        significant = test.pvalue < (1 - LEVEL) / comparisons
        expected = "higher" if test.statistic > 0 else "lower"
        assert difference.verdict == (expected if significant else "no significant difference")
        seen.add(significant)
    assert seen == {True, False}


def test_false_alarms_are_as_rare_as_stated() -> None:
    rng, trials = np.random.default_rng(3), 2_000
    luck = rng.exponential(size=(trials, 10)) * 5  # shared by both, as with paired seeds
    pairs = zip(luck + rng.normal(size=luck.shape), luck + rng.normal(size=luck.shape), strict=True)
    alarms = sum(paired(a, b).verdict in ("lower", "higher") for a, b in pairs)
    low, high = stats.binom.ppf([0.0005, 0.9995], trials, 1 - LEVEL)
    assert low <= alarms <= high


def test_several_policies_together_raise_no_more_false_alarms_than_one() -> None:
    rng, families, policies = np.random.default_rng(4), 1_000, 8
    alarms = {1: 0, policies: 0}
    for _ in range(families):
        values, baseline = rng.normal(size=(policies, 10)), rng.normal(size=10)
        for comparisons in alarms:
            verdicts = [paired(own, baseline, comparisons=comparisons).verdict for own in values]
            alarms[comparisons] += any(verdict in ("lower", "higher") for verdict in verdicts)
    bound = stats.binom.ppf(0.999, families, 1 - LEVEL)
    assert alarms[policies] <= bound
    assert alarms[1] > bound  # without the correction it is not so
