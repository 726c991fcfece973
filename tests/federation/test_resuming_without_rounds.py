"""A run without rounds goes on from any checkpoint bit for bit, and what it keeps is bounded."""

import itertools
import weakref
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.federation.row_values import all_jobs, assert_same_row, loop_of, play
from tests.federation.wanting import Wants
from tests.training.toy_federation import CLIENTS, ToyEngine
from tests.training.toy_training import ToyTraining

from fedmuster import Random
from fedmuster.core import state as states
from fedmuster.core.errors import StateError
from fedmuster.core.policy import Policy
from fedmuster.core.staleness import (
    AgeAndNovelty,
    ConstantWorth,
    Discard,
    HingeWorth,
    PolynomialWorth,
    Staleness,
)
from fedmuster.federation import Federation, Horizon, Simulation, Watch
from fedmuster.federation.triggers import Interval, Pace
from fedmuster.privacy.budget import Privacy, Protection
from fedmuster.privacy.schedules import Uniform
from fedmuster.training.aggregation import FedAdam, FedMedian, ModelMixing
from fedmuster.training.data.built_in import Digits
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import Logistic
from fedmuster.training.training import Training
from fedmuster.worlds import (
    Bernoulli,
    BSFLGroups,
    BSFLRates,
    DeviceWorld,
    EdgeNetwork,
    LatencyWorld,
    LTECell,
    Markov,
    OnOff,
)
from fedmuster.worlds.layout import Alike
from fedmuster.worlds.world import World

