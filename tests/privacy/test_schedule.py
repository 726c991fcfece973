"""Schedules against their formulas by hand, and sums that never pass the cap; units."""

import math
import tomllib
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from fedmuster.core.config import from_table, to_table
from fedmuster.core.errors import ConfigError, DataError
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.privacy.schedules import (
    UNITS_PER_ONE,
    Geometric,
    Harmonic,
    Listed,
    Schedule,
    Uniform,
    to_amount,
    to_units,
    units_of_next,
)

PARTICIPATIONS = 12_000
SCHEDULES: list[Schedule] = [
    Geometric(),
    Geometric(eta=1e-4),
    Geometric(eta=50.0),
    Uniform(),
    Uniform(participations=1),
    Uniform(participations=7),
    Uniform(participations=11_999),
    Harmonic(),
    Harmonic(power=0.1, offset=0.5),
    Harmonic(power=3.0, offset=1000.0),
    Listed(),
    Listed(shares=(0.1,) * 10),
    Listed(shares=(1.0,)),
]


def costs(rule: Schedule, cap_units: int, count: int = PARTICIPATIONS) -> IntArray:
    return units_of_next(rule, cap_units, np.arange(count))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("cap", [1, 7, 10**9, 40 * 10**9, 10**15 - 1])
def test_the_sum_never_passes_the_cap(schedule: Schedule, cap: int) -> None:
    units = costs(schedule, cap)
    assert units.dtype == np.int64
    assert (units >= 0).all()
    assert sum(units.tolist()) <= cap


@given(
    schedule=st.one_of(
        st.builds(Geometric, eta=st.floats(1e-12, 1e3)),
        st.builds(Uniform, participations=st.integers(1, 10**6)),
        st.builds(Harmonic, power=st.floats(1e-9, 1e3), offset=st.floats(1e-9, 1e9)),
        st.lists(st.floats(1e-6, 1), min_size=1, max_size=50)
        .map(lambda shares: [s / max(1.0, math.fsum(shares) * (1 + 1e-15)) for s in shares])
        .map(lambda shares: Listed(shares=tuple(shares))),
    ),
    cap=st.integers(0, 10**15),
)
def test_the_sum_never_passes_the_cap_whatever_the_parameters(schedule: Schedule, cap: int) -> None:
    units = costs(schedule, cap)
    assert (units >= 0).all()
    assert sum(units.tolist()) <= cap


def test_geometric_is_pauses_equation_6() -> None:
    units = costs(Geometric(eta=0.04), to_units(40.0))
    for i in (1, 2, 3, 10, 100):
        by_hand = 40.0 * (math.exp(0.04) - 1) * math.exp(-0.04 * i)
        assert abs(units[i - 1] - by_hand * UNITS_PER_ONE) <= 2
    assert units[:3].tolist() == [1_568_422_433, 1_506_923_711, 1_447_836_387]


def test_geometric_ends_when_less_than_a_unit_is_left() -> None:
    units = costs(Geometric(eta=0.04), to_units(40.0))
    # the first that costs nothing is the end: 40e9 (e^0.04 - 1) e^(-0.04 i) < 1 from i = 531 on
    end = int(np.flatnonzero(units == 0)[0])
    assert 520 < end < 560
    assert to_units(40.0) - units[:end].sum() < 60  # of 40 billion


def test_uniform_by_hand() -> None:
    assert costs(Uniform(participations=4), 10, count=6).tolist() == [2, 3, 2, 3, 0, 0]
    even = costs(Uniform(participations=100), to_units(10.0), count=101)
    assert np.abs(even[:100] - 100_000_000).max() <= 1
    assert even.sum() == to_units(10.0)
    assert even[100] == 0


def test_harmonic_by_hand() -> None:
    # 1 - (10 / (10 + c)) spent: 1/11, 2/12, 3/13 of the cap
    units = costs(Harmonic(power=1.0, offset=10.0), 11 * 12 * 13 * 1000, count=3)
    spent = [156_000, 286_000, 396_000]
    np.testing.assert_allclose(np.cumsum(units), spent, atol=1)
    # and the costs are as (i + a)^-2, for large i
    tail = costs(Harmonic(power=1.0, offset=10.0), 10**15)
    assert tail[2000] / tail[1000] == pytest.approx((1010.5 / 2010.5) ** 2, rel=1e-6)


