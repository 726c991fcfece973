"""CS-UCB and CS-UCB-Q: the fastest clients, without and with a fairness constraint."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.config import require
from fedmuster.core.policy import PolicyTraits
from fedmuster.core.records import Feedback, FloatArray, IntArray, Problem, RoundView, Selection
from fedmuster.core.state import given, shared
from fedmuster.estimators.confidence import confidence_radius, log_rounds
from fedmuster.objectives.fairness import QueueState, empty_queues, queue_length, serve
from fedmuster.solvers.cohort import highest


@dataclass(slots=True)
class LatencyState:
    """Times each client was asked and answered, its summed latency, and the longest of all."""

    asked: IntArray
    answered: IntArray
    latency_sum: FloatArray
    slowest_seconds: FloatArray = shared()


def _fresh(problem: Problem) -> LatencyState:
    return LatencyState(
        asked=np.zeros(problem.num_clients, dtype=np.int64),
        answered=np.zeros(problem.num_clients, dtype=np.int64),
        latency_sum=np.zeros(problem.num_clients),
        slowest_seconds=np.array(0.0),
    )


def _learn(state: LatencyState, feedback: Feedback, tau_max_seconds: float | None) -> None:
    answered = feedback.answered
    state.asked[feedback.clients] += 1
    clients, latency = feedback.clients[answered], feedback.latency_seconds[answered]
    if tau_max_seconds is not None:
        latency = np.minimum(latency, tau_max_seconds)  # a reward is never below 0
    state.answered[clients] += 1
    state.latency_sum[clients] += latency
    slowest = latency.max(initial=0.0)
    np.maximum(state.slowest_seconds, slowest, out=state.slowest_seconds)


def _mean_reward(
    state: LatencyState, rows: IntArray | slice, tau_max_seconds: float | None
) -> FloatArray:
    """Mean of ``1 - tau / tau_max``; no answer earns 0, and so does a client never asked."""
    slowest = float(state.slowest_seconds) if tau_max_seconds is None else tau_max_seconds
    # Kept as counts and sums, so that a new tau_max re-scales the past for free.
    reward = state.answered[rows] - state.latency_sum[rows] / (slowest or 1.0)
    return np.asarray(reward / np.maximum(state.asked[rows], 1))


def _require_tau_max(policy: "CSUCB | CSUCBQ") -> None:
    given_ = policy.tau_max_seconds
    require(given_ is None or 0 < given_ < np.inf, policy, "tau_max_seconds", "seconds > 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class CSUCB(PolicyTraits):
    """The m fastest clients, found by UCB: each once, then the highest index.

    The reward of an answer is ``1 - tau / tau_max``, the index
    ``mean + sqrt((m+1) ln t / z_k)``, ``z_k`` the times the client was asked.

    Args:
        tau_max_seconds: the longest conceivable latency; None for the longest seen so far.

    State:
        Of each client the times asked and answered and the summed latency; the longest latency.

    Deviations:
        1. A client that was asked and did not complete earns reward 0.
        2. Without ``tau_max_seconds`` the running maximum takes its place.

    References:
        W. Xia, T. Quek, K. Guo, W. Wen, H. Yang, H. Zhu, Multi-Armed Bandit-Based Client
        Scheduling for Federated Learning, IEEE Trans. Wireless Commun. 19(11), 2020.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> Selector(CSUCB(), Problem(num_clients=20, cohort_size=5)).select().clients.shape
        (5,)
    """

    name: ClassVar[str] = "cs-ucb"

    tau_max_seconds: float | None = None

    def __post_init__(self) -> None:
        _require_tau_max(self)

    def init(self, problem: Problem) -> LatencyState:
        """Nobody observed yet."""
        return _fresh(problem)

    def select(self, state: LatencyState, view: RoundView, rng: Generator) -> Selection:
        """The m highest upper confidence bounds."""
        rows = view.candidates()
        log_term = (view.cohort_size + 1) * log_rounds(view.round)
        index = confidence_radius(state.asked[rows], log_term)
        index += _mean_reward(state, rows, self.tau_max_seconds)
        return highest(view, rows, index, rng)

    def observe(self, state: LatencyState, selection: Selection, feedback: Feedback) -> None:
        """Update counts and sums of the cohort."""
        _learn(state, feedback, self.tau_max_seconds)


@dataclass(slots=True)
class FairLatencyState:
    """CS-UCB's state, the queues, and the rate at which they grow (``c_k``)."""

    latency: LatencyState
    queue: QueueState
    rate: FloatArray = given()


@dataclass(frozen=True, kw_only=True, slots=True)
class CSUCBQ(PolicyTraits):
    """The fastest clients, but each at least a given share of the rounds.

    Takes the m available clients with the highest ``(1 - b) y + b D``, where
    ``y = min(mean + sqrt(2 ln t / z_k), 1)`` and the virtual queue
    ``D <- max(0, D + c_k - chosen)`` says how much participation a client is owed.

    Args:
        fairness: the guaranteed share ``c_k`` as a fraction of the equal share m/K, in [0, 1].
        queue_weight: b, in [0, 1].
        tau_max_seconds: the longest conceivable latency; None for the longest seen so far.

    State:
        CS-UCB's, and of each client its queue.

    Deviations:
        1. As CS-UCB.
        2. The paper leaves c_k and b to the user; half the equal share and b = 0.5 by default.
        3. When clients join, the equal share shrinks, also in what is owed for past rounds.

    References:
        W. Xia, T. Quek, K. Guo, W. Wen, H. Yang, H. Zhu, Multi-Armed Bandit-Based Client
        Scheduling for Federated Learning, IEEE Trans. Wireless Commun. 19(11), 2020.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> Selector(CSUCBQ(), Problem(num_clients=20, cohort_size=5)).select().clients.shape
        (5,)
    """

    name: ClassVar[str] = "cs-ucb-q"

    fairness: float = 0.5
    queue_weight: float = 0.5
    tau_max_seconds: float | None = None

    def __post_init__(self) -> None:
        require(0 <= self.fairness <= 1, self, "fairness", "a number in [0, 1]")
        require(0 <= self.queue_weight <= 1, self, "queue_weight", "a number in [0, 1]")
        _require_tau_max(self)

    def init(self, problem: Problem) -> FairLatencyState:
        """Nobody observed yet, nobody owed anything."""
        equal_share = min(1.0, problem.cohort_size / problem.num_clients)
        return FairLatencyState(
            latency=_fresh(problem),
            queue=empty_queues(problem.num_clients, problem.first_round),
            rate=np.array(self.fairness * equal_share),
        )

    def select(self, state: FairLatencyState, view: RoundView, rng: Generator) -> Selection:
        """The m highest sums of optimism and queue."""
        rows = view.candidates()
        radius = confidence_radius(state.latency.asked[rows], 2 * log_rounds(view.round))
        speed = np.minimum(_mean_reward(state.latency, rows, self.tau_max_seconds) + radius, 1.0)
        owed = queue_length(state.queue, rows, view.round, float(state.rate))
        index = (1 - self.queue_weight) * speed + self.queue_weight * owed
        return highest(view, rows, index, rng)

    def observe(self, state: FairLatencyState, selection: Selection, feedback: Feedback) -> None:
        """Update counts and sums of the cohort, and serve its queues."""
        _learn(state.latency, feedback, self.tau_max_seconds)
        serve(state.queue, selection.clients, round_=selection.round, rate=float(state.rate))
