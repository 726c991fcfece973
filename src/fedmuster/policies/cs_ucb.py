"""CS-UCB: the fastest clients; CS-UCB-Q: the same, with a guaranteed share for each client."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.means import Bonus, check_bonus
from fedmuster.bandits.rewards import QueueState, empty_queues, queue_length, serve
from fedmuster.bandits.speed import LatencyReward, LatencyState, check_seconds
from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.explaining import Rule
from fedmuster.core.policy import POLICIES, PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.state import given
from fedmuster.policies.explaining.simple_rules import Highest
from fedmuster.policies.score_columns import EVERYBODY, published
from fedmuster.solvers.top_k import highest

_REWARD_SD = "estimated standard deviation of its reward, to which its bonus is proportional"


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class CSUCB(PolicyTraits):
    """The m fastest clients, found by UCB: each once, then the highest index.

    The reward of an answer is ``1 - tau / tau_max``, the index
    ``mean + sqrt((m+1) ln t / z_k)``, ``z_k`` the times the client was asked.

    Args:
        tau_max_seconds: the longest conceivable latency; None for the longest seen so far.
        bonus: "published"; "variance" for ``sqrt(2 s² ln t / z_k)`` with the variance s² of the
            client's rewards (deviation 4), which explores far less; "minimax" for the same with
            ``ln+(z̄ / z_k)`` in place of ``ln t``, z̄ the mean of all ``z_k``: less still.
        scale: factor on the bonus.

    State:
        Of each client the times asked and answered and the summed latency; the longest latency.
        With another bonus also the variance of each client's latencies.

    Deviations:
        1. A client that was asked and did not complete earns reward 0.
        2. Without ``tau_max_seconds`` the running maximum takes its place.
        3. Without rounds, as many clients as a cohort has make up a round, and m in the index is
           the number of clients that are chosen at once: 1 where slots are filled one by one, as
           in UCB1.
        4. The bonuses "variance" and "minimax" are not in the paper. They have
           ``s² = (z_k v + 0.02) / (z_k + 2)``, where v is the mean squared deviation of the
           client's rewards. Neither depends on m.

    References:
        W. Xia, T. Quek, K. Guo, W. Wen, H. Yang, H. Zhu, Multi-Armed Bandit-Based Client
        Scheduling for Federated Learning, IEEE Trans. Wireless Commun. 19(11), 2020.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> Selector(CSUCB(), Problem(num_clients=20, cohort_size=5)).select().clients.shape
        (5,)
    """

    name: ClassVar[str] = "cs-ucb"
    terms: ClassVar[Mapping[str, str]] = {
        "mean_reward": "mean of 1 - latency / (longest latency); no answer counts as 0",
        "reward_sd": _REWARD_SD,
    }

    tau_max_seconds: float | None = None
    bonus: Bonus = "published"
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_types(self)
        check_seconds(self, "tau_max_seconds")
        check_bonus(self)

    @property
    def _reward(self) -> LatencyReward:
        return LatencyReward.of(self)

    def init(self, problem: Problem) -> LatencyState:
        """No client observed yet."""
        return self._reward.init(problem.num_clients)

    def select(self, state: LatencyState, view: RoundView, rng: Generator) -> Selection:
        """The m highest upper confidence bounds."""
        rows = view.candidates()
        mean, bonus = self._terms(state, view, rows)
        return highest(view, rows, bonus + mean, rng)

    def observe(self, state: LatencyState, selection: Selection, feedback: Feedback) -> None:
        """Update counts and sums of the cohort."""
        self._reward.update(state, feedback)

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return Highest(
            term="score",
            formula="the highest score = mean_reward + confidence_bonus",
            parts=(("mean_reward", 1.0), ("confidence_bonus", 1.0)),
        )

    def scores(self, state: LatencyState, view: RoundView) -> Mapping[str, FloatArray]:
        """The index of each client: mean reward and confidence bonus."""
        mean, bonus = self._terms(state, view, EVERYBODY)
        terms = {"mean_reward": mean, "confidence_bonus": bonus, **_spread(self._reward, state)}
        index = published(bonus + mean, **terms)
        return {**index, "times_asked": state.asked.astype(np.float64)}

    def _terms(
        self, state: LatencyState, view: RoundView, rows: IntArray | slice
    ) -> tuple[FloatArray, FloatArray]:
        factor = view.cohort_size + 1
        bonus = self._reward.radius(state, rows, round_=view.round, factor=factor)
        return self._reward.mean(state, rows), bonus


@dataclass(slots=True)
class FairLatencyState:
    """CS-UCB's state, the queues, and the rate at which they grow (``c_k``)."""

    latency: LatencyState
    queue: QueueState
    rate: FloatArray = given()


