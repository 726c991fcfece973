"""In rounds that close early, clients may hold their slots until their late answers are there."""

import tomllib
from typing import Any

import numpy as np
import pytest
from tests.federation.listening import Listens, overheard
from tests.federation.row_values import assert_same_row, play
from tests.federation.test_hearing_late import DATA, TRAINING

from fedmuster import SAFA, AllClients, Exploring, Genie, Lifted, Problem, Random
from fedmuster.core.config import from_table, to_table
from fedmuster.core.errors import ConfigError
from fedmuster.core.staleness import (
    AgeAndNovelty,
    CachedModels,
    Discard,
    PolynomialWorth,
    Staleness,
)
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Federation, Simulation
from fedmuster.training.models import Logistic
from fedmuster.training.training import Training
from fedmuster.worlds import LatencyWorld

WORLD = LatencyWorld(num_clients=60, cohort_size=10)
MANY = Training(data=DATA, model=Logistic())
PROBLEM = Problem(num_clients=30, cohort_size=6)


def at_work(
    holds: bool | None,
    policy: Any,
    *,
    world: LatencyWorld = WORLD,
    staleness: Staleness | None = None,
    training: Training | None = MANY,
    rounds: int = 60,
) -> list[tuple[int, int]]:
    """(clients out, clients asked) at the start of each round, by the clock of the world.

    A client that never answers is out until the deadline.
    """
    staleness = PolynomialWorth() if staleness is None else staleness
    federation = Federation(rounds=True, staleness=staleness, late_hold_slots=holds)
    simulation = Simulation(policy, world, seed=3, training=training, federation=federation)
    deadline = simulation.world.time.deadline_seconds
    ends: list[float] = []
    found = []
    for number in range(1, rounds + 1):
        now = simulation.elapsed_seconds
        with overheard(simulation) as heard:
            simulation.step()
        ((selection, _),) = heard
        latency = simulation.world.realise(number, now_seconds=now).latency_seconds
        out = [end for end in ends if end > now]
        latency = np.where(np.isfinite(latency), latency, deadline)
        ends = out + (now + latency[selection.clients]).tolist()
        found.append((len(out), len(selection.clients)))
    return found


CHEATS = [Listens(quota=1), Listens(quota=None, deadline_seconds=0.05), Listens(quota=3)]


@pytest.mark.parametrize("policy", CHEATS)
@pytest.mark.parametrize("over_selection", [1.0, 1.2])
def test_no_policy_has_more_clients_at_work_than_slots(
    policy: Listens, over_selection: float
) -> None:
    slots = round(10 * over_selection)
    world = LatencyWorld(num_clients=60, cohort_size=10, over_selection=over_selection)
    found = at_work(True, policy, world=world)
    for out, asked in found:
        if out < slots:
            assert asked == slots - out
        else:  # one client, so that a round has somebody; and nobody while that one is out, too
            assert (out, asked) in ((slots, 1), (slots + 1, 0))
    assert max(out + asked for out, asked in at_work(False, policy, world=world)) > 1.3 * slots


@pytest.mark.parametrize("training", [MANY, None])
def test_clients_hold_slots_whatever_their_late_answers_are_worth(
    training: Training | None,
) -> None:
    for policy in CHEATS:
        found = at_work(True, policy, staleness=Discard(), training=training)
        assert all(asked == (max(1, 10 - out) if out < 11 else 0) for out, asked in found)
        free = at_work(False, policy, staleness=Discard(), training=training)
        assert {asked for _, asked in free} == {10}


def test_without_the_deadline_of_its_own_a_policy_never_asks_nobody() -> None:
    assert all(asked > 0 for _, asked in at_work(True, Listens(quota=1)))
    nobody = [out for out, asked in at_work(True, CHEATS[1]) if asked == 0]
    assert set(nobody) == {11}


@pytest.mark.parametrize("dropout", [0.3, 0.9])
def test_clients_that_drop_out_hold_their_slots_until_the_deadline(dropout: float) -> None:
    """No server can tell them from late ones."""
    world = LatencyWorld(num_clients=60, cohort_size=10, dropout=dropout, deadline_seconds=2.0)
    found = at_work(True, CHEATS[0], world=world, rounds=120)
    assert all(asked == (max(1, 10 - out) if out < 11 else 0) for out, asked in found)
    assert max(out for out, _ in found) >= 9


def test_an_answer_that_waits_for_fresh_ones_holds_no_slot() -> None:
    """REFL's rule keeps answers that have come until a round has fresh ones."""
    found = at_work(True, CHEATS[1], staleness=AgeAndNovelty())
    assert all(asked == max(1, 10 - out) for out, asked in found if out < 11)


