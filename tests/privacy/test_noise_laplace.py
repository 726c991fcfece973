"""Discrete Laplace noise against its exact law and against OpenDP's."""

import math
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from scipy import stats

from fedmuster.core.errors import ConfigError
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.core.streams import NOISE, stream
from fedmuster.privacy.discrete_noise import discrete_laplace
from fedmuster.privacy.randomness import secure_bytes, seeded_bytes

SIGNIFICANCE = 1e-6  # of each statistical test; the seeds are fixed but for secure randomness
DRAWS = 400_000
RATES = [
    Fraction(3),  # nearly always 0
    Fraction(1, 3),
    Fraction(1, 50),
    Fraction(2, 5) / 2048,  # ε = 0.4, one group above the lowest
    Fraction(1, 100) / 3001,  # two
    Fraction(1, 10**9) / 2048,  # the smallest debit: four
]


def draw(rate: Fraction, count: int = DRAWS, seed: int = 0) -> IntArray:
    return discrete_laplace(rate, count, seeded_bytes(stream(seed, NOISE)))


def cumulative(edges: FloatArray, rate: float) -> FloatArray:
    """P(Z < edge) of whole edges: the geometric series, summed."""
    q = math.exp(-rate)
    low = np.exp(-rate * np.maximum(1 - edges, 0)) / (1 + q)
    high = 1 - np.exp(-rate * np.maximum(edges, 0)) / (1 + q)
    law: FloatArray = np.where(edges <= 0, low, high)
    return law


@pytest.mark.parametrize("rate", RATES)
def test_exact_law(rate: Fraction) -> None:
    noise = draw(rate)
    scale = 1 / float(rate)
    edges = np.unique(np.round(np.linspace(-9 * scale, 9 * scale, 201))) + 1.0
    expected = DRAWS * np.diff(cumulative(edges, float(rate)), prepend=0.0, append=1.0)
    counts = np.bincount(np.searchsorted(edges, noise, side="right"), minlength=edges.size + 1)
    kept = expected >= 10  # the others together
    counts = np.append(counts[kept], counts[~kept].sum())
    expected = np.append(expected[kept], expected[~kept].sum())
    if expected[-1] < 1:  # a bin that is all but empty has no chi-square law
        counts, expected = counts[:-1], expected[:-1]
        expected *= counts.sum() / expected.sum()
    assert stats.chisquare(counts, expected).pvalue > SIGNIFICANCE


def test_cumulative_is_the_sum_of_the_probabilities() -> None:
    rate = 0.3
    values = np.arange(-200, 200, dtype=np.float64)
    probability = (1 - math.exp(-rate)) / (1 + math.exp(-rate)) * np.exp(-rate * np.abs(values))
    np.testing.assert_allclose(
        cumulative(values + 1, rate), np.cumsum(probability), atol=1e-14, rtol=0
    )


@pytest.mark.parametrize("rate", RATES)
def test_every_residue_has_its_share(rate: Fraction) -> None:
    """The lowest digits by themselves, which a histogram of a large scale does not show."""
    noise = draw(rate, seed=1)
    q, modulus = math.exp(-float(rate)), 16
    # sum over k of q^|r + 16 k|, both ways
    r = np.arange(modulus)
    share = (q**r + q ** (modulus - r)) / (1 - q**modulus) * (1 - q) / (1 + q)
    counts = np.bincount(noise % modulus, minlength=modulus)
    kept = share * DRAWS >= 5
    result = stats.chisquare(counts[kept], share[kept] / share[kept].sum() * counts[kept].sum())
    assert result.pvalue > SIGNIFICANCE


