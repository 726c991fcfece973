"""The tiny synthetic federation in which the contract plays every policy."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedmuster.core.policy import Policy
from fedmuster.core.records import (
    AskLoss,
    BoolArray,
    Feedback,
    FloatArray,
    Forecast,
    IntArray,
    Problem,
    RoundView,
    Selection,
    Truth,
)
from fedmuster.core.streams import WORLD, stream


@dataclass(frozen=True, kw_only=True, slots=True)
class Knowledge:
    """What the server is told of its clients; by default all that any policy may ask for.

    Args:
        data: whether it knows size and quality of each client's data.
        clusters: whether it knows which clients share a cluster.
        num_features: how many numbers describe each client in a round.
        losses: whether clients answer when they are asked for their loss.
        attributes: whether it has numbers that describe each client for the whole run, and from
            which follows what to expect of it.
        forecasts: whether clients answer when they are asked how long they will be there.
    """

    data: bool = True
    clusters: bool = True
    num_features: int = 2
    losses: bool = True
    attributes: bool = True
    forecasts: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Draw:
    """One round of all clients, drawn before anybody is chosen."""

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
            truth=self.truth if policy.oracle else None,
            ask_loss=self.ask_loss,
            forecast=self.forecast,
        )

    def feedback(self, selection: Selection) -> Feedback:
        """What comes back from a cohort, in the form in which a Selector hands it on."""
        clients = selection.clients
        completed = self.completed[clients]
        latency = self.latency_seconds[clients]
        signals = {
            "loss": self.loss[clients],
            "compute_seconds": 0.6 * latency,
            "upload_seconds": 0.4 * latency,
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
        return replace(
            self,
            available=self.available[:count],
            features=None if self.features is None else self.features[:count],
            latency_seconds=self.latency_seconds[:count],
            completed=self.completed[:count],
            loss=self.loss[:count],
            leaving=self.leaving[:count],
            truth=Truth(
                mean_latency_seconds=self.truth.mean_latency_seconds[:count],
                mean_speed=self.truth.mean_speed[:count],
            ),
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Federation:
    """Clients whose latency is their mean times their load, which the features tell.

    Args:
        mean_seconds: the expected latency of each client.
        mean_loss: the expected loss of each client; None when it is 1 for all.
        cohort_size: m.
        knowledge: what the server is told.
        equal_data: whether all clients have as much data, and as good.
        num_clusters: client k is in cluster ``k % num_clusters``.
        variation: the load and the loss of a client vary by this share from round to round, and
            with twice this probability it says that it will leave.
        mishaps: whether clients are away at times, and at times do not complete.
        seed: of the rounds.
    """

    mean_seconds: FloatArray
    mean_loss: FloatArray | None = None
    cohort_size: int = 3
    knowledge: Knowledge
    equal_data: bool = False
    num_clusters: int = 4
    variation: float = 0.2
    mishaps: bool = False
    seed: int = 0

    def problem(self) -> Problem:
        """What the server knows for the whole run."""
        client = np.arange(len(self.mean_seconds))
        varied = client * (not self.equal_data)
        attributes = np.column_stack([self.mean_seconds, self._mean_loss()])
        return Problem(
            num_clients=len(client),
            cohort_size=self.cohort_size,
            num_samples=40 + 10 * (varied * 5 % 7) if self.knowledge.data else None,
            quality=np.asarray(1.0 - 0.1 * (varied * 3 % 5)) if self.knowledge.data else None,
            clusters=client % self.num_clusters if self.knowledge.clusters else None,
            num_features=self.knowledge.num_features,
            attributes=attributes if self.knowledge.attributes else None,
            expected_seconds=self.mean_seconds if self.knowledge.attributes else None,
        )

    def _mean_loss(self) -> FloatArray:
        return np.ones(len(self.mean_seconds)) if self.mean_loss is None else self.mean_loss

    def draw(self, round_: int) -> Draw:
        """Round ``round_``, the same whenever and for whomever it is drawn."""
        rng = stream(self.seed, WORLD, round_)
        clients, features = len(self.mean_seconds), self.knowledge.num_features
        low, high = 1.0 - self.variation, 1.0 + self.variation
        load = rng.uniform(low, high, size=(clients, max(features, 1)))
        away, lost = rng.random((2, clients)) < 0.2 * self.mishaps
        if np.count_nonzero(~away) < self.cohort_size:
            away[:] = False
        return Draw(
            round=round_,
            cohort_size=self.cohort_size,
            available=~away,
            features=load if features else None,
            latency_seconds=self.mean_seconds * load.mean(axis=1),
            completed=~lost,
            loss=rng.uniform(low, high, size=clients) * self._mean_loss(),
            leaving=rng.random(clients) < 2 * self.variation,
            answers_polls=self.knowledge.losses,
            answers_forecasts=self.knowledge.forecasts,
            # The load has the same law for all, so E[1/tau] is one constant over the mean, and
            # tau_min can be chosen such that this is E[tau_min / tau] exactly.
            truth=Truth(
                mean_latency_seconds=self.mean_seconds,
                mean_speed=0.5 * self.mean_seconds.min() / self.mean_seconds,
            ),
        )


def varied_seconds(num_clients: int) -> FloatArray:
    """Mean latencies between 0.1 and 1 s, in no order."""
    return np.asarray(0.1 + 0.9 * (np.arange(num_clients) * 0.618 % 1.0))


def lively(knowledge: Knowledge) -> Federation:
    """Twelve unreliable clients that differ in everything: where most points are tried."""
    return Federation(mean_seconds=varied_seconds(12), knowledge=knowledge, mishaps=True)