def test_listed_by_hand() -> None:
    units = costs(Listed(shares=(0.5, 0.25, 0.125)), 1000, count=5)
    assert units.tolist() == [500, 250, 125, 0, 0]


def test_clients_differ_in_how_often_they_took_part() -> None:
    count = np.array([5, 0, 5, 1])
    units = units_of_next(Geometric(), 10**9, count)
    assert units.tolist() == costs(Geometric(), 10**9, count=6)[count].tolist()


@dataclass(frozen=True, kw_only=True, slots=True)
class HalfThenAll:
    """A user's own: half of the budget at first, then nothing, then all the rest."""

    name: ClassVar[str] = "half-then-all"

    def spent_share(self, count: IntArray) -> FloatArray:
        return np.array([0.0, 0.5, 0.5, 1.0])[np.minimum(count, 3)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A user's own, written out."""

    name: ClassVar[str] = "table"

    table: tuple[float, ...]

    def spent_share(self, count: IntArray) -> FloatArray:
        return np.array(self.table)[np.minimum(count, len(self.table) - 1)]


def test_a_users_own_rule() -> None:
    assert costs(HalfThenAll(), 101, count=5).tolist() == [50, 0, 51, 0, 0]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ((0.0, 1.0, 0.5, 1.0), "gives back"),
        ((0.0, 1.5), "numbers from 0 to 1"),
        ((-0.5, 0.5), "numbers from 0 to 1"),
        ((0.0, math.nan), "numbers from 0 to 1"),
    ],
)
def test_a_rule_that_cannot_be_kept_is_refused(table: tuple[float, ...], said: str) -> None:
    with pytest.raises(DataError, match=said):
        costs(Table(table=table), 10**9)


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    schedule: Schedule = field(default_factory=Geometric)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_round_trips_through_toml(schedule: Schedule) -> None:
    text = tomli_w.dumps(to_table(Holder(schedule=schedule)))
    assert from_table(Holder, tomllib.loads(text)).schedule == schedule


def test_refuses_nonsense() -> None:
    for eta in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ConfigError, match="eta"):
            Geometric(eta=eta)
    with pytest.raises(ConfigError, match="participations"):
        Uniform(participations=0)
    with pytest.raises(ConfigError, match="power"):
        Harmonic(power=0.0)
    with pytest.raises(ConfigError, match="offset"):
        Harmonic(offset=-1.0)
    for shares in ((), (0.6, 0.6), (-0.1,), (math.nan,)):
        with pytest.raises(ConfigError, match="shares"):
            Listed(shares=shares)


@pytest.mark.parametrize(
    ("amount", "units"),
    [(0.0, 0), (1e-9, 1), (0.57, 570_000_000), (40.0, 40 * 10**9), (1e6, 10**15), (1.9e-9, 1)],
)
def test_units_by_hand(amount: float, units: int) -> None:
    assert to_units(amount) == units


@given(units=st.integers(0, 10**15))
def test_units_come_back(units: int) -> None:
    assert to_units(to_amount(units)) == units


@given(amount=st.floats(0, 1e6))
def test_units_are_never_more_than_the_amount(amount: float) -> None:
    units = to_units(amount)
    # the shortest decimal that means this float is what the user wrote
    assert Fraction(units, UNITS_PER_ONE) <= max(Fraction(amount), Fraction(repr(amount)))


def test_units_where_a_product_of_floats_rounds_up() -> None:
    assert to_units(562950.8823682329) == 562_950_882_368_232


@pytest.mark.parametrize("amount", [-1e-9, math.nan, math.inf, 1e6 + 1])
def test_units_refuse(amount: float) -> None:
    with pytest.raises(ConfigError, match="privacy budget"):
        to_units(amount)
