"""What old answers are worth: each rule against values computed by hand."""

import tomllib
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedmuster.core.config import from_table, to_table
from fedmuster.core.errors import ConfigError
from fedmuster.core.staleness import (
    STALENESS,
    AgeAndNovelty,
    CachedModels,
    ConstantWorth,
    Discard,
    HingeWorth,
    PolynomialWorth,
    Staleness,
    fill_quota,
)
from fedmuster.federation import Federation

AGES = np.array([0, 1, 3, 4, 5, 8])


@pytest.mark.parametrize(
    ("rule", "worth"),
    [
        (Discard(), [1, 0, 0, 0, 0, 0]),
        (Discard(max_age=3), [1, 0, 0, 0, 0, 0]),
        (ConstantWorth(), [1, 1, 1, 1, 1, 1]),
        (PolynomialWorth(), [1, 2**-0.5, 1 / 2, 5**-0.5, 6**-0.5, 1 / 3]),
        (PolynomialWorth(power=1.0), [1, 1 / 2, 1 / 4, 1 / 5, 1 / 6, 1 / 9]),
        (PolynomialWorth(power=0.0), [1, 1, 1, 1, 1, 1]),
        (HingeWorth(), [1, 1, 1, 1, 1 / 11, 1 / 41]),
        (HingeWorth(slope=0.5, grace=1), [1, 1, 1 / 2, 1 / 2.5, 1 / 3, 1 / 4.5]),
        (HingeWorth(slope=2.0, grace=0), [1, 1 / 3, 1 / 7, 1 / 9, 1 / 11, 1 / 17]),
        (AgeAndNovelty(), [1, 1, 1, 1, 1, 1]),  # the server, which knows the updates, weighs them
        (CachedModels(), [1, 1, 1, 1, 1, 1]),
    ],
)
def test_worth_by_hand(rule: Staleness, worth: list[float]) -> None:
    assert_allclose(rule.factors(AGES), worth, rtol=1e-15)


@pytest.mark.parametrize(
    "kind", [Discard, ConstantWorth, PolynomialWorth, HingeWorth, AgeAndNovelty]
)
@pytest.mark.parametrize("max_age", [0, 3, 8])
def test_answers_that_are_older_than_the_maximum_age_are_lost(
    kind: type[Staleness], max_age: int
) -> None:
    expected = np.where(max_age >= AGES, kind().factors(AGES), 0.0)
    assert_array_equal(kind(max_age=max_age).factors(AGES), expected)


@pytest.mark.parametrize("name", STALENESS)
def test_a_fresh_answer_counts_in_full_and_none_counts_for_more(name: str) -> None:
    factors = STALENESS[name]().factors(np.arange(50))
    assert factors.dtype == np.float64
    assert factors[0] == 1.0
    assert (np.diff(factors) <= 0).all()
    assert (factors >= 0).all()
    assert STALENESS[name]().factors(np.arange(0)).shape == (0,)


@pytest.mark.parametrize(
    "rule",
    [
        Discard(max_age=2),
        ConstantWorth(max_age=4),
        PolynomialWorth(power=0.3, max_age=7),
        HingeWorth(slope=3.0, grace=1),
        AgeAndNovelty(beta=0.2, max_age=5),
        CachedModels(lag_tolerance=2),
    ],
    ids=lambda rule: rule.name,
)
def test_a_rule_survives_toml(rule: Staleness) -> None:
    federation = Federation(staleness=rule)
    table = to_table(federation)
    assert table["staleness"]["name"] == rule.name
    assert from_table(Federation, table) == federation


def test_a_rule_has_a_name_in_toml() -> None:
    named = tomllib.loads('staleness = { name = "hinge", grace = 2, max_age = 9 }')
    assert from_table(Federation, named).staleness == HingeWorth(grace=2, max_age=9)
    assert from_table(Federation, {"staleness": "refl"}).staleness == AgeAndNovelty()
    with pytest.raises(ConfigError) as caught:
        from_table(Federation, {"staleness": {"name": "buffer"}})
    assert caught.value.key == ("staleness", "name")


def test_the_registry_holds_every_rule() -> None:
    assert list(STALENESS) == ["constant", "discard", "hinge", "polynomial", "refl", "safa"]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (Discard, {"max_age": -1}),
        (ConstantWorth, {"max_age": 1.5}),
        (PolynomialWorth, {"max_age": True}),
        (PolynomialWorth, {"power": -0.1}),
        (PolynomialWorth, {"power": np.nan}),
        (PolynomialWorth, {"power": np.inf}),
        (HingeWorth, {"slope": -1.0}),
        (HingeWorth, {"slope": np.inf}),
        (HingeWorth, {"grace": -1}),
        (HingeWorth, {"grace": 0.5}),
        (AgeAndNovelty, {"beta": 1.1}),
        (AgeAndNovelty, {"beta": -0.1}),
        (AgeAndNovelty, {"beta": np.nan}),
        (CachedModels, {"lag_tolerance": 0}),
        (CachedModels, {"max_age": 3}),
    ],
)
def test_settings_that_cannot_be(kind: type[Staleness], settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        kind(**settings)
    assert caught.value.key == tuple(settings)


@pytest.mark.parametrize("seed", range(20))
def test_a_quota_is_filled_by_preferred_answers_first(seed: int) -> None:
    """Against SAFA's rule, client by client."""
    rng = np.random.default_rng(seed)
    arrivals = rng.permutation(8)[: rng.integers(0, 9)]
    preferred, quota = rng.random(8) < 0.5, int(rng.integers(1, 6))
    picked: list[int] = []
    for first in (True, False):
        for client in arrivals.tolist():
            if preferred[client] == first and len(picked) < quota:
                picked.append(client)
    used = fill_quota(arrivals, preferred, quota)
    assert np.flatnonzero(used).tolist() == sorted(picked)
