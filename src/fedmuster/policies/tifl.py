"""TiFL: cohorts of about equally fast clients, with its tiers, its odds and its explanation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.speed import LatencyReward, LatencyState, check_seconds
from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.explaining import Moment, Rule
from fedmuster.core.policy import POLICIES, PolicyTraits
from fedmuster.core.records import LARGEST_COUNT, Feedback, Problem, RoundView, Selection
from fedmuster.core.state import given, shared
from fedmuster.core.words import number, percent, several
from fedmuster.policies.score_columns import EVERYBODY
from fedmuster.solvers.top_k import highest, nobody


@dataclass(slots=True)
class TierState:
    """Latencies of each client, and the longest mean latency of each tier but the last."""

    latency: LatencyState
    bounds_seconds: FloatArray = shared()


@dataclass(frozen=True, kw_only=True, slots=True)
class LatencyTiers:
    """``num_tiers`` tiers of equal size by mean latency; tier 0 is the fastest.

    A missing answer counts as the longest latency of any client, or as the timeout where there is
    one. A client that never answered is in the last tier. :meth:`divide` sets the bounds; between
    two calls clients change tiers as their means change.

    Args:
        num_tiers: T.
        timeout_seconds: nothing counts as longer; None for the longest seen so far.
    """

    num_tiers: int
    timeout_seconds: float | None = None

    def init(self, num_clients: int) -> TierState:
        """Nobody observed yet: all are in tier 0."""
        return TierState(
            latency=self._latency.init(num_clients),
            bounds_seconds=np.full(self.num_tiers - 1, np.inf),
        )

    def update(self, state: TierState, feedback: Feedback) -> None:
        """Count the answers and the missing answers of a round."""
        self._latency.update(state.latency, feedback)

    def mean_seconds(self, state: TierState, rows: IntArray | slice) -> FloatArray:
        """Mean latency; 0 of a client that was never asked."""
        return self._latency.mean_seconds(state.latency, rows)

    def divide(self, state: TierState) -> None:
        """Set the bounds so that all tiers have as many of the clients that ever answered.

        Clients of the same mean are in the same tier.
        """
        means = self.mean_seconds(state, np.flatnonzero(state.latency.answered))
        if len(means) > 0:
            ends = -(-len(means) * np.arange(1, self.num_tiers) // self.num_tiers) - 1
            state.bounds_seconds[:] = np.partition(means, ends)[ends]

    def tier(self, state: TierState, rows: IntArray | slice) -> IntArray:
        """The tier of each client: how many bounds its mean exceeds; 0 if it was never asked."""
        tier = np.searchsorted(state.bounds_seconds, self.mean_seconds(state, rows))
        silent = (state.latency.answered[rows] == 0) & (state.latency.asked[rows] > 0)
        tier[silent] = self.num_tiers - 1
        return tier

    def means(self, state: TierState, values: FloatArray) -> FloatArray:
        """[T], the mean in each tier of those ``values`` ([K]) that are finite; -inf of none."""
        rows = np.flatnonzero(np.isfinite(values))
        tier = self.tier(state, rows)
        members = np.bincount(tier, minlength=self.num_tiers)
        total = np.bincount(tier, weights=values[rows], minlength=self.num_tiers)
        means = np.full(self.num_tiers, -np.inf)
        np.divide(total, members, out=means, where=members > 0)
        return means

    @property
    def _latency(self) -> LatencyReward:
        return LatencyReward(tau_max_seconds=self.timeout_seconds)


@dataclass(slots=True)
class OddsState:
    """Of each tier: probability, draws since credits were given, accuracy at the last look."""

    probability: FloatArray = shared()
    drawn: IntArray = shared()
    accuracy: FloatArray = shared()


@dataclass(frozen=True, kw_only=True, slots=True)
class TierOdds:
    """TiFL's adaptive choice of a tier (Alg. 2).

    ``credits`` says how often each tier may be drawn before all credits are spent and given anew;
    it is empty for any number of times.
    """

    num_tiers: int
    credits: tuple[int, ...] = ()

    def init(self) -> OddsState:
        """All tiers are equally likely."""
        return OddsState(
            probability=np.full(self.num_tiers, 1.0 / self.num_tiers),
            drawn=np.zeros(self.num_tiers, dtype=np.int64),
            accuracy=np.full(self.num_tiers, -np.inf),
        )

    def chances(self, state: OddsState) -> FloatArray:
        """[T], P(drawn now); 0 for tiers without credits left."""
        weight = state.probability * (state.drawn < (self.credits or np.inf))
        return np.asarray(weight / weight.sum())

    def spend(self, state: OddsState, tier: int) -> None:
        """Count that ``tier`` was drawn; when all credits are spent, give them anew."""
        state.drawn[tier] += 1
        if self.credits and (state.drawn >= self.credits).all():
            state.drawn[:] = 0

    def adapt(self, state: OddsState, tier: int, accuracy: FloatArray) -> None:
        """Change the probabilities, if that of ``tier`` is not above what it was the last time.

        The lowest of the T accuracies gets T shares, …, the highest 1; equals get the same.
        """
        if accuracy[tier] <= state.accuracy[tier]:
            shares = np.count_nonzero(accuracy >= accuracy[:, None], axis=1)
            state.probability[:] = shares / shares.sum()  # TiFL Alg. 2
        state.accuracy[:] = accuracy


@dataclass(slots=True)
class TiFLState:
    """Latencies and tiers, the odds of each tier, each client's last accuracy (-inf: unheard).

    And the cohort size.
    """

    tiers: TierState
    odds: OddsState
    accuracy: FloatArray
    cohort_size: IntArray = given()


@POLICIES.register
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
        6. Without rounds, a tier is drawn for each choice, and m answers make up a round: every
           m-th answer costs its tier a credit, and every I m-th is followed by a look at tiers and
           probabilities.

    References:
        Z. Chai et al., TiFL: A Tier-based Federated Learning System, HPDC 2020.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> Selector(TiFL(), Problem(num_clients=20, cohort_size=5)).select().clients.shape
        (5,)
    """

    name: ClassVar[str] = "tifl"
    terms: ClassVar[Mapping[str, str]] = {
        "mean_seconds": "its mean latency",
        "tier": "0 is the fastest",
        "tier_probability": "how likely its tier was to be drawn",
        "tier_credits": "how often its tier may still be drawn",
        "accuracy": "of the global model on its data, as it last said",
    }
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
            fits = 1 <= getattr(self, name) <= LARGEST_COUNT
            require(fits, self, name, f"an integer from 1 to {LARGEST_COUNT:,}")
        expected = f"nothing, or {self.num_tiers} integers >= 1"
        fits = len(self.credits) in (0, self.num_tiers) and min(self.credits, default=1) >= 1
        require(fits, self, "credits", expected)
        require(0 <= self.profiled_share <= 1, self, "profiled_share", "a number in [0, 1]")
        check_seconds(self, "timeout_seconds")

    def init(self, problem: Problem) -> TiFLState:
        """Nobody profiled yet; all tiers are equally likely."""
        return TiFLState(
            tiers=self._tiers.init(problem.num_clients),
            odds=self._odds.init(),
            accuracy=np.full(problem.num_clients, -np.inf),
            cohort_size=np.array(problem.cohort_size),
        )

    def select(self, state: TiFLState, view: RoundView, rng: Generator) -> Selection:
        """Those to profile, then the tier that is drawn, then the nearest ones."""
        if view.num_to_choose == 0:
            return nobody(view)
        rows, asked = view.candidates(), state.tiers.latency.asked
        drawn = rng.choice(self.num_tiers, p=self._odds.chances(state.odds))
        tier = np.where(asked[rows] > 0, self._tiers.tier(state.tiers, rows), drawn)
        return highest(view, rows, self.priority(tier, self.lacking(asked)[rows], drawn), rng)

    def lacking(self, asked: IntArray | FloatArray) -> FloatArray:
        """[K], how often each client must still be asked to be profiled; 0 when enough are."""
        lacking = self.profiling_rounds - asked.astype(np.float64)
        enough = np.count_nonzero(lacking <= 0) >= self.profiled_share * len(lacking)
        return np.zeros(len(lacking)) if enough else np.maximum(lacking, 0.0)

    def priority(self, tier: IntArray | FloatArray, lacking: FloatArray, drawn: int) -> FloatArray:
        """Clients to profile first, then the drawn tier: 0, the next faster: -1, next slower: -2 …

        A client that was never asked counts as one of the drawn tier.
        """
        slower_by = tier - drawn  # how many tiers; negative for a faster tier
        return np.where(lacking > 0, lacking, (slower_by < 0) - 2.0 * np.abs(slower_by))

    def observe(self, state: TiFLState, selection: Selection, feedback: Feedback) -> None:
        """Count latencies, remember accuracies; every I rounds look at tiers and odds again."""
        clients = selection.clients
        draws, due = self._passed(state, selection, feedback)
        profiled = clients[state.tiers.latency.asked[clients] >= self.profiling_rounds]
        members = np.bincount(self._tiers.tier(state.tiers, profiled), minlength=self.num_tiers)
        # Tiers without credits cannot have been drawn: they have fewer votes than an open one, even
        # without members. Backwards, so that of two tiers the slower one is taken.
        votes = np.where(self._odds.chances(state.odds) > 0, 1 + members, 0)
        at_hand = self.num_tiers - 1 - int(votes[::-1].argmax())
        self._tiers.update(state.tiers, feedback)
        # How well the model serves each client: its accuracy, or else minus the loss.
        unknown = np.full(len(feedback.clients), np.nan)
        signals = feedback.signals
        sent = signals.get("accuracy_before", -signals.get("loss", unknown))
        heard = feedback.answered & np.isfinite(sent)
        state.accuracy[feedback.clients[heard]] = sent[heard]
        if due or len(profiled) < len(clients):
            self._tiers.divide(state.tiers)
        if len(profiled) > 0:
            for _ in range(draws):
                self._odds.spend(state.odds, at_hand)
            if due:
                accuracy = self._tiers.means(state.tiers, state.accuracy)
                self._odds.adapt(state.odds, at_hand, accuracy)

    def _passed(
        self, state: TiFLState, selection: Selection, feedback: Feedback
    ) -> tuple[int, bool]:
        """How many rounds end with these answers, and whether an interval of I rounds does."""
        if selection.tickets is None:
            return 1, feedback.round % self.interval == 0
        size, before = int(state.cohort_size), int(state.tiers.latency.asked.sum())
        rounds = (before // size, (before + len(selection.clients)) // size)
        return rounds[1] - rounds[0], rounds[1] // self.interval > rounds[0] // self.interval

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return ByTier(self)

    def scores(self, state: TiFLState, view: RoundView) -> Mapping[str, FloatArray]:
        """Of the clients asked so far: mean latency, tier with its odds, last accuracy."""
        asked, tier = state.tiers.latency.asked, self._tiers.tier(state.tiers, EVERYBODY)
        columns = {
            "mean_seconds": self._tiers.mean_seconds(state.tiers, EVERYBODY),
            "tier": tier,
            "times_asked": asked,
            "tier_probability": self._odds.chances(state.odds)[tier],
            "tier_credits": ((self.credits or np.nan) - state.odds.drawn)[tier],
            "accuracy": np.where(state.accuracy > -np.inf, state.accuracy, np.nan),
        }
        return {name: np.where(asked > 0, values, np.nan) for name, values in columns.items()}

    @property
    def _tiers(self) -> LatencyTiers:
        return LatencyTiers(num_tiers=self.num_tiers, timeout_seconds=self.timeout_seconds)

    @property
    def _odds(self) -> TierOdds:
        return TierOdds(num_tiers=self.num_tiers, credits=self.credits)


@dataclass(frozen=True, slots=True)
class ByTier(Rule):
    """TiFL: a tier is drawn, and the cohort from it."""

    policy: TiFL

    needs = ("tier", "tier_probability", "times_asked")

    def about(self, moment: Moment) -> str:
        """The rule."""
        return (
            f"one of {self.policy.num_tiers} tiers of about equally fast clients is drawn, and the "
            "cohort uniformly from it; clients that are not yet profiled come first"
        )

    def merit(self, moment: Moment) -> FloatArray:
        """As the policy orders clients, for the tier that it must have drawn."""
        drawn = self._drawn(moment)
        return self._priority(moment, 0 if drawn is None else drawn)

    def worth(self, moment: Moment) -> str | None:
        """Which tier was drawn."""
        fitting = self.fitting(moment)
        if not fitting:
            return "All of the cohort are to be profiled, whichever tier was drawn"
        mine = moment.column("tier") == fitting[0]
        members = int(np.count_nonzero(moment.available & mine))
        others = "".join(f" or {tier}" for tier in fitting[1:])
        told = f"Tier {fitting[0]}{others} was drawn, as the cohort shows"
        if mine.any():
            told += f"; its chance was {percent(float(moment.column('tier_probability')[mine][0]))}"
        return f"{told}, and {several(members, 'client')} of it could be chosen"

    def chosen(self, moment: Moment, client: int) -> str:
        """It must be profiled, its tier was drawn, or it helps out."""
        if alike := self._alike(moment, client, "it must be profiled"):
            return alike
        tier, drawn = float(moment.column("tier")[client]), self._drawn(moment)
        return f"it is of tier {tier:.0f}, and tier {drawn}, which was drawn, had too few"

    def passed_over(self, moment: Moment, client: int) -> str:
        """Another tier was drawn, or the client was unlucky within its own tier."""
        if alike := self._alike(moment, client, "it is to be profiled"):
            return alike
        tier, drawn = float(moment.column("tier")[client]), self._drawn(moment)
        if drawn is None:
            return f"it is profiled (tier {tier:.0f}), and those who are not come first"
        own = float(moment.column("tier_probability")[client])
        return (
            f"it is of tier {tier:.0f} (mean latency "
            f"{number(float(moment.column('mean_seconds')[client]))} s), and tier {drawn} was "
            f"drawn; its own would have been with a chance of {percent(own)}"
        )

    def fitting(self, moment: Moment) -> list[int]:
        """The tiers for which this cohort is the best there is, most of its clients first."""
        cohort, others = moment.cohort, moment.passed_over
        if len(cohort) == 0 or (self._lacking(moment)[cohort] > 0).all():
            return []
        fitting = []
        for tier in range(self.policy.num_tiers):
            merit = self._priority(moment, tier)
            if merit[cohort].min() >= merit[others].max(initial=-np.inf):
                fitting.append((int(np.count_nonzero(moment.column("tier")[cohort] == tier)), tier))
        return [tier for _, tier in sorted(fitting, reverse=True)]

    def _alike(self, moment: Moment, client: int, profiling: str) -> str:
        """Why only chance decided among clients like this one; empty where it did not."""
        tier = float(moment.column("tier")[client])
        if self._lacking(moment)[client] > 0:
            why = profiling
        elif np.isnan(tier):
            why = "it was never asked, and may help any tier"
        elif tier == self._drawn(moment):
            why = f"it is of tier {tier:.0f}, which was drawn"
        else:
            return ""
        merit = self.merit(moment)
        alike = np.flatnonzero(moment.available & (merit == merit[client]))
        taken = int(np.isin(alike, moment.cohort).sum())
        return (
            f"{why}; {taken:,} of {several(len(alike), 'such client')} were taken, by chance "
            f"({percent(taken / len(alike))} each)"
        )

    def _lacking(self, moment: Moment) -> FloatArray:
        return self.policy.lacking(np.nan_to_num(moment.column("times_asked")))

    def _priority(self, moment: Moment, drawn: int) -> FloatArray:
        tier = np.nan_to_num(moment.column("tier"), nan=drawn)
        return self.policy.priority(tier, self._lacking(moment), drawn)

    def _drawn(self, moment: Moment) -> int | None:
        """The tier that fits best; None if all of the cohort are to be profiled."""
        return next(iter(self.fitting(moment)), None)