@pytest.mark.parametrize("rate", RATES)
def test_mean_variance_and_symmetry(rate: Fraction) -> None:
    noise = draw(rate, seed=2).astype(np.float64)
    q = math.exp(-float(rate))
    variance = 2 * q / math.expm1(-float(rate)) ** 2
    z = stats.norm.isf(SIGNIFICANCE / 2)
    assert abs(noise.mean()) < z * math.sqrt(variance / DRAWS)
    fourth = (noise**4).mean()
    assert abs(noise.var() - variance) < z * math.sqrt((fourth - variance**2) / DRAWS)
    above, below = np.count_nonzero(noise > 0), np.count_nonzero(noise < 0)
    assert stats.binomtest(above, above + below).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("rate", [Fraction(1, 3), Fraction(1, 1000), Fraction(1, 10**7)])
def test_tails_beyond_the_highest_table(rate: Fraction) -> None:
    noise = np.abs(draw(rate, count=2_000_000, seed=3))
    for scales in (4, 8, 11):
        limit = round(scales / float(rate))
        tail = 2 * math.exp(-float(rate) * limit) / (1 + math.exp(-float(rate)))
        beyond = np.count_nonzero(noise >= limit)
        assert stats.binomtest(beyond, noise.size, tail).pvalue > SIGNIFICANCE


def test_a_table_that_overflows_is_continued() -> None:
    # 3 / 255 / 128 is the smallest rate of a single table above: 1 in 20 goes on, 1 in 400 twice
    rate = Fraction(3, 255 * 128)
    noise = np.abs(draw(rate, count=2_000_000, seed=4))
    for tables in (1, 2, 3):
        limit = 128 * 255 * tables
        tail = 2 * math.exp(-float(rate) * limit) / (1 + math.exp(-float(rate)))
        assert stats.binomtest(np.count_nonzero(noise >= limit), noise.size, tail).pvalue > (
            SIGNIFICANCE
        )


def test_digits_are_independent() -> None:
    rate = Fraction(1, 3000)
    noise = draw(rate, seed=5)
    magnitude = np.where(noise < 0, ~noise, noise)
    digits = np.array([magnitude >> i & 1 for i in range(14)] + [noise < 0], dtype=np.float64)
    share = 1 / (1 + np.exp(float(rate) * 2.0 ** np.arange(14)))
    share = np.append(share, 1 / (1 + math.exp(float(rate))))
    z = (digits.mean(axis=1) - share) / np.sqrt(share * (1 - share) / DRAWS)
    pairs = np.array(np.corrcoef(digits))[np.triu_indices(15, k=1)] * math.sqrt(DRAWS)
    tests = np.abs(np.concatenate((z, pairs)))
    assert tests.max() < stats.norm.isf(SIGNIFICANCE / 2 / tests.size)


def test_neighbouring_coordinates_are_independent() -> None:
    signs = np.sign(draw(Fraction(1, 3000), seed=6).astype(np.float64))
    z = (signs[1:] * signs[:-1]).sum() / math.sqrt(DRAWS)
    assert abs(z) < stats.norm.isf(SIGNIFICANCE / 2)


@pytest.mark.parametrize("scale", [2, 700])
def test_as_opendp(scale: int) -> None:
    """Two samples of one law. OpenDP has no seed: this fails once in a million runs."""
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    theirs = np.array(dp.m.make_laplace(*space, scale=float(scale))([0] * 20_000))
    ours = discrete_laplace(Fraction(1, scale), 200_000, secure_bytes)
    edges = np.unique(np.quantile(ours, np.linspace(0, 1, 41)[1:-1]).round())
    table = [
        np.bincount(np.searchsorted(edges, x), minlength=edges.size + 1) for x in (ours, theirs)
    ]
    assert stats.chi2_contingency(table).pvalue > SIGNIFICANCE


def test_seeded_noise_repeats_and_differs_between_clients() -> None:
    rate = Fraction(1, 100)
    np.testing.assert_array_equal(draw(rate, 100_000, seed=8), draw(rate, 100_000, seed=8))
    assert (draw(rate, 1000, seed=8) != draw(rate, 1000, seed=9)).mean() > 0.9


def test_refuses_a_rate_that_would_overflow() -> None:
    with pytest.raises(ConfigError, match="rate"):
        draw(Fraction(1, 2**51))
