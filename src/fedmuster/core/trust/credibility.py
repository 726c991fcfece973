"""Which numbers that clients claim are believed.

A policy that seeks high losses chooses a client that claims one. A claim far from what the
federation claimed lately is not believed. Far is many median absolute deviations from the median:
with one vote for each client no minority moves either. In its place counts a usual value of the
other side: the lower quartile for a claim that is too high, the upper for one that is too low. With
the median a liar would always do better than half of the honest clients, be chosen more often, and
in the end outvote them.

A claim that others might make as well cannot be told from the truth; nor can an honest client whose
data are unlike all others' from a liar: where losses differ tenfold between clients (log-normal,
0.8), Oort gives the 10 hardest of 100 clients a quarter of all slots instead of four fifths.
"""

from collections import Counter

import numpy as np
from numpy.typing import ArrayLike

from fedmuster.core import state as states
from fedmuster.core.errors import DataError, StateError
from fedmuster.core.records import BoolArray, FloatArray, IntArray
from fedmuster.core.trust.medians import median, quantile

_RECENT_CALLS = 10
"""Claims older than so many rounds do not count: losses fall as the model learns."""
_FAR = 6.0
"""In median absolute deviations, four standard deviations of a normal distribution. Honest losses
are skewed (of exponential ones 3 % are farther), and being taken for usual once is little harm."""
_LEAST_DEVIATION = 0.05
"""Of the usual value: where nearly all claim the same, small differences are believed."""
_SOUGHT_IF_SMALL = frozenset({"accuracy_before"})
"""Policies choose clients with small values of these; of all others, with large ones."""
_MOST_NAMES = 100
"""Of more things than these nothing is known: clients must not fill the server's memory."""


class Credibility:
    """Replaces claims that cannot be believed by what is usual."""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()
        """Claims not believed so far, by name."""
        self._names: list[str] = []
        # [N, K], of each name the newest claim of each client, and in which call it was made.
        self._newest = np.zeros((0, 0))
        self._made = np.zeros((0, 0), dtype=np.int64)
        self._calls: list[int] = []

    def believable(
        self,
        name: str,
        clients: IntArray,
        values: ArrayLike,
        *,
        round_: int | None = None,
        trusted: BoolArray | None = None,
    ) -> FloatArray:
        """What clients claim, with usual values in place of what cannot be believed.

        Args:
            name: of what they claim ("loss", …).
            clients: int64[n], each client once.
            values: [n]; NaN for no claim, which becomes the median, or stays NaN if nobody has
                claimed anything lately.
            round_: in which they claim it; None where each call is a round of its own.
            trusted: bool[n], the clients that are believed at all; None for all. What others claim
                has no vote, and the usual value that policies do not seek replaces it.
        """
        clients = np.asarray(clients, dtype=np.int64)
        claimed = np.asarray(values, dtype=np.float64)
        if clients.ndim != 1 or claimed.shape != clients.shape or clients.min(initial=0) < 0:
            raise DataError(
                f"Credibility: {name!r} has shape {claimed.shape}, expected one number for each of "
                f"{len(clients)} clients, which are indices >= 0"
            )
        if name not in self._names:
            if len(self._names) == _MOST_NAMES:
                return np.full(len(clients), np.nan)
            self._names.append(name)
            self._calls.append(0)
        row = self._names.index(name)
        self._make_room(int(clients.max(initial=-1)) + 1)
        heard = np.isfinite(claimed)
        if trusted is not None:
            heard &= trusted
        self._calls[row] = self._calls[row] + 1 if round_ is None else round_
        recent = self._recent(row, clients[heard], claimed[heard])
        if len(recent) == 0:
            return np.full(len(clients), np.nan)
        usual, far, near = _usual(recent)
        odd = np.abs(claimed - usual) > far  # infinity is, NaN is not
        if odd.any():
            self.refused[name] += int(np.count_nonzero(odd))
        low, high = quantile(near, 0.25), quantile(near, 0.75)
        believed = np.where(odd, np.where(claimed > usual, low, high), claimed)
        believed = np.where(np.isnan(claimed), usual, believed)
        if trusted is None:
            return believed
        unsought = high if name in _SOUGHT_IF_SMALL else low
        return np.where(trusted, believed, unsought)

    def _recent(self, row: int, clients: IntArray, claimed: FloatArray) -> FloatArray:
        """Note these claims; the newest of each client that made one lately."""
        self._newest[row, clients] = claimed
        self._made[row, clients] = self._calls[row]
        since = max(self._calls[row] - _RECENT_CALLS, 0)
        return np.asarray(self._newest[row, self._made[row] > since])

    def _make_room(self, num_clients: int) -> None:
        names, known = self._made.shape
        missing = ((0, len(self._names) - names), (0, max(num_clients - known, 0)))
        if missing != ((0, 0), (0, 0)):
            self._newest, self._made = np.pad(self._newest, missing), np.pad(self._made, missing)

    def to_bytes(self) -> bytes:
        """An image without pickle, see :mod:`fedmuster.core.state`."""
        arrays = {"newest": self._newest, "made": self._made}
        meta = {"names": self._names, "calls": self._calls, "refused": dict(self.refused)}
        return states.to_bytes(arrays, meta)

    @classmethod
    def from_bytes(cls, image: bytes) -> "Credibility":
        """The credibility whose image :meth:`to_bytes` made."""
        source = "the state of what clients claim"
        arrays, meta = states.from_bytes(image, source=source)
        credibility = cls()
        try:
            credibility._names, credibility._calls = meta["names"], meta["calls"]
            credibility._newest, credibility._made = arrays["newest"], arrays["made"]
            credibility.refused.update(meta["refused"])
        except (KeyError, TypeError) as error:
            raise StateError(f"{source} was saved by another version: start anew") from error
        return credibility


def _usual(recent: FloatArray) -> tuple[float, float, FloatArray]:
    """The usual value, how far from it is too far, and what is not.

    What is too far has no vote, or a minority would move the median to a high quantile of the
    honest, which is a gain.
    """
    votes = recent
    while True:
        usual = median(votes)
        deviation = median(np.abs(votes - usual))
        far = _FAR * max(deviation, _LEAST_DEVIATION * abs(usual))
        near = recent[np.abs(recent - usual) <= far]
        if len(near) >= len(votes):
            return usual, far, near
        votes = near
