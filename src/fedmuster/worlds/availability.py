"""Who can be asked, and when.

An availability is a config; ``start(num_clients, seed)`` draws it. The laws of this file know
rounds only; those of :mod:`fedmuster.worlds.activity` go by the clock. Moments may be asked for
in any order: the answer depends on the seed and the moment alone.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from fedmuster.core.config import require
from fedmuster.core.records import BoolArray
from fedmuster.core.streams import AVAILABILITY, stream
from fedmuster.worlds.activity import ActivityTrace, OnOff


class AvailabilityRun(Protocol):
    """Who can be asked. A moment is a round, and the seconds since the run began."""

    def at(self, round_number: int, now_seconds: float) -> BoolArray:
        """bool[K], read-only."""
        ...

    def forecast(
        self, round_number: int, now_seconds: float, window_seconds: float
    ) -> tuple[BoolArray, BoolArray]:
        """Who will be there for so long, and who for as long again after that.

        A law that knows rounds only takes a window for a round.
        """
        ...

    def wait_seconds(self, now_seconds: float) -> float:
        """How long until somebody comes, when nobody is there; 0 if rounds decide."""
        ...


class _RoundByRound(ABC):
    """A run of a law that knows rounds only."""

    def at(self, round_number: int, now_seconds: float = 0.0) -> BoolArray:
        """See :class:`AvailabilityRun`."""
        del now_seconds
        return self._of(round_number)

    def forecast(
        self, round_number: int, now_seconds: float, window_seconds: float
    ) -> tuple[BoolArray, BoolArray]:
        """See :class:`AvailabilityRun`."""
        del now_seconds, window_seconds
        return self._of(round_number), self._of(round_number + 1)

    def wait_seconds(self, now_seconds: float) -> float:
        """See :class:`AvailabilityRun`."""
        del now_seconds
        return 0.0

    @abstractmethod
    def _of(self, round_number: int) -> BoolArray: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Always:
    """Everyone can be asked in every round."""

    name: ClassVar[str] = "always"

    def start(self, num_clients: int, _seed: int) -> AvailabilityRun:
        """One mask, shared by all rounds."""
        return _Everyone(num_clients)


class _Everyone(_RoundByRound):
    def __init__(self, num_clients: int) -> None:
        self._all = _read_only(np.ones(num_clients, dtype=np.bool_))

    def _of(self, round_number: int) -> BoolArray:
        del round_number
        return self._all


@dataclass(frozen=True, kw_only=True, slots=True)
class Bernoulli:
    """Each client can be asked with the same probability, independently in every round."""

    name: ClassVar[str] = "bernoulli"

    probability: float = 0.5

    def __post_init__(self) -> None:
        require(0 <= self.probability <= 1, self, "probability", "a number in [0, 1]")

    def start(self, num_clients: int, seed: int) -> AvailabilityRun:
        """A fresh mask for every round."""
        return _Lots(self.probability, num_clients, seed)


class _Lots(_RoundByRound):
    def __init__(self, probability: float, num_clients: int, seed: int) -> None:
        self._probability = probability
        self._num_clients = num_clients
        self._seed = seed

    def _of(self, round_number: int) -> BoolArray:
        luck = stream(self._seed, AVAILABILITY, round_number)
        return _read_only(luck.random(self._num_clients) < self._probability)


@dataclass(frozen=True, kw_only=True, slots=True)
class Markov:
    """Each client is on or off for a while: an on-off chain in its stationary law.

    The share of clients that are on is ``up / (up + down)``; a client stays on for ``1 / down``
    and off for ``1 / up`` rounds on average.

    Args:
        up: probability that a client which is off is on in the next round.
        down: probability that a client which is on is off in the next round.
    """

    name: ClassVar[str] = "markov"

    up: float = 0.1
    down: float = 0.1

    def __post_init__(self) -> None:
        require(0 < self.up <= 1, self, "up", "a number in (0, 1]")
        require(0 < self.down <= 1, self, "down", "a number in (0, 1]")

    def start(self, num_clients: int, seed: int) -> AvailabilityRun:
        """The chain, which remembers the last two rounds it was asked for."""
        return _Chain(self, num_clients, seed)


class _Chain(_RoundByRound):
    """Walks on from the last round known, or again from round 1 when asked for an early one.

    It keeps two rounds, for a forecast looks one round ahead.
    """

    def __init__(self, law: Markov, num_clients: int, seed: int) -> None:
        self._law = law
        self._num_clients = num_clients
        self._seed = seed
        self._round = 0
        self._on = self._before = np.empty(0, dtype=np.bool_)

    def _of(self, round_number: int) -> BoolArray:
        if round_number == self._round - 1:
            return self._before
        if round_number < self._round:
            self._round = 0
        while self._round < round_number:
            self._step()
        return self._on

    def _step(self) -> None:
        self._round += 1
        law, luck = self._law, stream(self._seed, AVAILABILITY, self._round)
        if self._round == 1:
            chance = np.asarray(law.up / (law.up + law.down))
        else:
            chance = np.where(self._on, 1.0 - law.down, law.up)
        self._before = self._on
        self._on = _read_only(luck.random(self._num_clients) < chance)


Availability = Always | Bernoulli | Markov | OnOff | ActivityTrace


def _read_only(mask: BoolArray) -> BoolArray:
    mask.setflags(write=False)
    return mask