def test_regret_is_against_cohorts_that_could_be_asked() -> None:
    world = LatencyWorld(num_clients=60, cohort_size=10, deadline_seconds=1.0)
    federation = Federation(rounds=True, staleness=PolynomialWorth(), late_hold_slots=True)
    simulation: Simulation[Any] = Simulation(
        "genie", world, seed=3, training=MANY, federation=federation, genie=Genie()
    )
    rows = play(simulation, 12)
    assert min(len(row.clients) for row in rows) < 10
    np.testing.assert_allclose([row.regret for row in rows], 0.0, atol=1e-12)


def test_a_policy_around_another_says_what_that_one_says() -> None:
    for holds in (False, True):
        assert Exploring(policy=Listens(holds=holds)).late_hold_slots is holds
        assert Lifted(policy=Listens(holds=holds)).late_hold_slots is holds
    assert Lifted(policy=Listens()).hears_late
    assert not Lifted().hears_late


def test_clients_whose_work_safa_gives_up_hold_no_slot() -> None:
    federation = Federation(rounds=True, staleness=CachedModels(), late_hold_slots=True)
    simulation = Simulation(Listens(), WORLD, seed=3, training=MANY, federation=federation)
    assert simulation.trainer is not None
    for _ in range(40):
        late = simulation.trainer.late
        assert late is not None
        out = int(np.count_nonzero(late.arrives_at_seconds > simulation.elapsed_seconds))
        assert len(simulation.step().clients) == max(1, 10 - out)


def test_the_setting_counts_before_the_policy() -> None:
    for holds in (False, True):
        policy = Listens(quota=1, holds=holds)
        assert at_work(None, policy, rounds=8) == at_work(holds, Listens(quota=1), rounds=8)
        assert at_work(not holds, policy, rounds=8) == at_work(not holds, CHEATS[0], rounds=8)


def test_where_nobody_is_late_it_changes_nothing() -> None:
    rows = [
        play(
            Simulation(
                "oort",
                LatencyWorld(num_clients=12, cohort_size=5),
                seed=2,
                training=TRAINING,
                federation=Federation(rounds=True, late_hold_slots=holds),
            ),
            6,
        )
        for holds in (None, True)
    ]
    for one, two in zip(*rows, strict=True):
        assert_same_row(one, two)


def settled(policy: Any = None, **settings: Any) -> Federation:
    return Federation(**settings).settled(Random() if policy is None else policy, PROBLEM)


def test_what_is_not_set_is_as_the_policy_says() -> None:
    for settings in ({}, {"rounds": True}, {"concurrency": 4}):
        assert settled(**settings).late_hold_slots is False
        assert settled(Listens(holds=True), **settings).late_hold_slots is True
        assert settled(late_hold_slots=True, **settings).late_hold_slots is True
        assert settled(Listens(holds=True), late_hold_slots=False, **settings).late_hold_slots is (
            False
        )
    assert settled(Listens(holds=True), buffer=2).late_hold_slots is None


@pytest.mark.parametrize("policy", [Random(), Listens(holds=True), "fedbuff"])
@pytest.mark.parametrize("holds", [False, True])
def test_without_rounds_it_is_refused(policy: Any, holds: bool) -> None:
    with pytest.raises(ConfigError) as caught:
        Simulation(policy, WORLD, seed=1, federation=Federation(buffer=2, late_hold_slots=holds))
    assert caught.value.key == ("federation", "late_hold_slots")


@pytest.mark.parametrize("policy", [SAFA(), AllClients()])
def test_policies_that_ask_everyone_leave_no_slots_to_hold(policy: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        settled(policy, late_hold_slots=True)
    assert caught.value.key == ("federation", "late_hold_slots")
    assert not settled(policy, late_hold_slots=False).late_hold_slots


@pytest.mark.parametrize("value", [1, "yes", 0.5])
def test_it_is_a_boolean(value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        from_table(Federation, {"late_hold_slots": value})
    assert caught.value.key == ("late_hold_slots",)


@pytest.mark.parametrize("common", [None, False, True])
@pytest.mark.parametrize("own", [None, False, True])
def test_a_layer_over_another(common: bool | None, own: bool | None) -> None:
    below, above = Federation(late_hold_slots=common), Federation(late_hold_slots=own)
    expected = common if own is None else own
    assert below.overridden_by(above).late_hold_slots is expected
    assert from_table(Federation, to_table(below)) == below


def test_the_tables_of_a_spec() -> None:
    experiment = Experiment.from_table(
        {
            "rounds": 3,
            "world": "latency",
            "federation": {"late_hold_slots": True},
            "policy": [
                {"name": "refl"},
                {"name": "oort", "federation": {"late_hold_slots": False}},
                {"name": "random", "federation": "rounds"},
            ],
        }
    )
    again = Experiment.from_table(tomllib.loads(experiment.to_toml()))
    for each in (experiment, again):
        found = [each.federation_of(label).late_hold_slots for label in each.policies]
        assert found == [True, False, None]
