"""Federations that cannot work are refused with the key and its line; odd policies hang nothing."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator
from tests.federation.row_values import all_jobs, play
from tests.federation.wanting import Wants

from fedmuster import POLICIES
from fedmuster.cli import main
from fedmuster.core.errors import ConfigError, DataError, FedmusterError, PolicyError
from fedmuster.core.state import NoState
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Federation, Simulation
from fedmuster.federation.triggers import Interval
from fedmuster.training.data import Digits
from fedmuster.training.training import Training
from fedmuster.worlds import BSFLRates, EdgeNetwork, LatencyWorld
from fedmuster.worlds.world import RoundDraw, WorldRun

SPEC = """\
rounds = 5
seeds = [1]

[world]
name = "bsfl-rates"
num_clients = 20

[federation]
concurrency = 5
buffer = 2

[[policy]]
name = "random"
"""

Bad = tuple[str, str, tuple[str, ...], int]
"""What is replaced by what, the key that is blamed, and its line."""
BUFFER = "buffer = 2"
BAD: dict[str, Bad] = {
    "more slots than clients": (
        "concurrency = 5",
        "concurrency = 21",
        ("federation", "concurrency"),
        9,
    ),
    "no slots": ("concurrency = 5", "concurrency = 0", ("federation", "concurrency"), 9),
    "half a slot": ("concurrency = 5", "concurrency = 2.5", ("federation", "concurrency"), 9),
    "a buffer above the slots": (BUFFER, "buffer = 6", ("federation", "buffer"), 10),
    "a refill above the slots": (BUFFER, "refill = 6", ("federation", "refill"), 10),
    "a trigger above the slots": (
        BUFFER,
        'trigger = { name = "buffer", answers = 6 }',
        ("federation", "trigger"),
        10,
    ),
    "an unknown key": (BUFFER, "bufer = 2", ("federation", "bufer"), 10),
    "an unknown trigger": (
        BUFFER,
        'trigger = { name = "bufer" }',
        ("federation", "trigger", "name"),
        10,
    ),
    "NaN seconds": (
        BUFFER,
        'trigger = { name = "interval", seconds = nan }',
        ("federation", "trigger", "seconds"),
        10,
    ),
    "negative seconds": (
        BUFFER,
        'trigger = { name = "interval", seconds = -1 }',
        ("federation", "trigger", "seconds"),
        10,
    ),
    "seconds in words": (
        BUFFER,
        'trigger = { name = "interval", seconds = "1" }',
        ("federation", "trigger", "seconds"),
        10,
    ),
    "an unknown setting of a trigger": (
        BUFFER,
        'trigger = { name = "pace", bond = 2 }',
        ("federation", "trigger", "bond"),
        10,
    ),
    "a bound of nothing": (
        BUFFER,
        'trigger = { name = "pace", bound = 0 }',
        ("federation", "trigger", "bound"),
        10,
    ),
    "a trigger that is no table": (BUFFER, "trigger = 3", ("federation", "trigger"), 10),
    "buffer and trigger": (
        BUFFER,
        'buffer = 2\ntrigger = { name = "pace" }',
        ("federation", "buffer"),
        10,
    ),
    "rounds and a buffer": (BUFFER, "buffer = 2\nrounds = true", ("federation", "rounds"), 11),
    "an unknown staleness rule": (
        BUFFER,
        'buffer = 2\nstaleness = { name = "polinomial" }',
        ("federation", "staleness", "name"),
        11,
    ),
    "a power that is no number": (
        BUFFER,
        'buffer = 2\nstaleness = { name = "polynomial", power = nan }',
        ("federation", "staleness", "power"),
        11,
    ),
    "a negative age": (
        BUFFER,
        'buffer = 2\nstaleness = { name = "constant", max_age = -1 }',
        ("federation", "staleness", "max_age"),
        11,
    ),
    "the cache of safa": (
        BUFFER,
        'buffer = 2\nstaleness = { name = "safa" }',
        ("federation", "staleness"),
        11,
    ),
    "regret": ("seeds = [1]", "regret = true", ("regret",), 2),
    "over-selection": (
        "num_clients = 20",
        "num_clients = 20\nover_selection = 1.5",
        ("federation",),
        9,
    ),
    "clients that move from round to round": (
        'name = "bsfl-rates"\nnum_clients = 20',
        'name = "edge-network"\nmobility = { name = "random-waypoint" }',
        ("federation",),
        8,
    ),
    "a policy's own unknown key": (
        'name = "random"',
        'name = "random"\nfederation = { bufer = 1 }',
        ("policy", "0", "federation", "bufer"),
        14,
    ),
    "a policy's own unknown word": (
        'name = "random"',
        'name = "random"\nfederation = "round"',
        ("policy", "0", "federation"),
        14,
    ),
}


def spec(tmp_path: Path, old: str, new: str) -> Path:
    assert SPEC.count(old) == 1
    path = tmp_path / "spec.toml"
    path.write_text(SPEC.replace(old, new))
    return path


@pytest.mark.parametrize("what", BAD)
def test_a_federation_that_cannot_work_is_refused_with_its_key(tmp_path: Path, what: str) -> None:
    old, new, key, line = BAD[what]
    with pytest.raises(ConfigError) as caught:
        Experiment.load(spec(tmp_path, old, new), rehearse=True)
    assert caught.value.key == key
    assert f"line {line}:" in str(caught.value)


@pytest.mark.parametrize("name", [n for n, p in POLICIES.items() if p().rounds_only is not None])
def test_a_policy_that_needs_rounds_is_refused_without(tmp_path: Path, name: str) -> None:
    assert {"safa", "fedcs", "all-clients"} <= {
        n for n, p in POLICIES.items() if p().rounds_only is not None
    }
    path = spec(tmp_path, 'name = "random"', f'name = "{name}"')
    with pytest.raises(ConfigError) as caught:
        Experiment.load(path, rehearse=True)
    assert caught.value.key == ("federation",)
    in_rounds = spec(tmp_path, 'name = "random"', f'name = "{name}"\nfederation = "rounds"')
    federation = Experiment.load(in_rounds).federation_of(name)
    assert federation.rounds


@pytest.mark.parametrize("what", ["a buffer above the slots", "an unknown trigger", "regret"])
def test_the_command_line_says_the_line_and_fails(tmp_path: Path, what: str) -> None:
    old, new, key, line = BAD[what]
    said = io.StringIO()
    arguments = ["fedmuster", "run", str(spec(tmp_path, old, new)), "--out", str(tmp_path / "run")]
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(said), redirect_stdout(said):
        patch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit) as stop:
            main()
    assert stop.value.code not in (0, None)
    text = "".join(said.getvalue().split())  # a terminal breaks lines
    assert f"line{line}:{'.'.join(key)}" in text
    assert not (tmp_path / "run").exists()


WORLD = LatencyWorld(num_clients=12, cohort_size=4)
SLOTS = Federation(concurrency=4, refill=1, buffer=2)


def start(policy: Wants, federation: Federation | None) -> Simulation[NoState]:
    return Simulation(policy, WORLD, seed=1, federation=federation)


@pytest.mark.parametrize(("quota", "answers"), [(None, 2), (1, 1), (3, 3), (4, 4)])
def test_a_quota_is_the_buffer_of_its_policy(quota: int | None, answers: int) -> None:
    rows = play(start(Wants(quota=quota), SLOTS), 20)
    assert {row.num_completed for row in rows} == {answers}


def test_a_quota_above_the_slots_is_the_policy_s_fault() -> None:
    with pytest.raises(PolicyError):
        start(Wants(quota=5), SLOTS).step()


def test_a_buffer_that_holds_fewer_answers_than_the_model_needs() -> None:
    training = Training(data=Digits(train_limit=120, test_limit=20), min_answers=3)
    for federation in (SLOTS, Federation(concurrency=4, trigger=Interval(seconds=1.0))):
        with pytest.raises(ConfigError) as refused:
            Simulation("random", WORLD, seed=1, federation=federation, training=training)
        assert refused.value.key == ("training", "min_answers")
    enough = Federation(concurrency=4, refill=1, buffer=3)
    row = Simulation("random", WORLD, seed=1, federation=enough, training=training).step()
    assert row.learning.num_aggregated == 3


def test_edge_servers_that_wait_for_several_answers_of_a_round_need_rounds() -> None:
    edges = EdgeNetwork(num_clients=12, num_edges=2, at_least=2)
    with pytest.raises(ConfigError) as refused:
        Simulation("random", edges, seed=1, federation=SLOTS)
    assert refused.value.key == ("federation",)


def test_an_edge_server_holds_a_slot_while_it_aggregates() -> None:
    ended = {}
    for seconds in (0.0, 2.0):
        edges = EdgeNetwork(num_clients=12, num_edges=2, edge_seconds=seconds)
        simulation: Simulation[Any] = Simulation("random", edges, seed=1, federation=SLOTS)
        ended[seconds] = all_jobs(play(simulation, 3)).ended_at_seconds.min()
    assert ended[2.0] == pytest.approx(ended[0.0] + 2.0)


@pytest.mark.parametrize("seconds", [-1.0, 0.0, float("nan")])
def test_a_world_in_which_answers_come_before_the_question(seconds: float) -> None:
    run: WorldRun = WORLD.start(1)

    def clients(round_number: int, rng: Generator) -> RoundDraw:
        return replace(run.clients(round_number, rng), latency_seconds=np.full(12, seconds))

    class Backwards:
        name, hierarchical, cohort_size = "backwards", False, 4

        def start(self, seed: int) -> WorldRun:
            return replace(run, clients=clients)

    world: Any = Backwards()
    with pytest.raises(DataError):
        Simulation("random", world, seed=1, federation=SLOTS).step()


def test_a_quota_counts_until_the_policy_chooses_again() -> None:
    slow = Federation(concurrency=4, refill=3, buffer=4)  # several aggregations for each decision
    rows = play(start(Wants(quota=1), slow), 20)
    assert {row.num_completed for row in rows} == {1}


def test_a_policy_s_deadline_ends_each_of_its_jobs() -> None:
    """In rounds it ends the round; without, a job that takes longer is given up then."""
    free, in_rounds = (play(start(Wants(deadline_seconds=0.8), f), 60) for f in (SLOTS, None))
    jobs = all_jobs(free)
    late = ~jobs.answered
    np.testing.assert_array_equal(jobs.ended_at_seconds[late], jobs.asked_at_seconds[late] + 0.8)
    assert (jobs.ended_at_seconds - jobs.asked_at_seconds).max() <= 0.8 + 1e-9
    assert late.any()
    assert max(row.seconds for row in in_rounds) == 0.8
    assert min(row.num_completed for row in in_rounds) < 4


@pytest.mark.parametrize("federation", [SLOTS, None], ids=["without rounds", "rounds"])
@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_deadline_that_is_none_is_the_policy_s_fault(
    federation: Federation | None, seconds: float
) -> None:
    simulation = start(Wants(deadline_seconds=seconds), federation)
    with pytest.raises(PolicyError):
        simulation.step()


@pytest.mark.parametrize("federation", [SLOTS, None], ids=["without rounds", "rounds"])
def test_a_quota_of_nothing_is_the_policy_s_fault(federation: Federation | None) -> None:
    simulation = start(Wants(quota=0), federation)
    with pytest.raises(PolicyError):
        simulation.step()


def test_a_world_with_fewer_clients_than_slots_is_refused_and_not_resized() -> None:
    with pytest.raises(FedmusterError) as caught:
        Simulation("random", replace(WORLD, num_clients=3), seed=1, federation=SLOTS)
    assert getattr(caught.value, "key", None) == ("federation", "concurrency")
    Simulation("random", BSFLRates(num_clients=4), seed=1, federation=SLOTS).step()
    edges = EdgeNetwork(num_clients=6, num_edges=2)
    with pytest.raises(ConfigError):
        Simulation("random", edges, seed=1, federation=Federation(concurrency=7, buffer=2))
