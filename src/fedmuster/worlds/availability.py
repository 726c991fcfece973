"""Who can be asked in a round.

An availability is a config; ``start(num_clients, seed)`` makes it a function from the round to
bool[K]. Rounds may be asked for in any order: the answer depends on (seed, round) alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmuster.core.config import require
from fedmuster.core.records import BoolArray
from fedmuster.core.streams import AVAILABILITY, stream

AvailabilityRun = Callable[[int], BoolArray]
"""round -> bool[K], read-only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Always:
    """Everyone can be asked in every round."""

    name: ClassVar[str] = "always"

    def start(self, num_clients: int, _seed: int) -> AvailabilityRun:
        """One mask, shared by all rounds."""
        everyone = _read_only(np.ones(num_clients, dtype=np.bool_))
        return lambda _round: everyone


@dataclass(frozen=True, kw_only=True, slots=True)
class Bernoulli:
    """Each client can be asked with the same probability, independently in every round."""

    name: ClassVar[str] = "bernoulli"

    probability: float = 0.5

    def __post_init__(self) -> None:
        require(0 <= self.probability <= 1, self, "probability", "a number in [0, 1]")

    def start(self, num_clients: int, seed: int) -> AvailabilityRun:
        """A fresh mask for every round."""
        return lambda round_number: _read_only(
            stream(seed, AVAILABILITY, round_number).random(num_clients) < self.probability
        )


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
        """The chain, which remembers the last round it was asked for."""
        return _Chain(self, num_clients, seed).at


class _Chain:
    """Walks from the last round known, or again from round 1 when asked for an earlier one."""

    def __init__(self, law: Markov, num_clients: int, seed: int) -> None:
        self._law = law
        self._num_clients = num_clients
        self._seed = seed
        self._round = 0
        self._on = np.empty(0, dtype=np.bool_)

    def at(self, round_number: int) -> BoolArray:
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
        self._on = _read_only(luck.random(self._num_clients) < chance)


Availability = Always | Bernoulli | Markov


def _read_only(mask: BoolArray) -> BoolArray:
    mask.setflags(write=False)
    return mask
