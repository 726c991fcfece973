"""Adversaries: clients of a world that lie, keep silent, share a machine or poison their updates.

``[world.adversaries]`` of an experiment, in any world::

    adversaries = { share = 0.2, loss_factor = 10 }                  # inflated losses
    adversaries = { share = 0.2, latency_factor = 0.1 }              # a tenth of the latency
    adversaries = { share = 0.2, update_factor = -1, honest_rounds = 100 }  # sleepers, sign flip

Which clients are adversaries, and what they add at random, follows from the seed alone, so that all
policies face the same ones.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray, blocks
from fedmuster.core.config import check_types, require
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import Feedback, Selection, Truth
from fedmuster.core.streams import ADVERSARIES, stream

INFLATED: Final = frozenset(
    {"loss", "root_mean_square_loss", "loss_before", "loss_after", "accuracy_gain", "utility"}
)
"""The signals that make policies choose a client if they are large."""
_DEFLATED: Final = ("accuracy_before",)
"""The signals that make policies choose a client if they are small."""
_TIMES: Final = ("compute_seconds", "upload_seconds")
_OVERHEAD, _NOISE = 1, 2
"""Keys of random streams."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Adversaries:
    """Clients that attack; several attacks can be combined.

    Args:
        share: of all clients, drawn at random.
        latency_factor: they report their latency times this, for example 0.1.
        loss_factor: they report their losses (and a utility or a gain of accuracy) times this, for
            example 10, also where they are asked for a loss; the accuracy before training is
            divided by it.
        silent: whether they never answer; needs a deadline.
        sybils: whether they are the ids of one client: they have the data and the machine of one
            of them. A job takes as many times as long as ids of them are at work when it begins.
        update_factor: multiplies the update that they send: -1 flips its sign, 10 scales it.
        update_noise: the standard deviation of Gaussian noise in that update, in units of its
            root mean square.
        honest_rounds: in that number of first rounds they are honest (sleepers). Without rounds,
            aggregations are counted for what they report and send, and the jobs of each client
            for silence and a shared machine.
        overhead_seconds: the mean of what the server's clock sees beyond the latency of any
            client, uniform within a half and one and a half of it. It makes no round longer, and
            matters only where reports are checked.
    """

    share: float = 0.2
    latency_factor: float = 1.0
    loss_factor: float = 1.0
    silent: bool = False
    sybils: bool = False
    update_factor: float = 1.0
    update_noise: float = 0.0
    honest_rounds: int = 0
    overhead_seconds: float = 0.0

    def __post_init__(self) -> None:
        check_types(self)
        require(0 < self.share < 1, self, "share", "a number in (0, 1)")
        for name in ("latency_factor", "loss_factor"):
            require(0 < getattr(self, name) <= _LARGEST, self, name, _expected("> 0"))
        require(abs(self.update_factor) <= _LARGEST, self, "update_factor", _expected("or below"))
        for name in ("update_noise", "overhead_seconds"):
            require(0 <= getattr(self, name) <= _LARGEST, self, name, _expected(">= 0"))
        require(self.honest_rounds >= 0, self, "honest_rounds", "an integer >= 0")
        if not (self.lies or self.poisons or self.silent or self.sybils):
            raise ConfigError(
                "Adversaries: they do nothing: write latency_factor, loss_factor, silent, sybils, "
                "update_factor or update_noise",
                key=("share",),
            )

    @property
    def lies(self) -> bool:
        """Whether they report other numbers than the true ones."""
        return self.latency_factor != 1.0 or self.loss_factor != 1.0

    @property
    def poisons(self) -> bool:
        """Whether they send other updates than those that they trained."""
        return self.update_factor != 1.0 or self.update_noise > 0

    def start(self, num_clients: int, seed: int) -> "AdversaryRun":
        """Draw which clients are adversaries."""
        count = round(self.share * num_clients)
        if count == 0:
            raise ConfigError(
                f"Adversaries: share = {self.share!r} of {num_clients} clients is nobody: write a "
                f"larger share, at least {1 / num_clients:g}",
                key=("adversaries", "share"),
            )
        clients = stream(seed, ADVERSARIES).permutation(num_clients)[:count]
        return AdversaryRun(attack=self, clients=clients, num_clients=num_clients, seed=seed)


_LARGEST: Final = 1e9


