"""The settings are frozen, apart for tuning and judging, and equal in concurrency."""

from collections.abc import Callable

import numpy as np
import pytest

from claims.league.plan import QUICK_SETTINGS, TUNING_SEEDS, Plan, full, quick
from claims.league.rare_labels import RareLabels, SlowTail
from claims.league.settings import SETTINGS, VERSION, LeagueSetting, digest
from claims.racing.contestant import CONCURRENCY
from fedmuster.core.config import from_table, to_table
from fedmuster.core.errors import ConfigError
from fedmuster.training.data import Digits
from fedmuster.training.partition import split

FROZEN = {1: "a7b191d2883269c730b9854b8f37c3033019c75ce38f094cfac592df468e71cf"}
"""By version. A change of the settings, or of a default that they rest on, needs another version:
results of the old one would no longer be comparable."""


def test_the_settings_are_frozen() -> None:
    assert digest(SETTINGS) == FROZEN[VERSION]


def test_there_are_enough_settings_with_names_of_their_own() -> None:
    assert len(SETTINGS) >= 12
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)
    assert {setting.data.name for setting in SETTINGS} == {
        *("digits", "fashion-mnist", "mnist", "uci-har")
    }
    assert set(QUICK_SETTINGS) <= {setting.name for setting in SETTINGS}


def test_no_world_tunes_and_judges() -> None:
    judging, tuning = (
        {str(getattr(setting, use).world) for setting in SETTINGS} for use in ("judging", "tuning")
    )
    assert not judging & tuning


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_worlds_have_cohorts_of_ten_and_round_trip_toml(setting: LeagueSetting) -> None:
    for arena in (setting.judging, setting.tuning):
        assert arena.world.start(0).problem.cohort_size == CONCURRENCY
        assert from_table(type(arena.world), _without_name(to_table(arena.world))) == arena.world


def _without_name(table: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in table.items() if key != "name"}


@pytest.mark.parametrize("make", [full, quick])
def test_no_seed_tunes_and_judges(make: Callable[..., Plan]) -> None:
    plan = make()
    assert not set(plan.tuning_seeds) & set(plan.judging_seeds)
    with pytest.raises(ConfigError) as caught:
        make(first_seed=TUNING_SEEDS[0])
    assert caught.value.key == ("first_seed",)
    assert str(TUNING_SEEDS[0]) in str(caught.value)


def test_the_full_form_has_ten_judging_seeds() -> None:
    assert full().judging_seeds == tuple(range(10))
    assert full(first_seed=50, seeds=12).judging_seeds == tuple(range(50, 62))


def test_slow_clients_own_exactly_the_rare_labels() -> None:
    data = Digits().load(seed=0)
    world = SlowTail(num_clients=40, slow_share=0.25)
    for seed in (0, 1):
        shares = split(RareLabels(labels=(3, 8), slow_share=0.25), data, 40, seed=seed)
        slow = world.start(seed).typical_latency_seconds() > 0.5
        assert slow.sum() == 10
        owners = np.repeat(np.arange(40), shares.sizes)
        rare = np.isin(data.train_targets[shares.rows], (3, 8))
        np.testing.assert_array_equal(rare, slow[owners])
        np.testing.assert_array_equal(np.sort(shares.rows), np.arange(len(data.train_targets)))
        assert np.ptp(shares.sizes[slow]) <= 1
        assert np.ptp(shares.sizes[~slow]) <= 1


def test_which_clients_are_slow_depends_on_the_seed() -> None:
    first, second = (SlowTail().start(seed).typical_latency_seconds() for seed in (0, 1))
    assert (first != second).any()
    assert sorted(first) == sorted(second)


def test_too_few_samples_of_rare_labels_are_refused() -> None:
    data = Digits(train_limit=100).load(seed=0)
    with pytest.raises(ConfigError) as caught:
        split(RareLabels(labels=(3,), slow_share=0.5), data, 60, seed=0)
    assert caught.value.key == ("labels",)
