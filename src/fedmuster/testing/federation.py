"""The tiny synthetic federation in which the contract plays every policy."""

from dataclasses import dataclass, replace

import numpy as np

from fedmuster.core.records import FloatArray, Problem, Truth
from fedmuster.core.streams import WORLD, stream
from fedmuster.testing.draw import DEADLINE_SECONDS, Draw
from fedmuster.testing.network import Layout, edges_of

_LOST = 0.2


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
        num_edges: how many edge servers there are; 0 for none, in flat federated learning.
    """

    data: bool = True
    clusters: bool = True
    num_features: int = 2
    losses: bool = True
    attributes: bool = True
    forecasts: bool = True
    num_edges: int = 0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Federation:
    """Clients whose latency is their mean times their load, which the features tell.

    At an edge server it is also a matter of luck, which nobody sees.

    Args:
        mean_seconds: the expected latency of each client under a load of 1.
        mean_load: the expected load of each client; None when it is 1 for all.
        mean_loss: the expected loss of each client; None when it is 1 for all.
        cohort_size: m.
        knowledge: what the server is told.
        equal_data: whether all clients have as much data, and as good.
        num_clusters: client k is in cluster ``k % num_clusters``.
        variation: load, luck and loss of a client vary by this share from round to round, and
            with twice this probability it says that it will leave.
        mishaps: whether clients are away at times, and at times do not complete.
        layout: of the edge servers.
        seed: of the rounds.
    """

    mean_seconds: FloatArray
    mean_load: FloatArray | None = None
    mean_loss: FloatArray | None = None
    cohort_size: int = 3
    knowledge: Knowledge
    equal_data: bool = False
    num_clusters: int = 4
    variation: float = 0.2
    mishaps: bool = False
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
            # Load and luck have the same law for all, so E[1/tau] is one constant over the mean,
            # and tau_min can be chosen such that this is E[tau_min / tau] exactly.
            truth=Truth(
                mean_latency_seconds=mean_seconds,
                mean_speed=0.5 * mean_seconds.min() / mean_seconds,
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
                success=(1.0 - _LOST * self.mishaps) * self._in_time(expected),
                succeeds=(latency <= DEADLINE_SECONDS) & ~lost[:, np.newaxis],
            ),
        )

    def _in_time(self, expected: FloatArray) -> FloatArray:
        """The probability that luck, uniform in ``1 ± variation``, lets it be in time."""
        if self.variation == 0.0:
            return (expected <= DEADLINE_SECONDS).astype(np.float64)
        luck = (DEADLINE_SECONDS / expected - 1.0) / self.variation
        return np.clip((1.0 + luck) / 2.0, 0.0, 1.0)


def varied_seconds(num_clients: int) -> FloatArray:
    """Mean latencies between 0.1 and 1 s, in no order."""
    return np.asarray(0.1 + 0.9 * (np.arange(num_clients) * 0.618 % 1.0))


def lively(knowledge: Knowledge) -> Federation:
    """Twelve unreliable clients that differ in everything: where most points are tried."""
    federation = Federation(mean_seconds=varied_seconds(12), knowledge=knowledge, mishaps=True)
    if knowledge.num_edges == 0:
        return federation
    # Budgets are to be the limit, and contexts to differ.
    return replace(federation, cohort_size=6, variation=0.4)