DATA = Digits(train_limit=240, test_limit=40)
TRAINING = Training(data=DATA, model=Logistic(), evaluate_every=3)
FEW = Federation(concurrency=5, buffer=2)
EDGES = EdgeNetwork(num_clients=14, num_edges=2)
SLEEPY = OnOff(share=0.4, intervals_per_period=30.0, period_seconds=4000.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """What is played, and for how many aggregations."""

    policy: Policy[Any] | str = "random"
    world: World = field(default_factory=lambda: BSFLRates(num_clients=20))
    federation: Federation = FEW
    training: Any = None
    watch: Watch | None = None
    count: int = 12

    def start(self) -> Simulation[Any]:
        return Simulation(
            self.policy,
            self.world,
            seed=5,
            federation=self.federation,
            training=self.training,
            watch=self.watch,
            horizon=Horizon(rounds=10_000),
        )


def _with(staleness: Staleness) -> Federation:
    return replace(FEW, staleness=staleness)


CASES = {
    "plain": Played(policy="bsfl", count=25),
    "every answer": Played(policy="cs-ucb", federation=Federation(concurrency=4, buffer=1)),
    "refill four": Played(federation=Federation(concurrency=5, buffer=1, refill=4), count=20),
    "refill all": Played(policy="oort", federation=Federation(concurrency=5, refill=5, buffer=2)),
    "interval": Played(federation=Federation(concurrency=5, trigger=Interval(seconds=0.7))),
    "pace": Played(policy="oort", federation=Federation(concurrency=5, trigger=Pace()), count=20),
    "pace, bound 2": Played(
        training=TRAINING, federation=Federation(concurrency=6, trigger=Pace(bound=2))
    ),
    "watched": Played(policy="oort", watch=Watch(every=2, clients=4)),
    "dropout": Played(
        world=BSFLGroups(num_clients=20, dropout=0.3, deadline_seconds=0.6), count=20
    ),
    "bernoulli": Played(
        world=LatencyWorld(num_clients=12, cohort_size=3, availability=Bernoulli(probability=0.3))
    ),
    "markov": Played(
        policy="refl",
        world=LatencyWorld(num_clients=12, cohort_size=3, availability=Markov(up=0.2, down=0.4)),
        count=20,
    ),
    "devices on the clock": Played(
        world=DeviceWorld(num_clients=10, cohort_size=3, availability=SLEEPY), count=20
    ),
    "queueing uploads": Played(
        world=LTECell(num_clients=12, deadline_seconds=250.0, data=Alike()),
        training=TRAINING,
        count=20,
    ),
    "a deadline of the policy's own": Played(
        policy=Wants(deadline_seconds=250.0), world=LTECell(num_clients=12, data=Alike()), count=20
    ),
    "fedbuff": Played(policy="oort", training=TRAINING),
    "hinge": Played(training=TRAINING, federation=_with(HingeWorth(grace=1, max_age=4))),
    "refl's staleness": Played(training=TRAINING, federation=_with(AgeAndNovelty())),
    "fedasync": Played(
        training=replace(TRAINING, server=ModelMixing()), federation=_with(PolynomialWorth())
    ),
    "fedadam": Played(
        training=replace(TRAINING, server=FedAdam()), federation=_with(ConstantWorth(max_age=3))
    ),
    "median": Played(training=replace(TRAINING, server=FedMedian()), federation=_with(Discard())),
    "momentum and gain": Played(
        policy="fedsuv",
        training=replace(TRAINING, local=LocalSGD(momentum=0.9, measure_gain=True)),
        count=8,
    ),
    "pisces": Played(
        policy="pisces",
        training=TRAINING,
        federation=Federation(concurrency=5, trigger=Pace(), staleness=PolynomialWorth()),
        count=20,
    ),
    "edges": Played(policy="cocs", world=EDGES, federation=Federation(concurrency=4, buffer=2)),
    "edges that train": Played(
        policy="random",
        world=replace(EDGES, dropout=0.1),
        training=replace(TRAINING, global_every=2),
        federation=Federation(concurrency=6, buffer=3),
        count=20,
    ),
    "edges with updates that are not finite": Played(
        world=replace(EDGES, num_clients=CLIENTS, budget=50.0),
        training=ToyTraining(engine=ToyEngine(poisoned=[0, 1, 2])),
        federation=Federation(concurrency=3, buffer=3, rest_after=0),  # or they would rest
        count=20,
    ),
    "edges at their own pace": Played(
        policy="random",
        world=EDGES,
        training=TRAINING,
        federation=Federation(concurrency=6, trigger=Interval(seconds=2.0)),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_aggregation_can_be_the_last_before_a_crash(case: Played) -> None:
    whole, resumed = case.start(), case.start()
    for _ in range(case.count):
        assert_same_row(whole.step(), resumed.step())
        checkpoint = resumed.checkpoint()
        resumed = case.start()
        resumed.load(checkpoint, source="here")
    assert not whole.finished
    if whole.trainer is not None and resumed.trainer is not None:
        for one, two in zip(whole.trainer.edge_servers, resumed.trainer.edge_servers, strict=True):
            np.testing.assert_array_equal(one.model, two.model)


@pytest.mark.parametrize("name", ["fedbuff", "edges that train", "queueing uploads", "watched"])
def test_a_checkpoint_that_is_loaded_is_saved_again_as_it_was(name: str) -> None:
    simulation, again = CASES[name].start(), CASES[name].start()
    play(simulation, 7)
    again.load(simulation.checkpoint(), source="here")
    first, second = (loop_of(each.checkpoint()) for each in (simulation, again))
    assert first.keys() == second.keys()
    for key, values in first.items():
        np.testing.assert_array_equal(values, second[key], err_msg=key)


def test_answers_that_wait_at_another_edge_are_in_the_checkpoint() -> None:
    """Else resuming at edges would be tested with nothing to lose."""
    simulation = CASES["edges that train"].start()
    waited = [
        loop_of(simulation.checkpoint())["kept.waits"].sum()
        for _ in play(simulation, 1)
        for _ in range(20)
        if play(simulation, 1)
    ]
    assert max(waited) > 0


@pytest.mark.parametrize("in_rounds", [True, False])
def test_rounds_and_no_rounds_do_not_go_on_from_each_other(in_rounds: bool) -> None:
    case = CASES["plain"]
    other = replace(case, federation=Federation()).start()
    one, two = (other, case.start()) if in_rounds else (case.start(), other)
    one.step()
    with pytest.raises(StateError):
        two.load(one.checkpoint(), source="here")


def test_a_checkpoint_of_another_version_is_refused() -> None:
    simulation = CASES["plain"].start()
    simulation.step()
    checkpoint = simulation.checkpoint()
    assert checkpoint.loop is not None
    arrays, meta = states.from_bytes(checkpoint.loop, source="here")
    del arrays["_since"]
    other = checkpoint._replace(loop=states.to_bytes(arrays, meta))
    with pytest.raises(StateError):
        CASES["plain"].start().load(other, source="here")


def test_seeded_noise_goes_on_bit_for_bit(tmp_path: Path) -> None:
    case = replace(CASES["fedbuff"], policy="pause")

    def start(name: str) -> Simulation[Any]:
        privacy = Privacy(epsilon=20.0, schedule=Uniform(participations=6))
        protection = Protection(privacy=privacy, ledger=tmp_path / f"{name}.sqlite", run=name)
        return Simulation(
            case.policy,
            case.world,
            seed=5,
            federation=case.federation,
            training=case.training,
            protection=protection,
        )

    whole, resumed = start("whole"), start("resumed")
    for _ in range(15):
        assert_same_row(whole.step(), resumed.step())
        checkpoint = resumed.checkpoint()
        resumed.step()  # is lost, but for its debits
        resumed.close()
        resumed = start("resumed")
        resumed.load(checkpoint, source="here")
    assert whole.budget is not None
    assert resumed.budget is not None
    np.testing.assert_array_equal(whole.budget.left, resumed.budget.left)
    whole.close()
    resumed.close()


def models_alive(simulation: Simulation[Any], found: dict[int, "weakref.ref[Any]"]) -> int:
    """How many of the models that the server ever had are in memory."""
    assert simulation.trainer is not None
    for server in simulation.trainer.edge_servers:
        found[id(server.model)] = weakref.ref(server.model)
    return len({id(ref()) for ref in found.values() if ref() is not None})


@pytest.mark.parametrize(
    ("world", "federation", "training"),
    [
        (BSFLRates(num_clients=20), Federation(concurrency=5, buffer=1), TRAINING),
        (
            LTECell(num_clients=CLIENTS, deadline_seconds=350.0, data=Alike()),
            Federation(concurrency=5, buffer=1),
            ToyTraining(),
        ),
        (BSFLRates(num_clients=20, dropout=0.2, deadline_seconds=2.0), FEW, TRAINING),
        (EDGES, Federation(concurrency=4, buffer=2), TRAINING),
    ],
    ids=["answers", "uploads that miss the deadline", "dropout", "edges"],
)
def test_no_more_models_are_kept_than_jobs_are_open(
    world: World, federation: Federation, training: Any
) -> None:
    simulation: Simulation[Any] = Simulation(
        Random(), world, seed=1, federation=federation, training=training
    )
    found: dict[int, weakref.ref[Any]] = {}
    failed = 0
    for _ in range(60):
        row = simulation.step()
        assert row.jobs is not None
        failed += int(np.count_nonzero(~row.jobs.answered))
        open_jobs = len(simulation.selector.tickets)
        waiting = int(loop_of(simulation.checkpoint())["kept.waits"].sum())
        servers = world.start(1).problem.num_servers
        assert models_alive(simulation, found) <= open_jobs + waiting + servers
    deadline = getattr(world, "deadline_seconds", None)
    assert (failed > 0) == (deadline is not None)


def test_a_checkpoint_does_not_grow() -> None:
    simulation = CASES["plain"].start()

    def sizes(count: int) -> list[int]:
        found = []
        for _ in range(count):
            simulation.step()
            image = simulation.checkpoint()
            found.append(sum(len(part) for part in image if isinstance(part, bytes)))
        return found

    first = sizes(200)
    for _ in range(1600):
        simulation.step()
    assert simulation.version == 1800
    assert max(sizes(200)) <= 1.05 * max(first)
    assert simulation.version == 2000


def test_jobs_tell_of_each_client_that_was_asked_once() -> None:
    case = CASES["dropout"]
    simulation = case.start()
    jobs = all_jobs(play(simulation, 200))
    by_client: dict[int, list[tuple[float, float]]] = {}
    for client, asked, ended in zip(
        jobs.client.tolist(),
        jobs.asked_at_seconds.tolist(),
        jobs.ended_at_seconds.tolist(),
        strict=True,
    ):
        by_client.setdefault(client, []).append((asked, ended))
    for spans in by_client.values():
        spans.sort()
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
    assert len(set(zip(jobs.client.tolist(), jobs.decision.tolist(), strict=True))) == len(
        jobs.client
    )
