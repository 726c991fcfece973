"""One round of the tiny synthetic federation."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedmuster.core.edges import EdgeView
from fedmuster.core.policy import Policy
from fedmuster.core.records import (
    AskLoss,
    BoolArray,
    Feedback,
    FloatArray,
    Forecast,
    IntArray,
    RoundView,
    Selection,
    Truth,
)

DEADLINE_SECONDS = 0.6
"""Later answers are waited for, but are not in time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Draw:
    """One round of all clients, drawn before anybody is chosen.

    Where there are edge servers, features and latencies are [K, M, …], of each client at each edge.
    """

    round: int
    cohort_size: int
    available: BoolArray
    features: FloatArray | None
    latency_seconds: FloatArray
    completed: BoolArray
    loss: FloatArray
    leaving: BoolArray
    answers_polls: bool
    answers_forecasts: bool
    truth: Truth
    edges: EdgeView | None = None

    @property
    def in_time(self) -> FloatArray:
        """1 where an answer would come by the deadline, else 0."""
        return (self.latency_seconds <= DEADLINE_SECONDS).astype(np.float64)

    @property
    def ask_loss(self) -> AskLoss | None:
        """What clients answer when they are asked for their loss, if they do."""
        return self._answer if self.answers_polls else None

    def _answer(self, clients: IntArray, *, batch_size: int | None = None) -> FloatArray:
        # A mini-batch tells it less precisely.
        return self.loss[clients] if batch_size is None else self.loss[clients].round(2)

    @property
    def forecast(self) -> Forecast | None:
        """How long clients say that they will be there, if they do."""
        return self._foretell if self.answers_forecasts else None

    def _foretell(self, window_seconds: float) -> tuple[BoolArray, BoolArray]:
        del window_seconds
        return self.available, self.available & ~self.leaving

    def view(self, policy: Policy[Any]) -> RoundView:
        """What ``policy`` may know before it chooses: the truth, if it is an oracle."""
        return RoundView(
            round=self.round,
            cohort_size=self.cohort_size,
            available=self.available,
            features=self.features,
            edges=self.edges,
            truth=self.truth if policy.oracle else None,
            ask_loss=self.ask_loss,
            forecast=self.forecast,
        )

    def feedback(self, selection: Selection) -> Feedback:
        """What comes back from a cohort, in the form in which a Selector hands it on."""
        clients = selection.clients
        completed = self.completed[clients]
        latency = selection.rows_of(self.latency_seconds)
        signals = {
            "loss": self.loss[clients],
            "compute_seconds": 0.6 * latency,
            "upload_seconds": 0.4 * latency,
            "in_time": selection.rows_of(self.in_time),
        }
        return Feedback(
            round=self.round,
            clients=clients.copy(),
            latency_seconds=np.where(completed, latency, np.inf),
            completed=completed,
            signals={name: np.where(completed, rows, np.nan) for name, rows in signals.items()},
            used=self._used(selection, completed, latency),
            round_seconds=float(latency.max(initial=0.0)),
        )

    def _used(
        self, selection: Selection, completed: BoolArray, latency: FloatArray
    ) -> BoolArray | None:
        """The first answers of preferred clients, as many as the quota has; None without one."""
        if selection.quota is None or selection.preferred is None:
            return None
        first = np.lexsort((latency, ~selection.preferred, ~completed))[: selection.quota]
        used = np.zeros(len(completed), dtype=np.bool_)
        used[first] = completed[first]
        return used

    def of_first(self, count: int) -> "Draw":
        """The same round before all but the first ``count`` clients joined."""
        truth, edges = self.truth, self.edges
        return replace(
            self,
            available=self.available[:count],
            features=None if self.features is None else self.features[:count],
            latency_seconds=self.latency_seconds[:count],
            completed=self.completed[:count],
            loss=self.loss[:count],
            leaving=self.leaving[:count],
            truth=Truth(
                mean_latency_seconds=truth.mean_latency_seconds[:count],
                mean_speed=truth.mean_speed[:count],
                success=None if truth.success is None else truth.success[:count],
                succeeds=None if truth.succeeds is None else truth.succeeds[:count],
            ),
            edges=None
            if edges is None
            else replace(edges, coverage=edges.coverage[:count], cost=edges.cost[:count]),
        )
