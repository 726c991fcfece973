"""The tiny synthetic federation in which the contract plays every policy."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.edges import EdgeView
from fedmuster.core.policy import Policy
from fedmuster.core.records import AskLoss, Feedback, Forecast, Problem, RoundView, Selection, Truth
from fedmuster.core.streams import SKETCH, WORLD, stream

Layout = Literal["varied", "apart", "together"]
"""How edge servers and clients stand to each other.

- "varied": who is covered by whom, costs and budgets change from round to round; budgets do not
  pay for everybody, and at times somebody is not covered at all;
- "apart": each client is covered by one edge, all cost the same, and the budgets pay for a cohort;
- "together": every edge covers every client, all are alike, and each could pay for a whole cohort.
"""

_REACH = 0.6
_DEAREST = 5
_POOREST, _RICHEST = 3, 8


def edges_of(
    layout: Layout, num_clients: int, num_edges: int, cohort_size: int, rng: Generator
) -> EdgeView:
    """The edge servers in one round."""
    pairs = (num_clients, num_edges)
    if layout == "varied":
        # In tenths, which binary numbers are not: 0.1 + 0.2 > 0.3, and a budget of 0.3 is exceeded.
        return EdgeView(
            coverage=rng.random(pairs) < _REACH,
            cost=rng.integers(1, _DEAREST, size=pairs, endpoint=True) / 10,
            budget=rng.integers(_POOREST, _RICHEST, size=num_edges, endpoint=True) / 10,
        )
    budget = np.full(num_edges, float(cohort_size))
    coverage = np.ones(pairs, dtype=np.bool_)
    if layout == "apart":
        home = np.arange(num_clients) % num_edges
        coverage = home[:, np.newaxis] == np.arange(num_edges)
        budget = np.bincount(home[:cohort_size], minlength=num_edges).astype(np.float64)
    return EdgeView(coverage=coverage, cost=np.ones(num_clients), budget=budget)


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
    output_bias: FloatArray
    tells_updates: bool
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

    def feedback(self, selection: Selection, policy: Policy[Any]) -> Feedback:
        """What comes back from a cohort, in the form in which a Selector hands it on to ``policy``:
        with sketches and output biases, if it wants them."""
        clients = selection.clients
        completed = self.completed[clients]
        latency = selection.rows_of(self.latency_seconds)
        signals = {
            "loss": self.loss[clients],
            "update_norm": 2.0 * self.loss[clients],  # the model changes most where it is worst
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
            **self._vectors(clients, completed, policy),
            used=self._used(selection, completed, latency),
            round_seconds=float(latency.max(initial=0.0)),
        )

    def _vectors(
        self, clients: IntArray, completed: BoolArray, policy: Policy[Any]
    ) -> dict[str, Any]:
        """What a policy wants to see of updates, which are changes of output biases and no more."""
        told = {}
        size = policy.wanted_sketch_size if self.tells_updates else 0
        if size > 0:
            projection = stream(0, SKETCH).standard_normal((_NUM_CLASSES, size)) / np.sqrt(size)
            told["sketches"] = self.output_bias[clients] @ projection
        if policy.wants_output_bias and self.tells_updates:
            told["output_bias"] = self.output_bias[clients]
        return {name: np.where(completed[:, None], rows, np.nan) for name, rows in told.items()}

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

        def first(owner: Any, names: Iterable[str]) -> dict[str, Any]:
            told = {name: getattr(owner, name) for name in names}
            return {name: of[:count] for name, of in told.items() if of is not None}

        edges = self.edges
        if edges is not None:
            edges = replace(edges, **first(edges, ("coverage", "cost")))
        columns = (
            "available", "features", "latency_seconds", "completed", "loss", "leaving",
            "output_bias",
        )  # fmt: skip
        truth = Truth(**first(self.truth, (item.name for item in fields(Truth))))
        return replace(self, **first(self, columns), truth=truth, edges=edges)


_NUM_CLASSES = 4
_LOST = 0.2
_NEVER_SECONDS = 1e6


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
        updates: whether it sees the updates of clients, and how many classes the model tells apart.
        num_edges: how many edge servers there are; 0 for none, in flat federated learning.
    """

    data: bool = True
    clusters: bool = True
    num_features: int = 2
    losses: bool = True
    attributes: bool = True
    forecasts: bool = True
    updates: bool = True
    num_edges: int = 0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TinyFederation:
    """Clients whose latency is their mean times their load, which the features tell.

    At an edge server it is also a matter of luck, which nobody sees.

    Args:
        mean_seconds: the expected latency of each client under a load of 1.
        mean_load: the expected load of each client; None when it is 1 for all.
        mean_loss: the expected loss of each client; None when it is 1 for all.
        balanced: the clients that have samples of all classes; all others have one class, the same.
        cohort_size: m.
        knowledge: what the server is told.
        equal_data: whether all clients have as much data, and as good.
        num_clusters: client k is in cluster ``k % num_clusters``.
        variation: load, luck and loss of a client vary by this share from round to round, and
            with twice this probability it says that it will leave.
        mishaps: whether clients are away at times, and at times do not complete.
        silent: clients that are always there and never answer.
        layout: of the edge servers.
        seed: of the rounds.
    """

    mean_seconds: FloatArray
    mean_load: FloatArray | None = None
    mean_loss: FloatArray | None = None
    balanced: tuple[int, ...] = ()
    cohort_size: int = 3
    knowledge: Knowledge
    equal_data: bool = False
    num_clusters: int = 4
    variation: float = 0.2
    mishaps: bool = False
    silent: tuple[int, ...] = ()
    layout: Layout = "varied"
    seed: int = 0

    def problem(self) -> Problem:
        """What the server knows for the whole run."""
        client = np.arange(len(self.mean_seconds))
        varied = client * (not self.equal_data)
        mean_seconds = self._mean_latency_seconds()
        attributes = np.column_stack([mean_seconds, self._mean_loss()])
        return Problem(
            num_clients=len(client),
            cohort_size=self.cohort_size,
            num_samples=40 + 10 * (varied * 5 % 7) if self.knowledge.data else None,
            quality=np.asarray(1.0 - 0.1 * (varied * 3 % 5)) if self.knowledge.data else None,
            clusters=client % self.num_clusters if self.knowledge.clusters else None,
            num_features=self.knowledge.num_features,
            num_edges=self.knowledge.num_edges,
            num_classes=_NUM_CLASSES if self.knowledge.updates else 0,
            attributes=attributes if self.knowledge.attributes else None,
            expected_seconds=mean_seconds if self.knowledge.attributes else None,
        )

    def _mean_latency_seconds(self) -> FloatArray:
        return self.mean_seconds if self.mean_load is None else self.mean_seconds * self.mean_load

    def _mean_loss(self) -> FloatArray:
        return np.ones(len(self.mean_seconds)) if self.mean_loss is None else self.mean_loss

    def draw(self, round_: int) -> Draw:
        """Round ``round_``, the same whenever and for whomever it is drawn."""
        rng = stream(self.seed, WORLD, round_)
        clients, features = len(self.mean_seconds), self.knowledge.num_features
        num_edges = self.knowledge.num_edges
        low, high = 1.0 - self.variation, 1.0 + self.variation
        load = rng.uniform(low, high, size=(clients, max(num_edges, 1), max(features, 1)))
        if self.mean_load is not None:
            load *= self.mean_load[:, np.newaxis, np.newaxis]
        away, lost = rng.random((2, clients)) < _LOST * self.mishaps
        silent = np.isin(np.arange(clients), self.silent)
        lost |= silent
        if np.count_nonzero(~away) < self.cohort_size:
            away[:] = False
        expected = self.mean_seconds[:, np.newaxis] * load.mean(axis=2)
        mean_seconds = self._mean_latency_seconds()
        drawn = Draw(
            round=round_,
            cohort_size=self.cohort_size,
            available=~away,
            features=load[:, 0] if features else None,
            latency_seconds=expected[:, 0],
            completed=~lost,
            loss=rng.uniform(low, high, size=clients) * self._mean_loss(),
            leaving=rng.random(clients) < 2 * self.variation,
            answers_polls=self.knowledge.losses,
            answers_forecasts=self.knowledge.forecasts,
            output_bias=self._output_bias(round_),
            tells_updates=self.knowledge.updates,
            # Load and luck have the same law for all, so E[1/tau] is one constant over the mean,
            # and tau_min can be chosen such that this is E[tau_min / tau] exactly.
            truth=Truth(
                mean_latency_seconds=np.where(silent, _NEVER_SECONDS, mean_seconds),
                mean_speed=np.where(silent, 0.0, 0.5 * mean_seconds.min() / mean_seconds),
            ),
        )
        if num_edges == 0:
            return drawn
        edges = edges_of(self.layout, clients, num_edges, self.cohort_size, rng)
        latency = expected * rng.uniform(low, high, size=expected.shape)
        return replace(
            drawn,
            available=drawn.available & edges.covered,
            features=load if features else None,
            latency_seconds=latency,
            edges=edges,
            truth=replace(
                drawn.truth,
                success=(1.0 - _LOST * self.mishaps)
                * np.where(silent[:, np.newaxis], 0.0, self._in_time(expected)),
                succeeds=(latency <= DEADLINE_SECONDS) & ~lost[:, np.newaxis],
            ),
        )

    def _output_bias(self, round_: int) -> FloatArray:
        """[K, C], by how much clients change the biases: towards the classes that they have."""
        rng = stream(self.seed, SKETCH, round_)
        labels = np.zeros((len(self.mean_seconds), _NUM_CLASSES))
        labels[:, 0] = 1.0
        labels[list(self.balanced)] = 1.0 / _NUM_CLASSES
        noise = rng.uniform(-0.1, 0.1, labels.shape)
        return np.asarray(labels - 1.0 / _NUM_CLASSES + noise * self.variation)

    def _in_time(self, expected: FloatArray) -> FloatArray:
        """The probability that luck, uniform in ``1 ± variation``, lets it be in time."""
        if self.variation == 0.0:
            return (expected <= DEADLINE_SECONDS).astype(np.float64)
        luck = (DEADLINE_SECONDS / expected - 1.0) / self.variation
        return np.clip((1.0 + luck) / 2.0, 0.0, 1.0)


def varied_seconds(num_clients: int) -> FloatArray:
    """Mean latencies between 0.1 and 1 s, in no order."""
    return np.asarray(0.1 + 0.9 * (np.arange(num_clients) * 0.618 % 1.0))


def lively(knowledge: Knowledge) -> TinyFederation:
    """Twelve unreliable clients that differ in everything: where most points are tried."""
    federation = TinyFederation(mean_seconds=varied_seconds(12), knowledge=knowledge, mishaps=True)
    if knowledge.num_edges == 0:
        return federation
    # Budgets are to be the limit, and contexts to differ.
    return replace(federation, cohort_size=6, variation=0.4)
