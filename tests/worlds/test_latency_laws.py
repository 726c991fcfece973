"""Draws and exact expectations of the latency laws, against scipy and against Monte Carlo."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, special, stats

from fedmuster.core.records import FloatArray
from fedmuster.worlds.laws.latency import (
    EmpiricalLatency,
    LatencyLaw,
    LogNormalLatency,
    NormalLatency,
    RateLatency,
    ShiftedExponentialLatency,
    normal_cdf,
)

MEAN = np.array([0.1, 0.3, 1.0, 2.0])
NEAR = np.array([0.1, 0.3, 0.45, 0.5])
COUNTS = np.array([3, 1, 5])
MEASURED = np.array([0.2, 0.4, 0.9, 1.0, 0.1, 0.2, 0.3, 0.5, 2.0])

LAWS: dict[str, LatencyLaw] = {
    "normal": NormalLatency(mean=NEAR, sd=0.1 * NEAR, floor=0.1),
    "wide normal": NormalLatency(mean=MEAN, sd=0.8 * MEAN, floor=0.02),
    "rate": RateLatency(
        rate=np.array([0.11, 0.20, 0.75, 0.96]),
        sd=np.array([0.06, 0.03, 0.03, 0.001]),
        tau_min=0.1,
        slowest_rate=0.1,
    ),
    "exponential": ShiftedExponentialLatency(mean=MEAN, floor=0.05),
    "log-normal": LogNormalLatency(mean=MEAN, relative_sd=0.7, floor=0.1),
    "empirical": EmpiricalLatency(seconds=MEASURED, counts=COUNTS),
}


def integral(function: Callable[[float], float], edges: list[float]) -> float:
    """Adaptive quadrature between consecutive edges."""
    parts = (
        integrate.quad(function, low, high, epsabs=1e-14, epsrel=1e-11, limit=200)[0]
        for low, high in pairwise(edges)
        if high > low
    )
    return float(sum(parts))


def clipped_normal(
    function: Callable[[float], float], mean: float, sd: float, low: float, high: float
) -> float:
    """``E[f(clip(N(mean, sd²), low, high))]``, by scipy."""
    law = stats.norm(mean, sd)
    scale = 1 / (sd * math.sqrt(2 * math.pi))

    def density(x: float) -> float:  # a call of scipy's own takes fifty times as long
        return scale * math.exp(-0.5 * ((x - mean) / sd) ** 2)

    assert density(mean + sd) == pytest.approx(law.pdf(mean + sd), rel=1e-12)
    top = min(high, mean + 12 * sd)
    edges = sorted({low, top, *np.clip(mean + sd * np.linspace(-10, 10, 41), low, max(low, top))})
    inside = integral(lambda x: function(x) * density(x), [float(edge) for edge in edges])
    upper = function(high) * law.sf(high) if np.isfinite(high) else 0.0
    return float(function(low) * law.cdf(low) + inside + upper)


@pytest.mark.parametrize("floor", [1e-3, 0.05, 0.9, 1.0, 1.5])
@pytest.mark.parametrize("sd", [0.01, 0.1, 0.118, 0.125, 0.5, 2.0])
@pytest.mark.parametrize("deadline", [np.inf, 1.2, 1.0])
def test_floored_normal_agrees_with_scipy(floor: float, sd: float, deadline: float) -> None:
    law = NormalLatency(mean=np.array([1.0]), sd=np.array([sd]), floor=floor)

    mean = clipped_normal(lambda x: x, 1.0, sd, floor, np.inf)
    assert law.mean_seconds()[0] == pytest.approx(mean, rel=1e-9)

    inverse = 0.0
    if floor <= deadline:
        # Whatever exceeds the deadline counts nothing: an atom of value 0 there.
        late = stats.norm(1.0, sd).sf(deadline) / deadline if np.isfinite(deadline) else 0.0
        inverse = clipped_normal(lambda x: 1 / x, 1.0, sd, floor, deadline) - late
    assert law.mean_inverse(deadline)[0] == pytest.approx(inverse, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("rate", [0.10, 0.12, 0.18, 0.75, 0.97])
@pytest.mark.parametrize("sd", [0.0005, 0.01, 0.03])
def test_rate_law_agrees_with_scipy(rate: float, sd: float) -> None:
    law = RateLatency(rate=np.array([rate]), sd=np.array([sd]), tau_min=0.1, slowest_rate=0.1)

    mean = clipped_normal(lambda x: 0.1 / x, rate, sd, 0.1, 1.0)
    assert law.mean_seconds()[0] == pytest.approx(mean, rel=1e-9)

    speed = clipped_normal(lambda x: x, rate, sd, 0.1, 1.0)
    assert 0.1 * law.mean_inverse()[0] == pytest.approx(speed, rel=1e-9)

    # A deadline of 0.5 s lets only speeds >= 0.2 count.
    in_time = clipped_normal(lambda x: x, rate, sd, 0.2, 1.0)
    in_time -= 0.2 * stats.norm(rate, sd).cdf(0.2)
    assert 0.1 * law.mean_inverse(0.5)[0] == pytest.approx(in_time, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 0.1, 1.0, 10.0, 1e4])
def test_exponential_agrees_with_the_exponential_integral(scale: float) -> None:
    law = ShiftedExponentialLatency(mean=np.array([1.0 + scale]), floor=1.0)
    inverse = special.exp1(1 / scale) * np.exp(1 / scale) / scale if scale > 0.01 else 1 - scale
    tolerance = 1e-10 if scale > 0.01 else 3 * scale**2  # the series 1 - s + 2 s² - …
    assert law.mean_inverse()[0] == pytest.approx(inverse, rel=tolerance)
    assert law.mean_seconds()[0] == pytest.approx(1.0 + scale, rel=1e-15)

    within = integral(lambda z: np.exp(-z) / (1 + scale * z), [0.0, min(0.5 / scale, 50.0)])
    assert law.mean_inverse(1.5)[0] == pytest.approx(within, rel=1e-8)
    assert law.mean_inverse(0.9)[0] == 0.0


@pytest.mark.parametrize("relative_sd", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("deadline", [np.inf, 1.3])
def test_log_normal_agrees_with_scipy(relative_sd: float, deadline: float) -> None:
    floor = 0.6
    law = LogNormalLatency(mean=np.array([1.0]), relative_sd=relative_sd, floor=floor)
    sigma = math.sqrt(math.log1p(relative_sd**2))
    reference = stats.lognorm(s=sigma, scale=np.exp(-(sigma**2) / 2))
    assert reference.mean() == pytest.approx(1.0)
    assert reference.std() == pytest.approx(relative_sd)

    def density(x: float) -> float:  # a call of scipy's own takes fifty times as long
        z = (math.log(x) + sigma**2 / 2) / sigma
        return math.exp(-0.5 * z**2) / (x * sigma * math.sqrt(2 * math.pi))

    assert density(0.8) == pytest.approx(reference.pdf(0.8), rel=1e-12)
    edges = [float(x) for x in np.geomspace(floor, 1e7, 60)]
    mean = floor * reference.cdf(floor) + integral(lambda x: x * density(x), edges)
    assert law.mean_seconds()[0] == pytest.approx(mean, rel=1e-6)

    edges = [float(x) for x in np.geomspace(floor, min(deadline, 1e7), 60)]
    inverse = reference.cdf(floor) / floor + integral(lambda x: density(x) / x, edges)
    assert law.mean_inverse(deadline)[0] == pytest.approx(inverse, rel=1e-9)


@pytest.mark.parametrize("deadline", [np.inf, 0.45])
@pytest.mark.parametrize("name", LAWS)
def test_expectations_agree_with_draws(name: str, deadline: float) -> None:
    """Two-sided z-tests at 1e-3 over all clients and both expectations together (Bonferroni)."""
    law, rng = LAWS[name], np.random.default_rng(20)
    draws = np.array([law.draw(rng) for _ in range(20_000)])
    samples = {
        "seconds": (draws, law.mean_seconds()),
        "inverse": (np.where(draws <= deadline, 1 / draws, 0.0), law.mean_inverse(deadline)),
    }
    for values, expected in samples.values():
        frequent = np.count_nonzero(values, axis=0) >= 100
        assert np.all(frequent | (expected == 0)), "too rare for a normal approximation"
        error = values.std(axis=0) / np.sqrt(len(values))
        bound = stats.norm.isf(1e-3 / 2 / (2 * draws.shape[1]))
        assert np.all(np.abs(values.mean(axis=0) - expected) <= bound * error + 1e-12)


def test_floor_and_clip_bound_the_draws() -> None:
    rng = np.random.default_rng(1)
    assert LAWS["wide normal"].draw(rng).min() >= 0.02
    assert LAWS["exponential"].draw(rng).min() >= 0.05
    assert LAWS["log-normal"].draw(rng).min() >= 0.1
    rates = RateLatency(
        rate=np.full(10_000, 0.1), sd=np.full(10_000, 0.3), tau_min=0.1, slowest_rate=0.1
    )
    seconds = rates.draw(rng)
    # Many of these speeds are negative: they must be the slowest, not the fastest.
    assert seconds.min() >= 0.1
    assert seconds.max() == 1.0
    assert np.mean(seconds == 1.0) > 0.4


def test_a_deadline_at_an_atom_counts_it() -> None:
    slow = RateLatency(rate=np.array([0.05]), sd=np.array([0.001]), tau_min=0.1, slowest_rate=0.1)
    assert slow.mean_inverse(1.0)[0] == pytest.approx(1.0)
    assert slow.mean_inverse(0.999)[0] == pytest.approx(0.0, abs=1e-12)
    floored = NormalLatency(mean=np.array([0.5]), sd=np.array([0.01]), floor=1.0)
    assert floored.mean_inverse(1.0)[0] == pytest.approx(1.0)
    assert floored.mean_inverse(0.999)[0] == 0.0


def test_empirical_law_by_hand() -> None:
    law = LAWS["empirical"]
    assert law.mean_seconds() == pytest.approx([0.5, 1.0, 0.62])
    assert law.mean_inverse(0.45) == pytest.approx(
        [(1 / 0.2 + 1 / 0.4) / 3, 0.0, (1 / 0.1 + 1 / 0.2 + 1 / 0.3) / 5]
    )


def test_chunks_do_not_show() -> None:
    mean = np.geomspace(0.1, 10.0, 10_001)

    def inverse(rows: slice) -> FloatArray:
        return NormalLatency(mean=mean[rows], sd=0.3 * mean[rows], floor=0.05).mean_inverse()

    whole = inverse(slice(None))
    assert whole[4000:4200] == pytest.approx(inverse(slice(4000, 4200)), rel=1e-13)
    assert whole[-3:] == pytest.approx(inverse(slice(-3, None)), rel=1e-13)


def test_normal_cdf_is_exact_in_both_tails() -> None:
    z = np.linspace(-30, 30, 601)
    assert normal_cdf(z) == pytest.approx(stats.norm.cdf(z), rel=1e-13)
