"""How long clients take: log-normal times, shrunk towards the fleet's, that forget after a change.

The logarithm of a client's time has a mean and a variance of its own. The mean of a client that was
seen c times is shrunk towards the fleet's as if :data:`PRIOR_TIMES` more times had the fleet's
mean; its variance begins as the common one and follows its own residuals. A change of a client's
speed is found by a two-sided CUSUM of standardised residuals (Page 1954); from then on only what
came after it counts for the mean. While a speed is steady the mean is over all times, and from
:data:`LONGEST_WINDOW` on an exponential average of about that length.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.state import shared

PRIOR_TIMES: Final = 0.25
"""Observations that the mean of the fleet is worth."""
LARGEST_VARIANCE: Final = 4.0
"""No variance counts as larger: a mean time is at most e² medians."""
LONGEST_WINDOW: Final = 20
"""No client's mean is over more observations than this."""
UNSEEN_Z: Final = -0.674
"""Standard deviations from the mean: the first quartile, for a client that was never seen."""
_SLACK, _ALARM = 0.5, 4.0  # of the CUSUM, in standard deviations: Page's for a change of one
_LARGEST_DEVIATION = 3.0  # one time alone raises no alarm, however odd it is
_NEW_SHARE = 0.1  # the weight of the newest squared residual in a client's variance
_USUAL_SPREAD = 0.3  # the first standard deviation of the logarithm of a client's time
_PRIOR_RESIDUALS = 10.0  # observations that the first variance counts for


@dataclass(slots=True)
class LatencyState:
    """What is known of each client's times, and of the fleet's.

    Attributes:
        count: int64[K], observations since the client's last change, up to the longest window.
        mean: [K], of their logarithms.
        variance: [K], of their logarithms.
        slower: [K], CUSUM of a slowdown.
        faster: [K], CUSUM of a speed-up.
        at_least: [K], seconds after which the client had not answered yet; 0 if it has since.
        fleet: first times of clients, also after a change: their number, and mean and sum of
            squared deviations of their logarithms.
        spread: residuals of later times: their number, and the sum of their squares.
    """

    count: IntArray
    mean: FloatArray
    variance: FloatArray
    slower: FloatArray
    faster: FloatArray
    at_least: FloatArray
    fleet: FloatArray = shared()
    spread: FloatArray = shared()


def init(num_clients: int) -> LatencyState:
    """No client seen yet."""
    return LatencyState(
        count=np.zeros(num_clients, dtype=np.int64),
        mean=np.zeros(num_clients),
        variance=np.zeros(num_clients),
        slower=np.zeros(num_clients),
        faster=np.zeros(num_clients),
        at_least=np.zeros(num_clients),
        fleet=np.zeros(3),
        spread=np.array([_PRIOR_RESIDUALS, _PRIOR_RESIDUALS * _USUAL_SPREAD**2]),
    )


def learn(state: LatencyState, clients: IntArray, seconds: FloatArray) -> None:
    """One more time of each of ``clients``, which are distinct and increasing."""
    logs, known = np.log(seconds), state.count[clients] > 0
    scale = np.sqrt(np.where(known, state.variance[clients], _common_variance(state)))
    residual = np.where(known, logs - state.mean[clients], 0.0)
    deviation = np.clip(residual / scale, -_LARGEST_DEVIATION, _LARGEST_DEVIATION)
    slower = np.maximum(state.slower[clients] + deviation - _SLACK, 0.0)  # Page 1954
    faster = np.maximum(state.faster[clients] - deviation - _SLACK, 0.0)
    changed = np.maximum(slower, faster) > _ALARM
    steady = known & ~changed
    _learn_fleet(state, logs[~steady])
    squares = (deviation * scale) ** 2
    state.spread += np.array([np.count_nonzero(known), np.sort(squares[known]).sum()])
    share = np.where(known, _NEW_SHARE, 0.0)
    state.variance[clients] = (1.0 - share) * scale**2 + share * squares
    count = np.where(steady, np.minimum(state.count[clients] + 1, LONGEST_WINDOW), 1)
    state.mean[clients] = np.where(steady, state.mean[clients] + residual / count, logs)
    state.count[clients] = count
    state.slower[clients] = np.where(changed, 0.0, slower)
    state.faster[clients] = np.where(changed, 0.0, faster)
    state.at_least[clients] = 0.0


def learn_at_least(state: LatencyState, clients: IntArray, seconds: float) -> None:
    """These clients have not answered after ``seconds``."""
    state.at_least[clients] = seconds


def expected_seconds(state: LatencyState, rows: IntArray | slice) -> FloatArray:
    """[n], the mean time of each client; 1 before any is known."""
    number, fleet, squares = state.fleet
    if number == 0:
        return np.asarray(np.maximum(1.0, state.at_least[rows]))
    count = state.count[rows]
    logs = count * state.mean[rows]
    logs += PRIOR_TIMES * fleet
    logs /= count + PRIOR_TIMES
    logs += 0.5 * np.minimum(state.variance[rows], LARGEST_VARIANCE)
    unseen = fleet + UNSEEN_Z * np.sqrt(squares / number)
    logs[count == 0] = unseen + 0.5 * min(_common_variance(state), LARGEST_VARIANCE)
    seconds = np.exp(logs, out=logs)
    return np.maximum(seconds, state.at_least[rows], out=seconds)


def _common_variance(state: LatencyState) -> float:
    return float(state.spread[1] / state.spread[0])


def _learn_fleet(state: LatencyState, logs: FloatArray) -> None:
    """First times, by the parallel form of Welford's sums; old ones fade once all were seen."""
    if len(logs) == 0:
        return
    logs = np.sort(logs)  # in one order, whatever that of the rows is
    number, mean, squares = state.fleet.tolist()
    kept = min(number, float(len(state.count)))
    squares *= kept / number if number > 0 else 1.0
    total, shift = kept + len(logs), logs.mean() - mean
    state.fleet[:] = (
        total,
        mean + shift * len(logs) / total,
        squares + ((logs - logs.mean()) ** 2).sum() + shift**2 * kept * len(logs) / total,
    )
