"""Finds clients whose updates point against those of all others: they may flip signs.

A robust mean of a cohort shrinks bad updates, but it sees each cohort for the first time. A server
that remembers can tell more: the cosine between an update and the mean direction of the others is
above 0 for most honest clients in the long run, and below 0 for those that work against them.

- Each update is kept as a short sketch of length 1 (directions only, so a long one has no more
  weight), the newest of each of the last 30 clients that answered.
- The *agreement* of an answer is the cosine with the mean of the others there. A client is trusted
  unless the mean of its last ten agreements is below 0 by more than two standard errors of a sketch
  of pure noise. So privacy noise condemns few clients, and one that changes is trusted again.
- With fewer than five others nobody is judged.

A measurement: 100 clients have labels by Dirichlet(0.3), 20 of them flip the sign of their updates,
and ten are chosen at random. From round 20 on 95 to 100 % of the 20 have negative agreements, and 6
to 14 % of the honest clients. With Dirichlet(0.1) it is 65 to 85 % and 24 %. An honest client whose
data are unlike all others' looks like one that works against them.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray

SKETCH_SIZE: Final = 1024
"""Numbers in the sketch of an update, where the policy does not want sketches of its own."""
_MOST_KEPT: Final = 30
_FEWEST_OTHERS: Final = 5
_WINDOW: Final = 10
_STANDARD_ERRORS: Final = 2.0


class UpdateCheck:
    """Remembers directions of updates, and which clients work against the others."""

    def __init__(self) -> None:
        self._clients: IntArray = np.empty(0, dtype=np.int64)  # the newest last
        self._directions = np.empty((0, 0))
        self._agreements = np.full((0, _WINDOW), np.nan)
        self._answers: IntArray = np.zeros(0, dtype=np.int64)

    def judge(self, clients: IntArray, sketches: FloatArray) -> BoolArray:
        """bool[n], which of these clients are trusted, after a look at their updates.

        Args:
            clients: int64[n], each once.
            sketches: [n, q], finite.
        """
        if len(clients) == 0:
            return np.ones(0, dtype=np.bool_)
        lengths = np.linalg.norm(sketches, axis=1, keepdims=True)
        directions = np.divide(sketches, lengths, out=np.zeros_like(sketches), where=lengths > 0)
        self._keep(clients, directions)
        self._make_room(int(clients.max()) + 1)
        # The mean of the others, from the sum of all: each client stands there at most once.
        total, count = self._directions.sum(axis=0), len(self._clients)
        others = total - np.where(np.isin(clients, self._clients)[:, np.newaxis], directions, 0.0)
        others_length = np.linalg.norm(others, axis=1)
        if count > _FEWEST_OTHERS:
            judged = others_length > 0
            cosine = np.einsum("nq,nq->n", directions[judged], others[judged])
            rows = clients[judged]
            slots = self._answers[rows] % _WINDOW
            self._agreements[rows, slots] = cosine / others_length[judged]
            self._answers[rows] += 1
        return self.trusts(clients, sketches.shape[1])

    def trusts(self, clients: IntArray, size: int) -> BoolArray:
        """bool[n], which of these clients are trusted now; ``size`` is that of sketches."""
        self._make_room(int(clients.max(initial=-1)) + 1)
        known = np.minimum(self._answers[clients], _WINDOW)
        total = np.nansum(self._agreements[clients], axis=1)
        chance = _STANDARD_ERRORS * np.sqrt(known / size)  # of a sum of cosines of pure noise
        return np.asarray(total >= -chance)

    def _keep(self, clients: IntArray, directions: FloatArray) -> None:
        """Remember these directions in place of older ones of the same clients."""
        stays = ~np.isin(self._clients, clients)
        older = self._directions[stays].reshape(-1, directions.shape[1])
        self._clients = np.concatenate([self._clients[stays], clients])[-_MOST_KEPT:]
        self._directions = np.concatenate([older, directions])[-_MOST_KEPT:]

    def _make_room(self, num_clients: int) -> None:
        missing = num_clients - len(self._answers)
        if missing > 0:
            self._answers = np.pad(self._answers, (0, missing))
            rows = ((0, missing), (0, 0))
            self._agreements = np.pad(self._agreements, rows, constant_values=np.nan)

    def arrays(self) -> dict[str, Any]:
        """To be saved."""
        return {
            "clients": self._clients,
            "directions": self._directions,
            "agreements": self._agreements,
            "answers": self._answers,
        }

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any]) -> "UpdateCheck":
        """The inverse of :meth:`arrays`."""
        check = cls()
        check._clients, check._directions = arrays["clients"], arrays["directions"]
        check._agreements, check._answers = arrays["agreements"], arrays["answers"]
        return check
