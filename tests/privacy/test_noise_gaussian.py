"""Discrete Gaussian noise against its exact law and against OpenDP's."""

import math
from collections.abc import Callable
from fractions import Fraction
from unittest import mock

import numpy as np
import opendp.prelude as dp
import pytest
from scipy import stats

from fedmuster.core.records import IntArray
from fedmuster.core.streams import NOISE, stream
from fedmuster.privacy import discrete_noise as module
from fedmuster.privacy.discrete_noise import discrete_gaussian
from fedmuster.privacy.randomness import Computable, UniformReal, secure_bytes, seeded_bytes

SIGNIFICANCE = 1e-6  # of each statistical test; the seeds are fixed but for secure randomness
DRAWS = 400_000
VARIANCES = [Fraction(1, 5), Fraction(7, 3), Fraction(900), Fraction(2 * 70_001**2 * 20)]


def draw(variance: Fraction, count: int = DRAWS, seed: int = 0) -> IntArray:
    return discrete_gaussian(variance, count, seeded_bytes(stream(seed, NOISE)))


@pytest.mark.parametrize("variance", VARIANCES[:3])
def test_exact_law(variance: Fraction) -> None:
    values = np.arange(-300, 301)
    weight = np.exp(-(values**2) / (2 * float(variance)))
    expected = DRAWS * weight / weight.sum()
    counts = np.bincount(draw(variance) + 300, minlength=601)
    assert counts.size == 601
    kept = expected >= 10
    rest = max(expected[~kept].sum(), 1e-300)
    counts, expected = np.append(counts[kept], counts[~kept].sum()), np.append(expected[kept], rest)
    if rest < 1:
        counts, expected = counts[:-1], expected[:-1]
        expected *= counts.sum() / expected.sum()
    assert stats.chisquare(counts, expected).pvalue > SIGNIFICANCE


def test_large_variance_is_the_normal_law() -> None:
    variance = VARIANCES[-1]
    # steps of 1e-6 of a standard deviation: the two laws cannot be told apart
    scaled = draw(variance) / math.sqrt(variance)
    assert stats.kstest(scaled, "norm").pvalue > SIGNIFICANCE
    assert stats.chisquare(np.bincount(draw(variance, seed=1) % 64)).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("variance", VARIANCES)
def test_mean_variance_and_symmetry(variance: Fraction) -> None:
    noise = draw(variance, seed=2).astype(np.float64)
    z = stats.norm.isf(SIGNIFICANCE / 2)
    values = np.arange(-300, 301)
    weight = np.exp(-(values**2) / (2 * float(variance)))
    true = float(variance) if variance > 900 else float(weight @ values**2 / weight.sum())
    assert abs(noise.mean()) < z * math.sqrt(true / DRAWS)
    assert abs(noise.var() - true) < z * math.sqrt(((noise**4).mean() - true**2) / DRAWS)
    above, below = np.count_nonzero(noise > 0), np.count_nonzero(noise < 0)
    assert stats.binomtest(above, above + below).pvalue > SIGNIFICANCE


def test_tails() -> None:
    noise = np.abs(draw(Fraction(10**6), count=2_000_000, seed=3))
    values = np.arange(6000, dtype=np.float64)
    weight = np.exp(-(values**2) / 2e6)
    for limit in (2000, 3000, 4500):
        tail = 2 * weight[limit:].sum() / (2 * weight.sum() - 1)
        beyond = np.count_nonzero(noise >= limit)
        assert stats.binomtest(beyond, noise.size, tail).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("scale", [1, 300])
def test_as_opendp(scale: int) -> None:
    """Two samples of one law. OpenDP has no seed: this fails once in a million runs."""
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=int)
    theirs = np.array(dp.m.make_gaussian(*space, scale=float(scale))([0] * 20_000))
    ours = discrete_gaussian(Fraction(scale**2), 200_000, secure_bytes)
    edges = np.unique(np.quantile(ours, np.linspace(0, 1, 41)[1:-1]).round())
    table = [
        np.bincount(np.searchsorted(edges, x), minlength=edges.size + 1) for x in (ours, theirs)
    ]
    assert stats.chi2_contingency(table).pvalue > SIGNIFICANCE


def test_float64_and_decimals_keep_the_same_proposals() -> None:
    variance, scale = Fraction(10**6, 3), 578
    proposal = draw(variance, count=2000)
    fast = module._is_kept(proposal, variance, scale, constant_bits(0xE123))
    with mock.patch.object(module, "MARGIN", 2.0):  # nothing is decided by float64
        exact = module._is_kept(proposal, variance, scale, constant_bits(0xE123))
    np.testing.assert_array_equal(fast, exact)
    assert 0.1 < fast.mean() < 0.9


def test_ties_are_decided_by_more_bits() -> None:
    asked = 0
    original = UniformReal.is_below

    def counted(self: UniformReal, threshold: Computable) -> bool:
        nonlocal asked
        asked += 1
        return original(self, threshold)

    with mock.patch.object(UniformReal, "is_below", counted):
        draw(Fraction(10**8), count=1_000_000)
    assert 2 <= asked <= 60  # 1.3 million proposals, each with 2^-16


def constant_bits(bits: int) -> Callable[[int], bytes]:
    return lambda count: (bits.to_bytes(2, "little") * (count // 2 + 1))[:count]
