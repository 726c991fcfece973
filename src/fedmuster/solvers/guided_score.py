"""Oort's score of an explored client: what its data are worth, how long ago, and how slow it is."""

import math
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from fedmuster.core.blocks import blocks
from fedmuster.core.config import require
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.estimators.track_record import TrackRecord

_BELOW = 0.999
"""So that the least useful is not worth nothing, and equals are all worth 1 (authors' code)."""


def check_guided_score(config: object) -> None:
    """Check the hyper-parameters of a :class:`GuidedScore` in ``config``."""
    require(0 <= getattr(config, "clip", 1) <= 1, config, "clip", "a number in [0, 1]")
    for name in ("staleness", "slow_penalty"):
        require(0 <= getattr(config, name, 0) < math.inf, config, name, "a number >= 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class GuidedScore:
    """``(u + sqrt(staleness ln t / L)) (T / D)^alpha``, the last factor only where ``D > T``.

    U is the utility of a client when it was last asked, in round L; u is U, clipped and scaled to
    (0, 1]; D is how long it took then, and T the R-th percentile of all known D.

    Args:
        clip: U is clipped at the value that this share of all are below.
        staleness: of the second term.
        slow_penalty: alpha.
    """

    clip: float = 0.95
    staleness: float = 0.1
    slow_penalty: float = 2.0

    def __post_init__(self) -> None:
        check_guided_score(self)

    @classmethod
    def of(cls, config: object) -> Self:
        """The score of a policy that has the same hyper-parameters."""
        return cls(**{item.name: getattr(config, item.name) for item in fields(cls)})

    def score(
        self, record: TrackRecord, rows: IntArray, *, percentile: float, round_: int
    ) -> FloatArray:
        """Of the clients ``rows`` (increasing, all explored) in round t = ``round_``.

        Args:
            record: what is known of all clients.
            rows: whom to score; u is relative to them.
            percentile: R; from 100 on nobody is too slow.
            round_: t.
        """
        index: IntArray | slice = slice(None) if len(rows) == len(record.times) else rows
        utility, seconds = record.utility[index], record.seconds[index]
        asked = record.last_round[index]
        score = np.empty(len(rows))
        if len(rows) == 0:
            return score
        high, low = value_at(utility, self.clip), _BELOW * float(utility.min())
        span = (high - low) or 1.0  # 0 if all are
        urgency = self.staleness * math.log(round_)
        preferred = self._preferred_seconds(record, percentile)
        for block in blocks(len(rows)):
            part = np.minimum(utility[block], high)
            part -= low
            part /= span
            part += np.sqrt(urgency / asked[block])
            if preferred < math.inf:
                part *= (preferred / np.maximum(seconds[block], preferred)) ** self.slow_penalty
            score[block] = part
        return score

    def _preferred_seconds(self, record: TrackRecord, percentile: float) -> float:
        """T."""
        if percentile >= 100.0:
            return math.inf
        known = record.seconds > 0
        return value_at(record.seconds if known.all() else record.seconds[known], percentile / 100)


def value_at(values: FloatArray, share: float) -> float:
    """The value that this share of the ``values`` are below, without sorting them.

    It is one of them: number ``min(floor(share n), n - 1)`` in increasing order, counted from 0;
    ``+inf`` where there are none.

    Example:
        >>> value_at(np.array([4.0, 1.0, 3.0, 2.0]), 0.5)
        3.0
    """
    if len(values) == 0:
        return math.inf
    rank = min(int(share * len(values)), len(values) - 1)
    return float(np.partition(values, rank)[rank])
