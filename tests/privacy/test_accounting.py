"""Conversions and compositions against hand-computed values, enumeration and dp-accounting."""

import math
import sys

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmuster.core.errors import ConfigError, MissingExtraError
from fedmuster.privacy.accounting import (
    Method,
    laplace_rdp,
    largest_rho,
    rdp_epsilon,
    tighter_epsilon,
    zcdp_epsilon,
)

DELTA = 1e-6
PAUSE = [40 * math.expm1(0.04) * math.exp(-0.04 * i) for i in range(1, 101)]
"""PAUSE Eq. 6 with ε̄ = 40 and η = 0.04: a hundred participations."""


def test_a_hundred_participations_of_pause() -> None:
    assert tighter_epsilon(PAUSE, DELTA, "basic") == pytest.approx(39.27, abs=0.01)
    assert tighter_epsilon(PAUSE, DELTA, "rdp") == pytest.approx(30.05, abs=0.01)
    assert tighter_epsilon(PAUSE, DELTA, "pld") == pytest.approx(29.23, abs=0.01)


def test_rdp_of_pause_is_dp_accountings() -> None:
    accountant = RdpAccountant(orders=[1 + x / 100 for x in range(10, 300)])
    for epsilon in PAUSE:
        accountant.compose(dp_accounting.LaplaceDpEvent(1 / epsilon))
    assert tighter_epsilon(PAUSE, DELTA, "rdp") == pytest.approx(
        accountant.get_epsilon(DELTA), rel=1e-4
    )


@pytest.mark.parametrize("epsilon", [0.01, 0.4, 3.0])
@pytest.mark.parametrize("order", [1.5, 2.0, 17.0])
def test_laplace_rdp_by_enumeration(epsilon: float, order: float) -> None:
    radius = 40
    rate = epsilon / (2 * radius)
    z = np.arange(-round(50 / rate), round(50 / rate) + 2 * radius)
    p, q = (-rate * np.abs(z - shift) + math.log(math.tanh(rate / 2)) for shift in (0, 2 * radius))
    enumerated = math.log(np.exp(order * p + (1 - order) * q).sum()) / (order - 1)
    closed = laplace_rdp(epsilon, np.array([order]), rate=rate)[0]
    assert closed == pytest.approx(enumerated, rel=1e-9)


def test_a_finer_lattice_costs_less_and_tends_to_the_continuous_law() -> None:
    order, epsilon = np.array([1.01, 2.0, 50.0]), 0.7
    costs = [laplace_rdp(epsilon, order, rate=rate) for rate in (0.35, 0.1, 2**-10, 1e-6)]
    assert (np.diff(costs, axis=0) < 0).all()
    weight = order / (2 * order - 1)
    moment = weight * np.exp((order - 1) * epsilon) + (1 - weight) * np.exp(-order * epsilon)
    np.testing.assert_allclose(costs[-1], np.log(moment) / (order - 1), rtol=1e-8)  # Mironov 2017


@pytest.mark.parametrize("split", [1, 5, 10])
def test_moving_one_coordinate_is_the_worst_case(split: int) -> None:
    """Of (ε, δ) for every ε, with d = 2, by enumeration: the claim that composition rests on."""
    steps, rate = 20, 0.1
    z = np.arange(-400, 420)
    law = np.exp(-rate * np.abs(z)) * math.tanh(rate / 2)
    moved = {s: np.exp(-rate * np.abs(z - s)) * math.tanh(rate / 2) for s in range(steps + 1)}
    two = np.outer(law, law), np.outer(moved[split], moved[steps - split])
    for loss in np.linspace(-2, 2, 41):
        spread = np.maximum(two[0] - math.exp(loss) * two[1], 0).sum()
        at_once = np.maximum(law - math.exp(loss) * moved[steps], 0).sum()
        assert spread <= at_once + 1e-12


@pytest.mark.parametrize(("rho", "delta"), [(1e-6, 1e-9), (0.01, 1e-6), (1.5, 1e-5), (50.0, 0.1)])
def test_zcdp_epsilon_is_between_the_gaussians_and_bun_and_steinkes(
    rho: float, delta: float
) -> None:
    epsilon = zcdp_epsilon(rho, delta)
    assert epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta))
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-4)
    if 0.01 <= rho < 10:  # the exact ε of continuous Gaussian noise is smaller
        accountant.compose(dp_accounting.GaussianDpEvent(1 / math.sqrt(2 * rho)))
        assert epsilon > accountant.get_epsilon(delta)
    rdp = RdpAccountant(orders=(1 + np.logspace(-2, 7, 4000)).tolist())
    rdp.compose(dp_accounting.GaussianDpEvent(1 / math.sqrt(2 * rho)))
    assert epsilon == pytest.approx(rdp.get_epsilon(delta), rel=1e-4)


def test_zcdp_epsilon_by_hand() -> None:
    # ρ = 1/2, δ = e^-10, at α = 5: 2.5 + ln(4/5) + (10 - ln 5) / 4 = 4.3745
    by_hand = 2.5 + math.log(0.8) + (10 - math.log(5)) / 4
    order = np.array([5.0])
    assert rdp_epsilon(order, 0.5 * order, math.exp(-10)) == pytest.approx(by_hand)
    assert zcdp_epsilon(0.5, math.exp(-10)) <= by_hand
    assert zcdp_epsilon(0.0, DELTA) == 0.0


@given(epsilon=st.floats(1e-4, 1e3), delta=st.floats(1e-12, 0.5))
@settings(max_examples=30)
def test_largest_rho_is_the_inverse(epsilon: float, delta: float) -> None:
    rho = largest_rho(epsilon, delta)
    assert zcdp_epsilon(rho, delta) <= epsilon
    assert zcdp_epsilon(rho * (1 + 1e-9), delta) > epsilon
    log = math.log(1 / delta)
    assert rho >= (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2 * (1 - 1e-9)


METHODS: tuple[Method, ...] = ("basic", "rdp", "pld")


@pytest.mark.parametrize("method", METHODS)
def test_never_more_than_the_sum(method: Method) -> None:
    for amounts in ([], [0.3], [1e-9, 5.0], [0.01] * 3):
        assert tighter_epsilon(amounts, 1e-9, method) <= math.fsum(amounts)


@pytest.mark.parametrize("method", METHODS[1:])
def test_the_order_of_debits_does_not_matter(method: Method) -> None:
    amounts = [0.5, 0.1, 0.5, 0.3]
    assert tighter_epsilon(amounts, DELTA, method) == tighter_epsilon(
        sorted(amounts), DELTA, method
    )


def test_pld_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    with pytest.raises(MissingExtraError, match=r"fedmuster\[accounting\]"):
        tighter_epsilon([1.0], DELTA, "pld")
    assert tighter_epsilon([1.0], DELTA, "rdp") <= 1.0


def test_refuses_nonsense() -> None:
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(ConfigError, match="delta"):
            tighter_epsilon([1.0], delta, "rdp")
        with pytest.raises(ConfigError, match="delta"):
            zcdp_epsilon(1.0, delta)
    for amount in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ConfigError, match="debits"):
            tighter_epsilon([1.0, amount], DELTA, "rdp")
    with pytest.raises(ConfigError, match="rho"):
        zcdp_epsilon(-1.0, DELTA)
    with pytest.raises(ConfigError, match="epsilon"):
        largest_rho(0.0, DELTA)