def _expected(bound: str) -> str:
    return f"a number {bound}, at most {_LARGEST:g}"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AdversaryRun:
    """The adversaries of a world whose layout has been drawn.

    Args:
        attack: what they do.
        clients: the adversaries; of Sybils the first one is the client that stands behind all.
        num_clients: K.
        seed: of what they add at random.
    """

    attack: Adversaries
    clients: IntArray
    num_clients: int
    seed: int

    @property
    def mask(self) -> BoolArray:
        """bool[K], which clients are adversaries."""
        mask = np.zeros(self.num_clients, dtype=np.bool_)
        mask[self.clients] = True
        return mask

    @property
    def twins(self) -> IntArray | None:
        """int64[K], the client whose data and machine each client has; None without Sybils."""
        if not self.attack.sybils:
            return None
        twins = np.arange(self.num_clients)
        twins[self.clients] = self.clients[0]
        return twins

    def awake(self, clients: IntArray, number: int | IntArray) -> BoolArray:
        """bool[n], which of these clients attack in round (or job) ``number`` = 1, 2, …"""
        return np.isin(clients, self.clients) & (number > self.attack.honest_rounds)

    def at_work(self, number: int | IntArray) -> "AtWork | None":
        """The adversaries that keep silent or share a machine; None if there are none.

        Args:
            number: of the round; int64[K], of the next job of each client.
        """
        if not (self.attack.silent or self.attack.sybils):
            return None
        awake = self.awake(np.arange(self.num_clients), number)
        return AtWork(awake, self.twins, self.attack.silent) if awake.any() else None

    def asked_loss(self, clients: IntArray, losses: FloatArray, number: int) -> FloatArray:
        """[n], what clients say when they are asked for their losses."""
        factor = np.where(self.awake(clients, number), self.attack.loss_factor, 1.0)
        return np.asarray(losses * factor)

    def told(self, feedback: Feedback, number: int | IntArray) -> Feedback:
        """What the server is told, of what is true, with ``reported_seconds``."""
        lying = self.awake(feedback.clients, number)
        quicker = np.where(lying, self.attack.latency_factor, 1.0)
        louder = np.where(lying, self.attack.loss_factor, 1.0)
        factors = dict.fromkeys(INFLATED, louder) | dict.fromkeys(_DEFLATED, 1.0 / louder)
        factors |= dict.fromkeys(_TIMES, quicker)
        return replace(
            feedback,
            reported_seconds=feedback.latency_seconds * quicker,
            signals={
                name: values * factors[name] if name in factors else values
                for name, values in feedback.signals.items()
            },
        )

    def overhead(self, decision: int, rows: int) -> FloatArray:
        """[rows], what the server's clock sees beyond the latencies of a decision's clients."""
        luck = stream(self.seed, ADVERSARIES, _OVERHEAD, decision).random(rows)
        return np.asarray(self.attack.overhead_seconds * (0.5 + luck))

    def poison(self, deltas: NDArray[np.float32], clients: IntArray, orders: IntArray) -> IntArray:
        """Poison, in place, the updates of adversaries; the rows that were changed.

        Args:
            deltas: [n, P], trained parameters only.
            clients: int64[n].
            orders: int64[n], the number of each client's job, which seeds its noise.
        """
        attack = self.attack
        rows = np.flatnonzero(self.awake(clients, orders))
        for row in rows.tolist():
            update = deltas[row]
            square = sum(
                float(np.square(update[b], dtype=np.float64).sum()) for b in blocks(update.size)
            )
            noise_sd = attack.update_noise * np.sqrt(square / max(update.size, 1))
            update *= np.float32(attack.update_factor)
            if noise_sd > 0:
                luck = stream(self.seed, ADVERSARIES, _NOISE, int(clients[row]), int(orders[row]))
                update += np.float32(noise_sd) * luck.standard_normal(len(update), dtype=np.float32)
        return rows


@dataclass(frozen=True, slots=True, eq=False)
class AtWork:
    """The adversaries of a round that keep silent or share a machine.

    Args:
        awake: bool[K], which clients attack.
        twins: int64[K], the client whose machine each has; None where each has its own.
        silent: whether they never answer.
    """

    awake: BoolArray
    twins: IntArray | None
    silent: bool

    def per_client(self, values: FloatArray) -> FloatArray:
        """[K, …], with the values of the client behind the Sybils in place of theirs."""
        if self.twins is None:
            return values
        return values[np.where(self.awake, self.twins, np.arange(len(self.twins)))]

    def latency(self, seconds: FloatArray) -> FloatArray:
        """[K, …], when clients answer if they are alone at work; infinite for the silent."""
        seconds = self.per_client(seconds)
        return np.where(self._spread(seconds), np.inf, seconds) if self.silent else seconds

    def truth(self, truth: Truth) -> Truth:
        """The expectations of the round, which an oracle may know."""
        success = truth.success
        return replace(
            truth,
            mean_latency_seconds=self.per_client(truth.mean_latency_seconds),
            mean_speed=self._answered(truth.mean_speed),
            success=None if success is None else self._answered(success),
        )

    def _answered(self, values: FloatArray) -> FloatArray:
        """[K, …], 0 for clients that never answer."""
        values = self.per_client(values)
        return np.where(self._spread(values), 0.0, values) if self.silent else values

    def _spread(self, values: FloatArray) -> BoolArray:
        """:attr:`awake`, with as many axes as ``values``."""
        return self.awake.reshape(-1, *[1] * (values.ndim - 1))

    def slowdown(self, selection: Selection, busy: BoolArray | None) -> FloatArray:
        """[m], how many times as long each job takes because ids share a machine.

        ``busy`` are the clients that are at work already.
        """
        factor = np.ones(len(selection.clients))
        if self.twins is not None:
            sharing = self.awake[selection.clients]
            at_once = np.count_nonzero(sharing)
            at_once += 0 if busy is None else np.count_nonzero(busy & self.awake)
            factor[sharing] = at_once
        return factor
