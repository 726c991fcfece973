"""TiFL: cohorts of clients that are about equally fast."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.config import check_types, require
from fedmuster.core.policy import PolicyTraits
from fedmuster.core.records import Feedback, FloatArray, Problem, RoundView, Selection
from fedmuster.estimators.tier_odds import OddsState, TierOdds
from fedmuster.estimators.tiers import LatencyTiers, TierState
from fedmuster.solvers.cohort import highest, nobody


@dataclass(slots=True)
class TiFLState:
    """Who is in which tier, how likely each tier is, and the last accuracies (-inf: unheard)."""

    tiers: TierState
    odds: OddsState
    accuracy: FloatArray


@dataclass(frozen=True, kw_only=True, slots=True)
class TiFL(PolicyTraits):
    """Clients of one tier, about as fast as each other; rather of one that the model serves badly.

    Clients are profiled and divided into tiers of equal size by their mean latency. A round draws
    a tier among those with credits left, which costs it one, and m clients uniformly from it. Every
    I rounds, if the accuracy of the tier at hand has not risen since the last time, probabilities
    change: the tier of the lowest accuracy gets T shares, the next T - 1, …, the best 1 (Alg. 2).

    Args:
        num_tiers: T. Paper: 5.
        interval: I, after how many rounds probabilities and tiers may change. Public code: 10.
        credits: how often each tier may be drawn, the fastest first; none for any number of times.
        profiling_rounds: how often a client is asked before it is profiled.
        profiled_share: until so many of all clients are profiled, those who are not come first.
        timeout_seconds: T_max, no latency counts as longer; None for the longest seen.

    State:
        Of each client the mean latency and the last accuracy; of each tier probability, use since
        credits were last given, and accuracy when probabilities were last looked at.

    Deviations:
        1. The paper profiles everybody before it trains; here profiling is training. A client that
           was never asked may be drawn with every tier.
        2. The paper leaves out who never answered while profiled; here it is in the slowest tier.
        3. If a tier has too few clients that are available, the nearest tiers help out, of two
           the faster one first. The tier at hand is taken to be the one with credits left that
           most of the profiled clients of the cohort are in, of two the slower one.
        4. The accuracy of a tier is the mean of what its clients last sent: the signal
           "accuracy_before", or else minus the loss. The paper tests each tier every round.
        5. The paper leaves open by how much probabilities change; shares by rank are what public
           implementations have. If all credits are spent, they are given anew.

    References:
        Z. Chai et al., TiFL: A Tier-based Federated Learning System, HPDC 2020.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> Selector(TiFL(), Problem(num_clients=20, cohort_size=5)).select().clients.shape
        (5,)
    """

    name: ClassVar[str] = "tifl"
    wants_gain: ClassVar[bool] = True

    num_tiers: int = 5
    interval: int = 10
    credits: tuple[int, ...] = ()
    profiling_rounds: int = 1
    profiled_share: float = 0.9
    timeout_seconds: float | None = None

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("num_tiers", "interval", "profiling_rounds"):
            require(getattr(self, name) >= 1, self, name, "an integer >= 1")
        expected = f"nothing, or {self.num_tiers} integers >= 1"
        lengths = len(self.credits) in (0, self.num_tiers)
        require(lengths and min(self.credits, default=1) >= 1, self, "credits", expected)
        require(0 <= self.profiled_share <= 1, self, "profiled_share", "a number in [0, 1]")
        longest = self.timeout_seconds
        require(longest is None or 0 < longest < np.inf, self, "timeout_seconds", "seconds > 0")

    def init(self, problem: Problem) -> TiFLState:
        """Nobody profiled yet; all tiers are equally likely."""
        return TiFLState(
            tiers=self._tiers.init(problem.num_clients),
            odds=self._odds.init(),
            accuracy=np.full(problem.num_clients, -np.inf),
        )

    def select(self, state: TiFLState, view: RoundView, rng: Generator) -> Selection:
        """Those to profile, then the tier that is drawn, then the nearest ones."""
        if view.num_to_choose == 0:
            return nobody(view)
        rows, asked = view.candidates(), state.tiers.asked
        drawn = rng.choice(self.num_tiers, p=self._odds.chances(state.odds))
        slower_by = np.arange(self.num_tiers) - drawn  # how many tiers; negative if faster
        # 0, -1, -2, -3, …: the tier itself, the next faster, the next slower, the one before …
        priority_of_tier = (slower_by < 0) - 2.0 * np.abs(slower_by)
        priority = priority_of_tier[self._tiers.tier(state.tiers, rows)]
        priority[asked[rows] == 0] = 0.0  # as if of the tier that is drawn
        lacking = self.profiling_rounds - asked
        if np.count_nonzero(lacking <= 0) < self.profiled_share * len(asked):
            priority = np.where(lacking[rows] > 0, lacking[rows], priority)
        return highest(view, rows, priority, rng)

    def observe(self, state: TiFLState, selection: Selection, feedback: Feedback) -> None:
        """Count latencies, remember accuracies; every I rounds look at tiers and odds again."""
        clients, due = selection.clients, feedback.round % self.interval == 0
        profiled = clients[state.tiers.asked[clients] >= self.profiling_rounds]
        members = np.bincount(self._tiers.tier(state.tiers, profiled), minlength=self.num_tiers)
        # Tiers without credits cannot have been drawn: they have fewer votes than an open one, even
        # without members. Backwards, so that of two tiers the slower one is taken.
        votes = np.where(self._odds.chances(state.odds) > 0, 1 + members, 0)
        at_hand = self.num_tiers - 1 - int(votes[::-1].argmax())
        self._tiers.update(state.tiers, feedback)
        sent = _accuracy(feedback)
        heard = feedback.answered & np.isfinite(sent)
        state.accuracy[feedback.clients[heard]] = sent[heard]
        if due or len(profiled) < len(clients):
            self._tiers.divide(state.tiers)
        if len(profiled) > 0:
            self._odds.spend(state.odds, at_hand)
            if due:
                accuracy = self._tiers.means(state.tiers, state.accuracy)
                self._odds.adapt(state.odds, at_hand, accuracy)

    def scores(self, state: TiFLState, view: RoundView) -> Mapping[str, FloatArray]:
        """Of the clients asked so far: mean latency, tier with its odds, last accuracy."""
        asked, tier = state.tiers.asked > 0, self._tiers.tier(state.tiers, slice(None))
        columns = {
            **self._tiers.columns(state.tiers),
            "tier_probability": self._odds.chances(state.odds)[tier],
            "tier_credits": self._odds.credits_left(state.odds)[tier],
            "accuracy": np.where(state.accuracy > -np.inf, state.accuracy, np.nan),
        }
        return {name: np.where(asked, values, np.nan) for name, values in columns.items()}

    @property
    def _tiers(self) -> LatencyTiers:
        return LatencyTiers(num_tiers=self.num_tiers, timeout_seconds=self.timeout_seconds)

    @property
    def _odds(self) -> TierOdds:
        return TierOdds(num_tiers=self.num_tiers, credits=self.credits)


def _accuracy(feedback: Feedback) -> FloatArray:
    """How well the global model serves each row: "accuracy_before", or minus the loss, or NaN."""
    unknown = np.full(len(feedback.clients), np.nan)
    return feedback.signals.get("accuracy_before", -feedback.signals.get("loss", unknown))
