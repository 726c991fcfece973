"""``[federation]``: slots, trigger and staleness; what is rounds, what is filled in or refused."""

import tomllib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmuster import REFL, SAFA, AllClients, Problem, Random
from fedmuster.core.config import from_table, to_table
from fedmuster.core.errors import ConfigError
from fedmuster.core.staleness import (
    AgeAndNovelty,
    CachedModels,
    ConstantWorth,
    Discard,
    HingeWorth,
    PolynomialWorth,
)
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Federation, Simulation
from fedmuster.federation.triggers import Buffer, Interval, Pace
from fedmuster.training.training import Training
from fedmuster.worlds import BSFLRates, EdgeNetwork
from fedmuster.worlds.heterogeneous import LatencyWorld

PROBLEM = Problem(num_clients=30, cohort_size=6)
RANDOM = Random()


def settled(policy: Any = RANDOM, **settings: Any) -> Federation:
    return Federation(**settings).settled(policy, PROBLEM)


@pytest.mark.parametrize("name", ["concurrency", "refill", "buffer"])
@pytest.mark.parametrize("value", [0, -1, 2.0, True, "3"])
def test_numbers_of_jobs_are_checked(name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Federation(**{name: value})
    assert caught.value.key == (name,)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"buffer": 2, "trigger": Pace()}, "buffer"),
        ({"rounds": True, "buffer": 2}, "rounds"),
        ({"rounds": True, "refill": 2}, "rounds"),
        ({"rounds": True, "trigger": Interval()}, "rounds"),
        ({"trigger": 5}, "trigger"),
        ({"staleness": 0.5}, "staleness"),
        ({"rounds": 1}, "rounds"),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Federation(**settings)
    assert caught.value.key == (key,)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"concurrency": 31, "buffer": 2}, "concurrency"),  # C > K
        ({"concurrency": 31}, "concurrency"),
        ({"concurrency": 5, "buffer": 6}, "buffer"),  # B > C
        ({"buffer": 7}, "buffer"),
        ({"concurrency": 5, "refill": 6}, "refill"),  # O > C
        ({"concurrency": 5, "trigger": Buffer(answers=6)}, "trigger"),
        ({"buffer": 2, "staleness": CachedModels()}, "staleness"),
    ],
)
def test_what_can_never_be_reached_is_refused(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settled(**settings)
    assert caught.value.key == ("federation", key)


def test_what_can_just_be_reached_is_not() -> None:
    assert settled(concurrency=30, refill=29, buffer=30).slots == 30
    assert settled(concurrency=5, trigger=Buffer(answers=5)).trigger == Buffer(answers=5)


@pytest.mark.parametrize("policy", [SAFA(), AllClients()])
def test_policies_that_need_rounds_are_refused_without(policy: Any) -> None:
    assert settled(policy).in_rounds
    assert settled(policy, concurrency=4, refill=4, buffer=4).in_rounds
    with pytest.raises(ConfigError) as caught:
        settled(policy, buffer=2)
    assert caught.value.key == ("federation",)


@pytest.mark.parametrize(
    ("settings", "slots"),
    [
        ({}, 6),
        ({"rounds": True}, 6),
        ({"rounds": True, "concurrency": 4}, 4),
        ({"concurrency": 4}, 4),
        ({"refill": 6}, 6),
        ({"refill": 6, "buffer": 6}, 6),
        ({"concurrency": 4, "refill": 4, "buffer": 4}, 4),
        ({"concurrency": 1, "buffer": 1}, 1),
        ({"concurrency": 1, "refill": 1}, 1),
    ],
)
def test_all_slots_at_once_and_all_answers_together_are_rounds(
    settings: dict[str, Any], slots: int
) -> None:
    federation = settled(**settings)
    assert federation.in_rounds
    assert (federation.slots, federation.refill, federation.buffer) == (slots, slots, slots)
    assert federation.trigger is None


@pytest.mark.parametrize(
    ("settings", "slots", "refill", "trigger"),
    [
        ({"buffer": 2}, 6, 1, Buffer(answers=2)),
        ({"buffer": 6}, 6, 1, Buffer(answers=6)),  # slots are refilled one by one
        ({"refill": 2}, 6, 2, Buffer(answers=6)),
        ({"refill": 6, "buffer": 5}, 6, 6, Buffer(answers=5)),
        ({"concurrency": 20, "refill": 3, "buffer": 5}, 20, 3, Buffer(answers=5)),
        ({"concurrency": 9, "trigger": Pace()}, 9, 1, Pace()),
        ({"refill": 6, "trigger": Interval(seconds=5.0)}, 6, 6, Interval(seconds=5.0)),
    ],
)
def test_everything_else_is_not_and_is_filled_in(
    settings: dict[str, Any], slots: int, refill: int, trigger: Any
) -> None:
    federation = settled(**settings)
    assert not federation.in_rounds
    assert (federation.slots, federation.refill, federation.trigger) == (slots, refill, trigger)
    assert federation.worth == PolynomialWorth()
    again = federation.settled(Random(), PROBLEM)
    assert again == federation  # what is filled in stays as it is


def test_the_policy_says_what_old_answers_are_worth_in_rounds_unless_the_settings_do() -> None:
    assert settled().worth == Discard()
    assert settled(REFL()).worth == AgeAndNovelty()
    assert settled(SAFA()).worth == CachedModels()
    assert settled(REFL(), staleness=ConstantWorth()).worth == ConstantWorth()
    assert settled(REFL(), buffer=2).worth == PolynomialWorth()
    assert settled(REFL(), buffer=2, staleness=AgeAndNovelty()).worth == AgeAndNovelty()


@pytest.mark.parametrize(
    ("common", "own", "whole"),
    [
        ({}, {}, {}),
        ({"concurrency": 9, "buffer": 3}, {}, {"concurrency": 9, "buffer": 3}),
        ({}, {"concurrency": 9, "buffer": 3}, {"concurrency": 9, "buffer": 3}),
        ({"concurrency": 9, "buffer": 3}, {"buffer": 5}, {"concurrency": 9, "buffer": 5}),
        ({"buffer": 3, "refill": 2}, {"trigger": Pace()}, {"trigger": Pace(), "refill": 2}),
        ({"trigger": Pace()}, {"buffer": 4}, {"buffer": 4}),
        ({"trigger": Pace()}, {"concurrency": 4}, {"trigger": Pace(), "concurrency": 4}),
        ({"trigger": Pace()}, {"trigger": Interval()}, {"trigger": Interval()}),
        (
            {"buffer": 3, "staleness": HingeWorth()},
            {"staleness": ConstantWorth()},
            {"buffer": 3, "staleness": ConstantWorth()},
        ),
        ({"concurrency": 9}, {"rounds": True}, {"concurrency": 9, "rounds": True}),
    ],
)
def test_a_layer_over_another(
    common: dict[str, Any], own: dict[str, Any], whole: dict[str, Any]
) -> None:
    assert Federation(**common).overridden_by(Federation(**own)) == Federation(**whole)


def test_cohorts_of_the_world_are_as_large_as_there_are_slots() -> None:
    world = BSFLRates(cohort_size=4)
    for same in (Federation(), Federation(buffer=2), Federation(concurrency=4)):
        assert same.resized(world) is world
    resized: Any = Federation(concurrency=9, buffer=2).resized(world)
    assert resized.cohort_size == 9
    edges = EdgeNetwork()
    assert Federation(concurrency=3, buffer=1).resized(edges) is edges


def test_in_rounds_edge_servers_ask_at_most_as_many_clients_as_all_have_slots() -> None:
    edges = EdgeNetwork(num_clients=20, num_edges=3)
    smaller = replace(edges, cohort_size=4)
    resized: Any = Federation(concurrency=2).resized(edges)
    assert resized.cohort_size == 6
    assert Federation(concurrency=7).resized(edges) is edges  # 21 slots for 20 clients
    assert Federation(concurrency=2).resized(smaller) is smaller
    row = Simulation("random", edges, seed=1, federation=Federation(concurrency=1)).step()
    assert 1 <= len(row.clients) <= 3


def test_the_table_of_an_experiment() -> None:
    table = tomllib.loads(
        """
        concurrency = 20
        refill = 2
        trigger = { name = "pace", bound = 7 }
        staleness = { name = "polynomial", power = 1.0 }
        """
    )
    federation = from_table(Federation, table)
    assert federation == Federation(
        concurrency=20, refill=2, trigger=Pace(bound=7), staleness=PolynomialWorth(power=1.0)
    )
    assert from_table(Federation, to_table(federation)) == federation
    with pytest.raises(ConfigError) as caught:
        from_table(Federation, {"buffers": 3})
    assert caught.value.key == ("buffers",)


@pytest.mark.parametrize("slots", [1, 4])
def test_equal_numbers_are_the_same_run_as_no_table(slots: int) -> None:
    world = BSFLRates(cohort_size=slots)
    plain: Simulation[Any] = Simulation("bsfl", world, seed=2)
    table = Federation(concurrency=slots, refill=slots, buffer=slots)
    spelled: Simulation[Any] = Simulation("bsfl", BSFLRates(), seed=2, federation=table)
    for _ in range(20):
        one, two = plain.step(), spelled.step()
        np.testing.assert_array_equal(one.clients, two.clients)
        assert (one.seconds, one.num_completed) == (two.seconds, two.num_completed)
        assert one.jobs is two.jobs is None
    assert spelled.checkpoint().selector == plain.checkpoint().selector


class TestRests:
    def test_it_is_a_setting_of_rounds_and_slots(self) -> None:
        assert settled().rest_after == settled(buffer=2).rest_after == 5
        assert settled(rest_after=0).in_rounds
        assert settled(rest_after=0).rest_after == 0
        simulation: Simulation[Any] = Simulation(
            "random", BSFLRates(), seed=1, federation=Federation(rest_after=7)
        )
        assert simulation.selector.liveness.rest_after == 7

    def test_toml_has_it_for_all_policies_and_for_one(self) -> None:
        text = """
            rounds = 2
            world = "bsfl-rates"
            federation = { rest_after = 3, buffer = 2 }
            policy = [
              { name = "bsfl" },
              { name = "oort", federation = { rest_after = 0 } },
              { name = "random", federation = "rounds" },
            ]
        """
        experiment = Experiment.from_table(tomllib.loads(text))
        found = {name: experiment.federation_of(name).rest_after for name in experiment.policies}
        assert found == {"bsfl": 3, "oort": 0, "random": 3}

    @pytest.mark.parametrize("wrong", [-1, 1001, 1.5, "5", True])
    def test_what_is_no_number_of_jobs_is_refused(self, wrong: Any) -> None:
        with pytest.raises(ConfigError) as caught:
            Federation(rest_after=wrong)
        assert caught.value.key == ("rest_after",)


@pytest.mark.parametrize(("worth", "rests"), [(Discard(), True), (ConstantWorth(), False)])
def test_a_late_answer_that_may_enter_a_model_is_no_silence(worth: Any, rests: bool) -> None:
    world = LatencyWorld(num_clients=12, cohort_size=6, deadline_seconds=1.0)
    federation = Federation(rounds=True, staleness=worth)
    simulation: Simulation[Any] = Simulation(
        "random", world, seed=2, training=Training(), federation=federation
    )
    resting = 0
    for _ in range(40):
        simulation.step()
        resting += int(simulation.selector.liveness.resting(simulation.selector.round).sum())
    assert (resting > 0) == rests
