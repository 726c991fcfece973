"""A policy that closes its rounds early, hears late answers, and learns from them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import FloatArray
from fedmuster.core.policy import PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.state import shared
from fedmuster.federation import Simulation
from fedmuster.solvers.top_k import top_k


@dataclass(slots=True)
class ListensState:
    """What was heard of each client: [K]; ``told`` is 1 once anything was said of late answers."""

    asked: FloatArray
    fresh: FloatArray
    late: FloatArray
    given_up: FloatArray
    seconds: FloatArray
    loss: FloatArray
    told: FloatArray = shared()


@dataclass(frozen=True, kw_only=True, slots=True)
class Listens(PolicyTraits):
    """Clients that were seldom asked, the slower the later; rounds close with ``quota`` answers."""

    name: ClassVar[str] = "listens"
    hears_late: ClassVar[bool] = True
    late_hold_slots: ClassVar[Any] = property(lambda self: self.holds)

    quota: int | None = 2
    deadline_seconds: float | None = None
    holds: bool = False

    def init(self, problem: Problem) -> ListensState:
        names = ("asked", "fresh", "late", "given_up", "seconds", "loss")
        columns = {name: np.zeros(problem.num_clients) for name in names}
        return ListensState(**columns, told=np.zeros(()))

    def select(self, state: ListensState, view: RoundView, rng: Generator) -> Selection:
        rows = np.flatnonzero(view.available)
        seconds = state.seconds[rows] / np.maximum(state.fresh + state.late, 1.0)[rows]
        score = -state.asked[rows] - seconds - state.given_up[rows]
        chosen = Selection.of(view, rows, top_k(score, view.num_to_choose, rng))
        quota = None if self.quota is None else max(1, min(self.quota, len(chosen.clients)))
        return replace(chosen, quota=quota, deadline_seconds=self.deadline_seconds)

    def observe(self, state: ListensState, selection: Selection, feedback: Feedback) -> None:
        clients, done = feedback.clients, feedback.answered
        state.asked[clients] += 1
        state.fresh[clients[done]] += 1
        state.seconds[clients[done]] += feedback.latency_seconds[done]
        if feedback.late is None:
            return
        late, came = feedback.late, feedback.late.answered
        state.told[...] = 1
        state.late[late.clients[came]] += 1
        state.given_up[late.clients[~came]] += 1
        state.seconds[late.clients[came]] += late.latency_seconds[came]
        if "loss" in late.signals:
            state.loss[late.clients[came]] += late.signals["loss"][came]


@contextmanager
def overheard(simulation: Simulation[Any]) -> Iterator[list[tuple[Selection, Feedback]]]:
    """What the policy of this simulation observes from here on."""
    heard: list[tuple[Selection, Feedback]] = []
    kind = type(simulation.selector.policy)
    observe = kind.observe

    def listen(self: Any, state: Any, selection: Selection, feedback: Feedback) -> None:
        heard.append((selection, feedback))
        observe(self, state, selection, feedback)

    with patch.object(kind, "observe", listen):
        yield heard
