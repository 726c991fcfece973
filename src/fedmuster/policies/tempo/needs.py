"""How much clients need training: their losses and the norms of their updates, over typical ones.

A loss or a norm counts as its logarithm less the median of the last :data:`TYPICAL` that were
reported, so reports of fewer than half of these answers cannot move it far, however wrong they are.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.state import shared

TYPICAL: Final = 30
"""The median of this number of reports is the typical one."""
LARGEST_LOSS: Final = 1.0
"""The largest distance of the logarithm of a loss from the typical one.

A client reports its own loss, so a lie must gain little.
"""
LARGEST_NORM: Final = 2.0
"""The same for a norm; it is larger, because the server measures norms itself."""
MEMORY: Final = 0.5
"""The share of a client's old need that is kept when it reports again."""


@dataclass(slots=True)
class Recent:
    """The logarithms of the last :data:`TYPICAL` reports of one kind, and how many are there."""

    logs: FloatArray = shared()
    count: IntArray = shared()


@dataclass(slots=True)
class NeedState:
    """[K] smoothed logarithm of each client's need, and the number of reports it is made of."""

    log: FloatArray
    reports: IntArray
    losses: Recent
    norms: Recent


def init(num_clients: int) -> NeedState:
    """Nothing reported yet."""
    return NeedState(
        log=np.zeros(num_clients),
        reports=np.zeros(num_clients, dtype=np.int64),
        losses=Recent(logs=np.zeros(TYPICAL), count=np.array(0)),
        norms=Recent(logs=np.zeros(TYPICAL), count=np.array(0)),
    )


def learn(state: NeedState, clients: IntArray, loss: FloatArray, norm: FloatArray) -> None:
    """What ``clients`` reported; NaN where nothing was. A report that is missing is typical."""
    by_loss, with_loss = _relative(state.losses, loss, LARGEST_LOSS)
    by_norm, with_norm = _relative(state.norms, norm, LARGEST_NORM)
    reported = with_loss | with_norm
    clients, need = clients[reported], (by_loss + by_norm)[reported]
    memory = np.where(state.reports[clients] > 0, MEMORY, 0.0)
    state.log[clients] = memory * state.log[clients] + (1.0 - memory) * need
    state.reports[clients] += 1


def _relative(recent: Recent, values: FloatArray, largest: float) -> tuple[FloatArray, BoolArray]:
    """[n], logarithms of ``values`` less the typical one, and which were reported."""
    reported = np.isfinite(values) & (values > 0)
    relative = np.zeros(len(values))
    if reported.any():
        logs = np.log(values[reported])
        _remember(recent, logs)
        typical = np.median(recent.logs[TYPICAL - int(recent.count) :])
        relative[reported] = np.clip(logs - typical, -largest, largest)
    return relative, reported


def _remember(recent: Recent, logs: FloatArray) -> None:
    """Add reports; of more than :data:`TYPICAL` their quantiles, so the order does not matter."""
    if len(logs) > TYPICAL:
        logs = np.quantile(logs, (np.arange(TYPICAL) + 0.5) / TYPICAL)
    recent.logs[:] = np.concatenate([recent.logs, np.sort(logs)])[-TYPICAL:]
    recent.count[...] = min(TYPICAL, int(recent.count) + len(logs))
