"""A policy that remembers what it observes, and answers to tickets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.policy import PolicyTraits
from fedmuster.core.records import Feedback, FloatArray, IntArray, Problem, RoundView, Selection
from fedmuster.core.selector import Selector
from fedmuster.core.state import learned_arrays


@dataclass
class Heard:
    """What the recorder knows of each client."""

    times: IntArray
    completed: IntArray
    seconds: FloatArray
    last_round: IntArray


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorder(PolicyTraits):
    """Chooses at random; counts how often it hears of each client, and in which round."""

    name: ClassVar[str] = "recorder"

    def init(self, problem: Problem) -> Heard:
        times, completed, last_round = np.zeros((3, problem.num_clients), dtype=np.int64)
        return Heard(times, completed, np.zeros(problem.num_clients), last_round)

    def select(self, state: Heard, view: RoundView, rng: Generator) -> Selection:
        there = np.flatnonzero(view.available)
        return Selection.of(view, there, rng.permutation(len(there))[: view.num_to_choose])

    def observe(self, state: Heard, selection: Selection, feedback: Feedback) -> None:
        np.testing.assert_array_equal(selection.clients, feedback.clients)
        clients, answered = selection.clients, feedback.answered
        state.times[clients] += 1
        state.completed[clients] += answered
        state.seconds[clients[answered]] += feedback.latency_seconds[answered]
        state.last_round[clients] = feedback.round


def recorder(num_clients: int = 12, cohort_size: int = 4, *, seed: int = 0) -> Selector[Heard]:
    problem = Problem(num_clients=num_clients, cohort_size=cohort_size)
    return Selector(Recorder(), problem, seed=seed)


def answer(*selections: Selection, rows: Sequence[int] | None = None, **more: Any) -> Feedback:
    """The answers to all tickets of these selections, or to those at ``rows``, in that order."""
    tickets = np.concatenate([numbers_of(selection) for selection in selections])
    clients = np.concatenate([selection.clients for selection in selections])
    chosen = np.arange(len(clients)) if rows is None else np.array(rows, dtype=np.int64)
    clients = clients[chosen]
    told = {"latency_seconds": 0.5 + (clients % 7) / 8, **more}
    return Feedback(tickets=tickets[chosen], clients=clients, **told)


def numbers_of(selection: Selection) -> IntArray:
    """The tickets of a selection."""
    assert selection.tickets is not None
    return selection.tickets


def state_of(selector: Selector[Any]) -> dict[str, bytes]:
    """What the policy has learned, bit for bit."""
    return {name: array.tobytes() for name, array in learned_arrays(selector.state).items()}


def image_of(selector: Selector[Any]) -> tuple[object, ...]:
    """All of a selector that calls may change, bit for bit."""
    return selector.to_bytes(), selector.round, selector.decisions, dict(selector.refused)


POLICIES = ("random", "bsfl", "pause", "cs-ucb", "cs-ucb-q", "rbcs-f", "oort", "refl", "tifl")


def selector_of(policy: str, *, num_clients: int = 20, cohort_size: int = 4) -> Selector[Any]:
    problem = Problem(
        num_clients=num_clients,
        cohort_size=cohort_size,
        num_samples=1 + np.arange(num_clients) % 5,
        expected_seconds=1.0 + np.arange(num_clients, dtype=np.float64) % 3,
    )
    return Selector(policy, problem, seed=7)


def told(selection: Selection, **more: Any) -> Feedback:
    """Answers with all signals that some policy learns from."""
    clients = selection.clients
    signals = {
        "loss": 1.0 + (clients % 3) / 4,
        "compute_seconds": 0.1 + (clients % 5) / 8,
        "upload_seconds": 0.1 + (clients % 2) / 8,
    }
    return answer(selection, signals=signals, **more)


def joined(parts: Sequence[Feedback], rows: IntArray) -> Feedback:
    """One message of several, with these of their rows."""

    def column(values: Sequence[Any]) -> Any:
        return np.concatenate(values)[rows]

    return Feedback(
        tickets=column([part.tickets for part in parts]),
        clients=column([part.clients for part in parts]),
        latency_seconds=column([part.latency_seconds for part in parts]),
        signals={name: column([part.signals[name] for part in parts]) for name in parts[0].signals},
    )
