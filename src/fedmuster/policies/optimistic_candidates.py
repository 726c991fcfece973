"""The candidates of BSFL and PAUSE, whose u and w are computed as the solver reads them."""

from collections.abc import Iterator

import numpy as np

from fedmuster.bandits.rewards import CohortReward
from fedmuster.bandits.speed import SpeedEstimator, SpeedState
from fedmuster.core.arrays import BoolArray, FloatArray, blocks
from fedmuster.core.records import RoundView, of_rows
from fedmuster.solvers.bottleneck_candidates import EVERYONE, Clients, bounds

_BLOCK = 1 << 16
"""In smaller blocks calls would cost more than the nearest cache gains."""


class OptimisticCandidates:
    """u is an optimistic speed, w is what a client adds to the cohort's reward.

    Neither is stored. Count and mean suffice to rule out clients that are too slow to matter.
    """

    def __init__(
        self,
        speed: SpeedEstimator,
        speed_state: SpeedState,
        reward: CohortReward,
        target_share: FloatArray,
        view: RoundView,
        rows: Clients,
    ) -> None:
        self._rows, self._length = rows, view.num_available
        self._count, self._target_share = speed_state.inverse.count, target_share
        self._reward, self._view = reward, view
        self._counts = self._extreme_counts(EVERYONE)
        self._speed = speed.upper_bounds(
            speed_state, round_=view.round, cohort_size=view.cohort_size, most=self._counts[1]
        )

    def __len__(self) -> int:
        return self._length

    def bottleneck(self, clients: Clients) -> FloatArray:
        """u of these."""
        return self._speed(self._rows_of(clients))

    def weight(self, clients: Clients) -> FloatArray:
        """w of these."""
        rows = self._rows_of(clients)
        return self._reward.weights(
            self._count[rows],
            self._view.round,
            of_rows(self._target_share, rows),
            self._view.privacy_of(rows),
        )

    def reaching(self, level: float) -> BoolArray:
        """bool[n], whose u may be at least ``level``; for ``+inf`` exactly the unseen."""
        below, reaching = self._speed.below(level), np.empty(len(self), dtype=np.bool_)
        for block in blocks(len(self), _BLOCK):
            reaching[block] = below(self._rows_of(block))
        return np.logical_not(reaching, out=reaching)

    def weight_bounds(self, clients: Clients) -> tuple[float, float]:
        """A lower bound of the w of these, and their largest w; NaN where there is one."""
        if self._reward.counts_alone(self._target_share, self._view.privacy_left):
            everyone = isinstance(clients, slice)
            least, most = self._counts if everyone else self._extreme_counts(clients)
            if most - least < len(self):
                possible = self._reward.weights(
                    np.arange(least, most + 1), self._view.round, self._target_share
                )
                # Usually the client that took part least has the largest weight.
                if possible[0] == possible.max():
                    return float(possible.min()), float(possible[0])
        return bounds(self.weight(part) for part in self._parts(clients))

    def _extreme_counts(self, clients: Clients) -> tuple[int, int]:
        parts = self._parts(clients)
        least, most = bounds(self._count[self._rows_of(part)] for part in parts)
        return int(least), int(most)

    def _parts(self, clients: Clients) -> Iterator[Clients]:
        if isinstance(clients, slice):
            return blocks(len(self), _BLOCK)
        return (clients[block] for block in blocks(len(clients), _BLOCK))

    def _rows_of(self, clients: Clients) -> Clients:
        return clients if isinstance(self._rows, slice) else self._rows[clients]
