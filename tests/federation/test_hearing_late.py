"""What a policy hears of clients that miss the end of their round."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.federation.listening import Listens, overheard
from tests.federation.row_values import assert_same_row, play
from tests.training.toy_federation import CLIENTS, ToyEngine
from tests.training.toy_training import ToyTraining

from fedmuster.core.errors import StateError
from fedmuster.core.staleness import (
    AgeAndNovelty,
    CachedModels,
    ConstantWorth,
    Discard,
    PolynomialWorth,
    Staleness,
)
from fedmuster.federation import Federation, Simulation
from fedmuster.privacy.budget import Privacy, Protection
from fedmuster.training.data.built_in import Digits
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import Logistic
from fedmuster.training.training import Training
from fedmuster.worlds import LatencyWorld

DATA = Digits(train_limit=240, test_limit=40)
TRAINING = Training(data=DATA, model=Logistic(), local=LocalSGD(epochs=1))
WORLD = LatencyWorld(num_clients=12, cohort_size=5)
LOSSY = LatencyWorld(num_clients=12, cohort_size=5, dropout=0.3, deadline_seconds=8.0)
ROUNDS = 25


def started(
    staleness: Staleness | None = PolynomialWorth(),
    *,
    policy: Any = None,
    world: Any = WORLD,
    training: Any = TRAINING,
    holds: bool | None = None,
    **more: Any,
) -> Simulation[Any]:
    federation = Federation(rounds=True, staleness=staleness, late_hold_slots=holds)
    policy = Listens() if policy is None else policy
    return Simulation(policy, world, seed=4, training=training, federation=federation, **more)


@dataclass
class Invitation:
    """The model of an invitation that was not answered in its round."""

    round: int
    arrives_at_seconds: float
    latency_seconds: float


def check_against_a_model(simulation: Simulation[Any], staleness: Staleness, rounds: int) -> int:
    """Play, and compare each ``late`` with who is out in plain Python; the number of late answers.

    Without SAFA, whose server gives up clients on its own. Where late clients hold their slots, a
    client that never answers is given up at the deadline, else when its round is over.
    """
    holds, deadline = simulation.settings.late_hold_slots, simulation.world.time.deadline_seconds
    out: dict[int, Invitation] = {}
    came = 0
    for number in range(1, rounds + 1):
        began = simulation.elapsed_seconds
        with overheard(simulation) as heard:
            simulation.step()
        ((selection, feedback),) = heard
        now, late = simulation.elapsed_seconds, feedback.late
        assert late is not None
        expected: dict[int, float] = {}
        for client, told in list(out.items()):
            silent = told.latency_seconds == np.inf
            if told.arrives_at_seconds <= now or (silent and not holds):
                age = np.array([number - told.round])
                lost = silent or staleness.factors(age)[0] == 0
                expected[client] = np.inf if lost else told.latency_seconds
                del out[client]
        found = dict(zip(late.clients.tolist(), late.latency_seconds.tolist(), strict=True))
        assert found == expected
        np.testing.assert_array_equal(late.answered, np.isfinite(late.latency_seconds))
        for values in late.signals.values():
            np.testing.assert_array_equal(np.isfinite(values), late.answered)
        came += int(late.answered.sum())
        drawn = simulation.world.realise(number, now_seconds=began)
        latency = drawn.latency_seconds[selection.clients]
        for client, done, seconds in zip(
            selection.clients.tolist(), feedback.answered.tolist(), latency.tolist(), strict=True
        ):
            if not done:
                assert client not in out
                arrives = began + (deadline if seconds == np.inf else seconds)
                out[client] = Invitation(number, arrives, seconds)
        assert simulation.selector.unanswered is not None
        owed = dict.fromkeys(out, 1)
        counts = simulation.selector.unanswered
        assert {k: int(counts[k]) for k in np.flatnonzero(counts).tolist()} == owed
    return came


@pytest.mark.parametrize("world", [WORLD, LOSSY])
@pytest.mark.parametrize(
    "staleness", [PolynomialWorth(), PolynomialWorth(max_age=1), AgeAndNovelty(max_age=2)]
)
@pytest.mark.parametrize("quota", [1, 3])
@pytest.mark.parametrize("holds", [False, True])
def test_each_missed_round_is_told_once_and_when_it_is_known(
    staleness: Staleness, world: LatencyWorld, quota: int, holds: bool
) -> None:
    simulation = started(staleness, world=world, policy=Listens(quota=quota), holds=holds)
    assert check_against_a_model(simulation, staleness, ROUNDS) > 0
    state = simulation.selector.state
    assert simulation.selector.unanswered is not None
    told = state.fresh + state.late + state.given_up + simulation.selector.unanswered
    np.testing.assert_array_equal(told, state.asked)
    assert (state.given_up.sum() > 0) == (world is LOSSY or staleness.max_age is not None)


def test_a_deadline_leaves_late_answers_too() -> None:
    world = LatencyWorld(num_clients=12, cohort_size=5, deadline_seconds=1.0)
    simulation = started(world=world, policy=Listens(quota=None))
    assert check_against_a_model(simulation, PolynomialWorth(), ROUNDS) > 0


def test_over_selection_leaves_late_answers_too() -> None:
    world = LatencyWorld(num_clients=12, cohort_size=4, over_selection=1.5)
    simulation = started(world=world, policy=Listens(quota=None))
    assert check_against_a_model(simulation, PolynomialWorth(), ROUNDS) > 0


def test_late_answers_arrive_with_the_updates_that_enter_the_model() -> None:
    simulation = started()
    for _ in range(ROUNDS):
        with overheard(simulation) as heard:
            row = simulation.step()
        ((_, feedback),) = heard
        assert feedback.late is not None
        here = np.count_nonzero(feedback.answered) + np.count_nonzero(feedback.late.answered)
        assert row.learning.num_aggregated == here


def test_late_signals_are_those_of_the_model_that_the_client_was_asked_for() -> None:
    simulation = started()
    trainer = simulation.trainer
    assert trainer is not None
    asked: dict[int, tuple[int, Any]] = {}
    compared = 0
    for number in range(1, ROUNDS + 1):
        before = trainer.parameters
        with overheard(simulation) as heard:
            simulation.step()
        ((selection, feedback),) = heard
        late = feedback.late
        assert late is not None
        assert not len(late.clients) or late.signals.keys() == feedback.signals.keys()
        for row, client in enumerate(late.clients.tolist()):
            then, model = asked.pop(client)
            alone = trainer.engine.train(model, np.array([client]), then)
            for name, values in alone.signals.items():
                assert late.signals[name][row] == values[0]
            compared += 1
        missed = selection.clients[~feedback.answered].tolist()
        asked |= dict.fromkeys(missed, (number, before))
    assert compared > 10


def test_safa_gives_up_clients_that_are_too_far_behind() -> None:
    staleness = CachedModels(lag_tolerance=1)
    simulation = started(staleness, policy=Listens(quota=1))
    trainer = simulation.trainer
    assert trainer is not None
    gone = 0
    for _ in range(60):
        assert trainer.late is not None
        before = set(trainer.late.clients.tolist())
        with overheard(simulation) as heard:
            row = simulation.step()
        ((selection, feedback),) = heard
        late = feedback.late
        assert late is not None
        after = set(trainer.late.clients.tolist()) - set(selection.clients.tolist())
        assert set(late.clients.tolist()) == before - after
        fresh = np.count_nonzero(feedback.answered)
        assert row.learning.num_aggregated == fresh + np.count_nonzero(late.answered)
        gone += int(np.count_nonzero(~late.answered))
    assert gone > 0


def test_an_update_that_is_not_finite_is_given_up_with_its_round() -> None:
    diverging = ToyTraining(engine=ToyEngine(poisoned=(0, 1, 2)))
    world = LatencyWorld(num_clients=CLIENTS, cohort_size=5)
    simulation = started(world=world, training=diverging, policy=Listens(quota=1))
    play(simulation, 12)
    state, counts = simulation.selector.state, simulation.selector.unanswered
    assert counts is not None
    np.testing.assert_array_equal(state.fresh + state.late + state.given_up + counts, state.asked)
    assert (state.late + state.fresh)[:3].tolist() == [0, 0, 0]
    assert (state.given_up[:3] > 0).all()


@pytest.mark.parametrize(
    ("staleness", "training"), [(Discard(), TRAINING), (ConstantWorth(), None)]
)
def test_where_nobody_waits_for_late_answers_nothing_is_said(
    staleness: Staleness, training: Any
) -> None:
    simulation = started(staleness, training=training)
    play(simulation, 5)
    state = simulation.selector.state
    assert (state.told, state.late.sum(), state.given_up.sum()) == (0, 0, 0)
    assert simulation.checkpoint().loop is None


def test_without_rounds_nothing_is_late() -> None:
    policy, settings = Listens(quota=None), Federation(buffer=2)
    simulation = Simulation(policy, WORLD, seed=4, training=TRAINING, federation=settings)
    play(simulation, 5)
    assert simulation.selector.state.told == 0


def test_other_policies_hear_nothing_and_keep_nothing() -> None:
    simulation = started(policy="random", world=LOSSY)
    with overheard(simulation) as heard:
        play(simulation, 5)
    assert {feedback.late for _, feedback in heard} == {None}
    assert simulation.selector.unanswered is None
    assert simulation.checkpoint().loop is None


def test_where_privacy_is_kept_late_answers_tell_no_more_than_fresh_ones(tmp_path: Path) -> None:
    protection = Protection(privacy=Privacy(), ledger=tmp_path / "ledger.sqlite", run="run")
    simulation = started(protection=protection)
    with overheard(simulation) as heard:
        play(simulation, 8)
    simulation.close()
    news = [feedback.late for _, feedback in heard if feedback.late is not None]
    assert sum(np.count_nonzero(late.answered) for late in news) > 0
    assert all(not late.signals for late in news)


@pytest.mark.parametrize("staleness", [PolynomialWorth(max_age=2), CachedModels()])
@pytest.mark.parametrize("holds", [False, True])
def test_a_run_goes_on_from_every_checkpoint(staleness: Staleness, holds: bool) -> None:
    policy = Listens(holds=holds)
    whole = started(staleness, policy=policy, world=LOSSY)
    for _ in range(12):
        resumed = started(staleness, policy=policy, world=LOSSY)
        resumed.load(whole.checkpoint(), source="here")
        assert resumed.checkpoint() == whole.checkpoint()
        assert_same_row(whole.step(), resumed.step())
        assert resumed.checkpoint() == whole.checkpoint()
    assert whole.selector.state.late.sum() > 0


def test_a_checkpoint_of_a_policy_that_does_not_hear_is_refused() -> None:
    deaf, listening = started(policy="random"), started()
    for simulation in (deaf, listening):
        play(simulation, 3)
    with pytest.raises(StateError):
        deaf.load(listening.checkpoint(), source="here")
    with pytest.raises(StateError):
        listening.load(deaf.checkpoint(), source="here")
