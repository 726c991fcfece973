"""How long clients take: log-normal times, shrunk towards the fleet's, that forget after a change.

The logarithm of a client's time has a mean of its own. The mean of a client that was seen c times
is shrunk towards the fleet's as if it had been seen :data:`PRIOR` times more with that. A change of
a client's speed is found by a two-sided CUSUM of standardised residuals (Page 1954); from then on
only what came after it counts, so the window of each client is as long as its speed is steady.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.state import shared

PRIOR: Final = 0.25
"""Observations that the mean of the fleet is worth."""
LONGEST_WINDOW: Final = 20
"""No client's mean is over more observations than this."""
UNSEEN_QUANTILE: Final = -0.674
"""A client that was never seen is believed to be as fast as the fastest quarter of the fleet."""
_SLACK, _ALARM = 0.5, 4.0  # of the CUSUM, in standard deviations
_USUAL_SPREAD = 0.3  # of the logarithm of one client's time, before anything is known
_WORTH = 10.0  # observations that this guess is worth


@dataclass(slots=True)
class LatencyState:
    """Of each client the window's length, its mean, and two sums; of the fleet three moments."""

    count: IntArray
    mean: FloatArray
    slower: FloatArray
    faster: FloatArray
    fleet: FloatArray = shared()
    """Clients that were seen, and mean and sum of squared deviations of their first times."""
    spread: FloatArray = shared()
    """Residuals of clients' later times: how many, and the sum of their squares."""


def init(num_clients: int) -> LatencyState:
    """No client seen yet."""
    return LatencyState(
        count=np.zeros(num_clients, dtype=np.int64),
        mean=np.zeros(num_clients),
        slower=np.zeros(num_clients),
        faster=np.zeros(num_clients),
        fleet=np.zeros(3),
        spread=np.array([_WORTH, _WORTH * _USUAL_SPREAD**2]),
    )


def learn(state: LatencyState, clients: IntArray, seconds: FloatArray) -> None:
    """One more time of each of ``clients``, which are distinct and increasing."""
    logs = np.log(seconds)
    known = state.count[clients] > 0
    _learn_fleet(state, logs[~known])
    residual = np.where(known, logs - state.mean[clients], 0.0)
    deviation = residual / np.sqrt(state.spread[1] / state.spread[0])
    slower = np.maximum(state.slower[clients] + deviation - _SLACK, 0.0)  # Page 1954
    faster = np.maximum(state.faster[clients] - deviation - _SLACK, 0.0)
    changed = np.maximum(slower, faster) > _ALARM
    steady = known & ~changed
    state.spread += np.array([np.count_nonzero(steady), np.sort(residual[steady] ** 2).sum()])
    count = np.where(changed, 0, state.count[clients]) + 1
    state.count[clients] = np.minimum(count, LONGEST_WINDOW)
    state.mean[clients] += np.where(known, residual, logs) / state.count[clients]
    state.slower[clients] = np.where(changed, 0.0, slower)
    state.faster[clients] = np.where(changed, 0.0, faster)


def learn_longer(state: LatencyState, clients: IntArray, seconds: float) -> None:
    """These clients have not answered after ``seconds``: they are believed to take half more."""
    known, log = state.count[clients] > 0, np.log(1.5 * seconds)
    state.mean[clients] = np.maximum(np.where(known, state.mean[clients], -np.inf), log)
    state.count[clients] = np.maximum(state.count[clients], 1)


def expected_seconds(state: LatencyState, rows: IntArray | slice) -> FloatArray:
    """[n], the median time of each client; 1 before any is known."""
    number, fleet, squares = state.fleet
    if number == 0:
        return np.exp(state.mean[rows])
    count = state.count[rows]
    known = (count * state.mean[rows] + PRIOR * fleet) / (count + PRIOR)
    unseen = fleet + UNSEEN_QUANTILE * np.sqrt(squares / number)
    seconds: FloatArray = np.exp(np.where(count > 0, known, unseen))
    return seconds


def slow_seconds(state: LatencyState) -> float:
    """How long a slow client takes: two standard deviations above the fleet's mean, in logs."""
    number, fleet, squares = state.fleet
    return float(np.exp(fleet + 2.0 * np.sqrt(squares / max(number, 1.0))))


def _learn_fleet(state: LatencyState, logs: FloatArray) -> None:
    """The first times of further clients, by the parallel form of Welford's sums."""
    if len(logs) == 0:
        return
    logs = np.sort(logs)  # in one order, whatever that of the rows is
    number, mean, squares = state.fleet.tolist()
    total, shift = number + len(logs), logs.mean() - mean
    state.fleet[:] = (
        total,
        mean + shift * len(logs) / total,
        squares + ((logs - logs.mean()) ** 2).sum() + shift**2 * number * len(logs) / total,
    )
