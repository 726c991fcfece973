"""Mechanisms: what they promise, by enumeration; what they send, by statistics; their configs."""

import math
import tomllib
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import tomli_w
from numpy.testing import assert_array_equal
from scipy import stats

from fedmuster.core.config import from_table, to_table
from fedmuster.core.errors import ConfigError, DataError
from fedmuster.core.streams import NOISE, stream
from fedmuster.privacy.accounting import zcdp_epsilon
from fedmuster.privacy.mechanisms import Gaussian, Laplace, Mechanism
from fedmuster.privacy.randomness import secure_bytes, seeded_bytes

SIGNIFICANCE = 1e-6  # of each statistical test; the seeds are fixed
AMOUNTS = [1e-9, 0.0137, 0.4, 1.0, 40.0, 1e6]


# The promise


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("clip", [1.0, 0.37, 1e-3, 250.0])
def test_the_worst_pair_of_updates_costs_exactly_epsilon(amount: float, clip: float) -> None:
    """Of one coordinate: ``ln P(y | x) / P(y | x') = rate (|y - x'| - |y - x|)``, as a fraction."""
    lattice, rate = Laplace(clip=clip)._lattice(amount)
    points = [-lattice.radius, -lattice.radius // 3, 0, 7, lattice.radius]
    outputs = [*points, -10 * lattice.radius, 10 * lattice.radius, lattice.radius + 1]
    losses = [
        rate * (abs(y - other) - abs(y - x)) for y, x, other in product(outputs, points, points)
    ]
    assert max(losses) == Fraction(str(amount))


@pytest.mark.parametrize("radius", [1, 2, 3])
def test_what_a_whole_vector_costs(radius: int) -> None:
    """All pairs of the ball and of the box with d = 2, all outputs around; the bound is reached."""
    epsilon = Fraction(7, 10)
    box = list(product(range(-radius, radius + 1), repeat=2))
    ball = [(a, b) for a, b in box if abs(a) + abs(b) <= radius]
    outputs = list(product(range(-radius - 2, radius + 3), repeat=2))
    for points, cost in ((ball, epsilon), (box, 2 * epsilon)):
        losses = (
            abs(y0 - b0) + abs(y1 - b1) - abs(y0 - a0) - abs(y1 - a1)
            for (a0, a1), (b0, b1), (y0, y1) in product(points, points, outputs)
        )
        assert max(losses) * epsilon / (2 * radius) == cost


@pytest.mark.parametrize("rho", [0.01, 0.5, 4.0])
def test_gaussian_noise_is_rho_zcdp_and_not_more_than_that(rho: float) -> None:
    """Rényi divergence of every order, by enumeration on a small lattice: at most ``α ρ``."""
    radius = 3
    variance = 2 * radius**2 / rho  # as Gaussian has it
    z = np.arange(-math.ceil(60 * math.sqrt(variance)) - 100, math.ceil(60 * math.sqrt(variance)))
    log_law = -(z**2) / (2 * variance)
    log_law -= np.log(np.exp(log_law).sum())
    for shift in range(1, 2 * radius + 1):
        for order in (1.1, 2.0, 8.0):
            log_moved = -((z + shift) ** 2) / (2 * variance)
            log_moved -= np.log(np.exp(log_moved).sum())
            moment = np.exp(order * log_law + (1 - order) * log_moved).sum()
            divergence = math.log(moment) / (order - 1)
            assert divergence <= order * rho * (1 + 1e-9)
            if shift == 2 * radius and order in (2.0, 8.0):  # whole α: the bound is reached
                assert divergence == pytest.approx(order * rho, rel=1e-9)


def test_gaussian_variance_is_that_of_the_enumeration() -> None:
    lattice, variance = Gaussian(clip=0.7)._lattice(0.25)
    assert variance == Fraction(2 * lattice.radius**2) / Fraction(1, 4)


def test_an_observer_of_two_extreme_updates_learns_what_epsilon_allows() -> None:
    """End to end: P(output >= clip) is e^ε times larger for +clip than for -clip."""
    mechanism, epsilon, draws = Laplace(clip=1.0), 1.2, 400_000
    signs = np.array([1.0, -1.0])
    rows = [
        Laplace(mode="per-coordinate").release(
            np.full(draws, sign), epsilon, seeded_bytes(stream(0, NOISE, row))
        )
        for row, sign in enumerate(signs)
    ]
    lattice, rate = mechanism._lattice(epsilon)
    share = 1 / (1 + math.exp(-float(rate)))
    for sign, row in zip(signs, rows, strict=True):
        expected = share if sign > 0 else share * math.exp(-epsilon)
        beyond = np.count_nonzero(row >= lattice.radius * lattice.grid)
        assert stats.binomtest(beyond, draws, expected).pvalue > SIGNIFICANCE


# What is sent


@pytest.mark.parametrize("clip", [1.0, 0.3])
@pytest.mark.parametrize("mode", ["vector", "per-coordinate"])
def test_laplace_noise_has_its_scale(mode: str, clip: float) -> None:
    mechanism = from_table(Laplace, {"mode": mode, "clip": clip})
    assert mechanism.noise_scale(0.4) == pytest.approx(2 * clip / 0.4, rel=1e-3)
    assert mechanism.noise_scale(0.4) <= 2 * clip / 0.4
    noise = mechanism.release(np.zeros(300_000), 0.4, seeded_bytes(stream(1, NOISE)))
    law = stats.laplace(scale=mechanism.noise_scale(0.4))
    assert stats.kstest(noise, law.cdf).statistic < 0.0005 + stats.kstwo.isf(SIGNIFICANCE, 300_000)


def test_gaussian_noise_has_its_scale() -> None:
    mechanism = Gaussian(clip=0.5)
    assert mechanism.noise_scale(0.02) == pytest.approx(1.0 / math.sqrt(0.04), rel=1e-4)
    noise = mechanism.release(np.zeros(300_000), 0.02, seeded_bytes(stream(2, NOISE)))
    law = stats.norm(scale=mechanism.noise_scale(0.02))
    assert stats.kstest(noise, law.cdf).pvalue > SIGNIFICANCE


@pytest.mark.parametrize(
    ("mechanism", "clipped"),
    [
        (Laplace(clip=2.0), [1.5, -0.5, 0.0]),
        (Laplace(mode="per-coordinate", clip=2.0), [2.0, -1.0, 0.0]),
        (Gaussian(clip=2.0), [3 * 2 / math.sqrt(10), -2 / math.sqrt(10), 0.0]),
    ],
)
def test_the_mean_is_the_clipped_update(mechanism: Mechanism, clipped: list[float]) -> None:
    update, amount, draws = np.array([3.0, -1.0, 0.0]), 1000.0, 2000
    random_bytes = seeded_bytes(stream(3, NOISE))
    sent = np.array([mechanism.release(update, amount, random_bytes) for _ in range(draws)])
    z = stats.norm.isf(SIGNIFICANCE / 2)
    deviation = math.sqrt(2) * mechanism.noise_scale(amount) / math.sqrt(draws)
    # the L2 clip leaves room for what rounding adds: 2 of 65,536 steps
    np.testing.assert_allclose(sent.mean(axis=0), clipped, atol=z * deviation, rtol=1e-4)


@pytest.mark.parametrize("mechanism", [Laplace(), Laplace(mode="per-coordinate"), Gaussian()])
def test_seeded_releases_repeat_and_secure_ones_do_not(mechanism: Mechanism) -> None:
    update = np.linspace(-1, 1, 1000, dtype=np.float32)
    first, second = (
        mechanism.release(update, 0.1, seeded_bytes(stream(4, NOISE, 1))) for _ in range(2)
    )
    assert_array_equal(first, second)
    assert first.dtype == np.float64
    secure = [mechanism.release(update, 0.1, secure_bytes) for _ in range(2)]
    assert (secure[0] != secure[1]).mean() > 0.9


@pytest.mark.parametrize("mechanism", [Laplace(), Laplace(mode="per-coordinate"), Gaussian()])
def test_extremes(mechanism: Mechanism) -> None:
    random_bytes = seeded_bytes(stream(5, NOISE))
    assert mechanism.release(np.zeros(0), 1.0, random_bytes).shape == (0,)
    for amount in (1e-9, 1e6):
        sent = mechanism.release(np.array([1e300, -1e-300, 0.0]), amount, random_bytes)
        assert np.isfinite(sent).all()
    np.testing.assert_allclose(sent, [1, 0, 0], atol=0.02)  # a million: hardly any noise


@pytest.mark.parametrize("mechanism", [Laplace(), Laplace(mode="per-coordinate"), Gaussian()])
def test_refuses_to_release(mechanism: Mechanism) -> None:
    with pytest.raises(DataError, match="not finite"):
        mechanism.release(np.array([1.0, math.nan]), 1.0, secure_bytes)
    for amount in (0.0, -1.0, math.nan, math.inf, 1e-10, 1.1e6):
        with pytest.raises(ConfigError):
            mechanism.release(np.ones(3), amount, secure_bytes)
        with pytest.raises(ConfigError):
            mechanism.noise_scale(amount)


def test_the_noise_is_for_whole_units_never_for_more_than_was_paid() -> None:
    _, rate = Laplace()._lattice(400_000_000 / 10**9)  # 0.4 as a float is a bit more than 0.4
    assert rate * 2048 == Fraction(2, 5)
    assert Laplace()._lattice(1 / 3)[1] * 2048 == Fraction(333_333_333, 10**9)


# What reports say


def test_currencies_and_caps() -> None:
    assert [m.currency.key for m in (Laplace(), Laplace(mode="per-coordinate"), Gaussian())] == [
        "epsilon",
        "epsilon-per-coordinate",
        "rho",
    ]
    assert Laplace().cap(40.0) == Laplace(mode="per-coordinate").cap(40.0) == 40.0
    rho = Gaussian(delta=1e-5).cap(8.0)
    assert zcdp_epsilon(rho, 1e-5) == pytest.approx(8.0, rel=1e-9)
    assert Gaussian(delta=1e-5).whole_vector_epsilon(rho, 1000) <= 8.0


def test_whole_vector_epsilon_is_honest() -> None:
    assert Laplace().whole_vector_epsilon(40.0, 26_000) == 40.0
    assert Laplace(mode="per-coordinate").whole_vector_epsilon(40.0, 26_000) == 1_040_000.0
    assert Laplace().describe(0.4, 10) == "Laplace: ε = 0.4 of the update"
    assert Gaussian().describe(0.5, 10) == (
        "Gaussian: ρ = 0.5 of zCDP is ε = 5.22156 of the update at δ = 1e-06"
    )


# Configs


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    mechanism: Mechanism = field(default_factory=Laplace)


@pytest.mark.parametrize(
    "mechanism",
    [
        Laplace(),
        Laplace(mode="per-coordinate", clip=0.25),
        Gaussian(),
        Gaussian(clip=3, delta=1e-9),
    ],
)
def test_round_trips_through_toml(mechanism: Mechanism) -> None:
    text = tomli_w.dumps(to_table(Holder(mechanism=mechanism)))
    assert from_table(Holder, tomllib.loads(text)).mechanism == mechanism


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan, math.inf, 1e31, 1e-31])
def test_refuses_a_clip(clip: float) -> None:
    with pytest.raises(ConfigError, match="clip"):
        Laplace(clip=clip)
    with pytest.raises(ConfigError, match="clip"):
        Gaussian(clip=clip)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, math.nan])
def test_refuses_a_delta(delta: float) -> None:
    with pytest.raises(ConfigError, match="delta"):
        Gaussian(delta=delta)


def test_refuses_a_mode() -> None:
    with pytest.raises(ConfigError, match="mode"):
        from_table(Laplace, {"mode": "coordinate"})
