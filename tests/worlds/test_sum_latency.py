"""The law of two fluctuating parts, against an independent quadrature and against Monte Carlo."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, special, stats

from fedmuster.worlds.laws.two_stages import SumLatency, fast_normal_cdf


def of_one(x: float, y: float, rx: float, ry: float, floor: float = 1.0) -> SumLatency:
    return SumLatency(
        compute=np.array([x]),
        communication=np.array([y]),
        compute_relative_sd=rx,
        communication_relative_sd=ry,
        floor=floor,
    )


def log_normal(mean: float, relative_sd: float) -> stats.rv_continuous:
    sigma = np.sqrt(np.log1p(relative_sd**2))
    return stats.lognorm(sigma, scale=mean * np.exp(-0.5 * sigma**2))


class Reference:
    """X + Y by a grid of 4,000 quantiles of X and scipy's law of Y, in seconds instead of z."""

    def __init__(self, x: float, y: float, rx: float, ry: float) -> None:
        nodes, weights = np.polynomial.legendre.leggauss(40)
        edges = np.linspace(-8.3, 8.3, 101)
        half = np.diff(edges)[:, None] / 2
        z = (edges[:-1, None] + half * (1 + nodes)).ravel()
        self._x = log_normal(x, rx).ppf(special.ndtr(z)) if rx > 0 else x
        self._weights = (half * weights).ravel() * stats.norm.pdf(z)
        self._y = log_normal(y, ry)

    def cdf(self, seconds: float) -> float:
        return float(np.sum(self._weights * self._y.cdf(seconds - self._x)))

    def mean_inverse(self, floor: float, deadline: float) -> float:
        """By parts: ``E[1/max(f, t); t <= d] = F(d)/d + ∫_f^d F(t)/t² dt``."""
        inside = integrate.quad(
            lambda u: self.cdf(np.exp(u)) * np.exp(-u),
            np.log(floor),
            np.log(deadline),
            epsrel=1e-9,
            epsabs=1e-13,
            limit=200,
        )[0]
        return self.cdf(deadline) / deadline + float(inside)


CASES = [
    (94.0, 13.0, 0.1, 0.4, 100.0),
    (40.0, 60.0, 0.1, 0.4, 100.0),
    (13.0, 94.0, 0.4, 0.1, 100.0),
    (65.0, 119.0, 0.01, 0.4, 184.0),
    (39.5, 13.0, 0.4, 1.0, 100.0),
    (30.4, 24.6, 1.0, 0.4, 55.0),
    (1.0, 1.2, 0.5, 0.5, 3.0),  # reaches the floor
]


@pytest.mark.parametrize(("x", "y", "rx", "ry", "deadline"), CASES)
def test_expectations_agree_with_scipy(
    x: float, y: float, rx: float, ry: float, deadline: float
) -> None:
    law, reference = of_one(x, y, rx, ry), Reference(x, y, rx, ry)
    assert law.in_time(deadline)[0] == pytest.approx(reference.cdf(deadline), abs=1e-7)
    assert law.mean_inverse(deadline)[0] == pytest.approx(
        reference.mean_inverse(1.0, deadline), rel=1e-6
    )
    below = integrate.quad(reference.cdf, 0.0, 1.0, epsabs=1e-12)[0]
    assert law.mean_seconds()[0] == pytest.approx(x + y + below, rel=1e-8)


def test_limits_are_exact() -> None:
    law = of_one(40.0, 10.0, 0.1, 0.4)
    assert law.in_time(np.inf)[0] == pytest.approx(1.0, abs=1e-11)
    assert law.in_time(0.5)[0] == 0.0  # below the floor
    assert law.mean_inverse(0.5)[0] == 0.0
    assert law.in_time(1.0)[0] == pytest.approx(0.0, abs=1e-12)
    assert law.mean_inverse()[0] == pytest.approx(law.mean_inverse(1e6)[0], rel=1e-9)
    still = of_one(40.0, 10.0, 1e-6, 1e-6)
    assert still.in_time(50.001)[0] == pytest.approx(1.0)
    assert still.in_time(49.999)[0] == pytest.approx(0.0, abs=1e-12)
    assert still.mean_inverse()[0] == pytest.approx(1 / 50)
    always_floor = of_one(0.01, 0.01, 0.1, 0.1)
    assert always_floor.in_time(1.0)[0] == pytest.approx(1.0)
    assert always_floor.mean_seconds()[0] == pytest.approx(1.0)
    assert always_floor.mean_inverse(1.0)[0] == pytest.approx(1.0)


def test_expectations_agree_with_what_is_drawn() -> None:
    """7 clients, 100,000 copies of each; every mean within 4.5 standard errors (2e-4 in all)."""
    copies = 100_000
    law = SumLatency(
        compute=np.tile([case[0] for case in CASES], copies),
        communication=np.tile([case[1] for case in CASES], copies),
        compute_relative_sd=0.2,
        communication_relative_sd=0.6,
        floor=1.5,
    )
    rng, deadline = np.random.default_rng(7), 100.0
    tau = law.draw(rng).reshape(copies, -1)
    assert tau.min() >= 1.5
    law = replace(
        law, compute=law.compute[: len(CASES)], communication=law.communication[: len(CASES)]
    )
    for drawn, expected in (
        (tau, law.mean_seconds()),
        (tau <= deadline, law.in_time(deadline)),
        ((tau <= deadline) / tau, law.mean_inverse(deadline)),
        (1 / tau, law.mean_inverse()),
    ):
        error = drawn.std(axis=0) / np.sqrt(len(tau))
        assert np.all(np.abs(drawn.mean(axis=0) - expected) <= 4.5 * error + 1e-12)


def test_many_clients_are_as_exact_as_one() -> None:
    """Over chunks, and where clients need more nodes than others."""
    rng = np.random.default_rng(1)
    size = 4100
    x, y = np.exp(rng.uniform(0, 5, (2, size)))
    law = SumLatency(
        compute=x,
        communication=y,
        compute_relative_sd=0.3,
        communication_relative_sd=0.9,
        floor=2.0,
    )
    some = [0, 17, 4095, 4096, 4099]
    for name in ("mean_inverse", "in_time"):
        together = getattr(law, name)(60.0)
        for row in some:
            alone = getattr(of_one(x[row], y[row], 0.3, 0.9, floor=2.0), name)(60.0)
            assert together[row] == pytest.approx(alone[0], rel=1e-12, abs=1e-15)


def test_fast_cdf_is_good_to_twelve_digits() -> None:
    z = np.concatenate([np.linspace(-12, 12, 100_001), [-np.inf, np.inf, -1e300]])
    np.testing.assert_allclose(fast_normal_cdf(z), special.ndtr(z), rtol=0, atol=2e-12)