@POLICIES.register
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
        bonus: "published", or CS-UCB's "variance" or "minimax".
        scale: factor on the bonus.

    State:
        CS-UCB's, and of each client its queue.

    Deviations:
        1. As CS-UCB.
        2. The paper leaves c_k and b to the user; half the equal share and b = 0.5 by default.
        3. When clients join, the equal share shrinks, also in what is owed for past rounds.
        4. Without rounds, as many clients as a cohort has make up a round. A client that is chosen
           twice in a round serves its queue twice, which grows once.

    References:
        W. Xia, T. Quek, K. Guo, W. Wen, H. Yang, H. Zhu, Multi-Armed Bandit-Based Client
        Scheduling for Federated Learning, IEEE Trans. Wireless Commun. 19(11), 2020.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> Selector(CSUCBQ(), Problem(num_clients=20, cohort_size=5)).select().clients.shape
        (5,)
    """

    name: ClassVar[str] = "cs-ucb-q"
    terms: ClassVar[Mapping[str, str]] = {
        "mean_reward": "mean of 1 - latency / (longest latency); no answer counts as 0",
        "optimistic_reward": "mean reward and bonus, at most 1",
        "reward_sd": _REWARD_SD,
        "owed_rounds": "its queue: rounds that it is owed by the fairness guarantee",
    }

    fairness: float = 0.5
    queue_weight: float = 0.5
    tau_max_seconds: float | None = None
    bonus: Bonus = "published"
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_types(self)
        require(0 <= self.fairness <= 1, self, "fairness", "a number in [0, 1]")
        require(0 <= self.queue_weight <= 1, self, "queue_weight", "a number in [0, 1]")
        check_seconds(self, "tau_max_seconds")
        check_bonus(self)

    @property
    def _reward(self) -> LatencyReward:
        return LatencyReward.of(self)

    def init(self, problem: Problem) -> FairLatencyState:
        """No client observed yet; all queues are empty."""
        equal_share = min(1.0, problem.cohort_size / problem.num_clients)
        return FairLatencyState(
            latency=self._reward.init(problem.num_clients),
            queue=empty_queues(problem.num_clients, problem.first_round),
            rate=np.array(self.fairness * equal_share),
        )

    def select(self, state: FairLatencyState, view: RoundView, rng: Generator) -> Selection:
        """The m highest sums of optimism and queue."""
        rows = view.candidates()
        return highest(view, rows, self._index(*self._terms(state, view, rows)), rng)

    def observe(self, state: FairLatencyState, selection: Selection, feedback: Feedback) -> None:
        """Update counts and sums of the cohort, and serve its queues."""
        self._reward.update(state.latency, feedback)
        serve(state.queue, selection.clients, round_=selection.round, rate=float(state.rate))

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        b = self.queue_weight
        return Highest(
            term="score",
            formula=f"the highest score = {1 - b:g} · optimistic_reward + {b:g} · owed_rounds",
            parts=(("optimistic_reward", 1 - b), ("owed_rounds", b)),
            unseen=None,
        )

    def scores(self, state: FairLatencyState, view: RoundView) -> Mapping[str, FloatArray]:
        """The index of each client with its terms, weighted by 1 - b and by b."""
        mean, bonus, owed = self._terms(state, view, EVERYBODY)
        return published(
            self._index(mean, bonus, owed),
            mean_reward=mean,
            confidence_bonus=np.where(np.isfinite(bonus), bonus, np.nan),
            optimistic_reward=_optimistic(mean, bonus),
            owed_rounds=owed,
            **_spread(self._reward, state.latency),
            times_asked=state.latency.asked.astype(np.float64),
        )

    def _terms(
        self, state: FairLatencyState, view: RoundView, rows: IntArray | slice
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean reward, confidence bonus, queue."""
        bonus = self._reward.radius(state.latency, rows, round_=view.round, factor=2)
        owed = queue_length(state.queue, rows, view.round, float(state.rate))
        return self._reward.mean(state.latency, rows), bonus, owed

    def _index(self, mean: FloatArray, bonus: FloatArray, owed: FloatArray) -> FloatArray:
        return (1 - self.queue_weight) * _optimistic(mean, bonus) + self.queue_weight * owed


def _spread(reward: LatencyReward, state: LatencyState) -> dict[str, FloatArray]:
    """The term of the variance bonus, where it is asked for."""
    sd = reward.spread(state, EVERYBODY)
    return {} if sd is None else {"reward_sd": sd}


def _optimistic(mean: FloatArray, bonus: FloatArray) -> FloatArray:
    """y, which is at most 1, also of the unseen."""
    return np.minimum(mean + bonus, 1.0)
