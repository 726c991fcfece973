"""Oort: clients whose data teach the model most, and who are quick enough."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.utility import known_utility
from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.explaining import Moment, Rule, rank
from fedmuster.core.policy import POLICIES, PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection, of_rows
from fedmuster.core.state import given
from fedmuster.core.words import number, percent, several
from fedmuster.policies.oort.scores import (
    GuidedScore,
    Known,
    Pacer,
    PacerState,
    TrackRecord,
    blank_record,
    brought_in,
    learn_answers,
    learn_record,
    not_too_often,
    preferred_seconds,
)
from fedmuster.policies.score_columns import of_some
from fedmuster.solvers.top_k import draw_near_top, filled_up, weighted_draw


@dataclass(slots=True)
class OortState:
    """What is known of each client, and the pacer; data sizes, 0-d where all have alike."""

    record: TrackRecord
    pacer: PacerState
    samples: FloatArray = given()


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Oort(PolicyTraits):
    """Clients of high statistical utility that are not too slow, and some never tried before.

    Let U be ``|B| sqrt(mean loss²)`` when the client last trained, L that round and D how long it
    took. In round t an explored client scores ``u + sqrt(0.1 ln t / L)``, where u is U clipped and
    scaled to [0, 1], times ``(T / D)^alpha`` if D exceeds T, the R-th percentile of all D.

    Of m places ``floor(m eps)`` go to unexplored clients by their expected speed (uniformly where
    none is known, and in round 1), ``eps = max(0.9 · 0.98^(t-1), 0.2)``. The e others are drawn by
    score among all with at least c times the score at rank e. What is left is filled uniformly.
    Oort asks 1.3 m and keeps the first m answers: that is ``over_selection = 1.3`` of a world.

    Args:
        exploration: eps at first. Paper: 0.9.
        exploration_decay: its factor each round. Paper: 0.98.
        exploration_floor: the least eps, while somebody is unexplored. Paper: 0.2.
        pacer: how R changes.
        cut_off: c. Paper: 0.95.
        clip: where U is clipped, as a share. Paper: 0.95.
        staleness: weight of the second term. Paper: 0.1.
        slow_penalty: alpha. Paper: 2.
        blacklist_rounds: who was asked more often is left out; None for nobody, as in the code.
        blacklist_share: at most so many of all clients, those asked most. Code: 0.3.

    State:
        Of each client U, D, L and how often it was asked; of the pacer R and two window sums.

    Deviations:
        1. R, and how it moves, is the authors' code; the paper adds to T when utility falls.
        2. Who was asked and did not answer is explored: with the mean utility of those who did (as
           in the code), and as slow as the round, or as it was before if that is slower.
        3. Without losses U is the number of samples. An unknown D is in no percentile.
        4. If ``m eps < 1``, one place is explored with that probability: floor would say never.
        5. The unexplored are drawn by expected speed, as the paper's text has it; by size times
           penalty within a window in the code, which also cuts off at rank e + 1.
        6. Without rounds, as many clients as a cohort has make up a round, and answers count in the
           round in which they come. Clients heard of in this round and in the one before stand in
           for "those who did" and "the round" in 2. The pacer hears of a round when the next one
           has its first answer: the mean of what its exploited clients brought last.
        7. Faults of public code that are avoided: too few or absent clients; IndexError with nobody
           explored, or no more than there are places; TypeError when the blacklist is full; loss of
           the last mini-batch only; u scaled by the outliers that were clipped and by sizes of the
           unexplored; newcomers not explored once everybody was.
        8. In the paper silent clients keep a utility that is imputed, the pacer relaxes until no
           client counts as slow, and cohorts of silent clients stop the training. Behind a Selector
           a silent client rests after 5 jobs in a row without an answer (fedmuster.core.liveness);
           rest_after = 0 is the published rule.

    References:
        F. Lai, X. Zhu, H. V. Madhyastha, M. Chowdhury, Oort: Efficient Federated Learning via
        Guided Participant Selection, OSDI 2021.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> Selector(Oort(), Problem(num_clients=20, cohort_size=5)).select().clients.shape
        (5,)
    """

    name: ClassVar[str] = "oort"
    terms: ClassVar[Mapping[str, str]] = {
        "statistical_utility": "|B| sqrt(mean loss²) when it last trained, clipped, from 0 to 1",
        "staleness_bonus": "sqrt(0.1 ln t / L): larger, the longer ago it last trained",
        "speed_factor": "(T / D)^alpha if it is slower than the pacer prefers, else 1",
        "utility": "|B| sqrt(mean loss²) when it last trained",
        "duration_seconds": "how long it took then",
        "exploration_share": "its share in the expected speeds of those never tried",
    }

    exploration: float = 0.9
    exploration_decay: float = 0.98
    exploration_floor: float = 0.2
    pacer: Pacer = field(default_factory=Pacer)
    cut_off: float = 0.95
    clip: float = 0.95
    staleness: float = 0.1
    slow_penalty: float = 2.0
    blacklist_rounds: int | None = None
    blacklist_share: float = 0.3

    def __post_init__(self) -> None:
        check_types(self)
        shares = ("exploration", "exploration_decay", "exploration_floor", "cut_off", "clip")
        for name in (*shares, "blacklist_share"):
            require(0 <= getattr(self, name) <= 1, self, name, "a number in [0, 1]")
        for name in ("staleness", "slow_penalty"):
            require(0 <= getattr(self, name) < np.inf, self, name, "a number >= 0")
        require((self.blacklist_rounds or 0) >= 0, self, "blacklist_rounds", "an integer >= 0")

    def init(self, problem: Problem) -> OortState:
        """No client explored yet."""
        samples = problem.num_samples
        return OortState(
            record=blank_record(problem),
            pacer=self.pacer.init(),
            samples=np.array(1.0) if samples is None else samples.astype(np.float64),
        )

    def select(self, state: OortState, view: RoundView, rng: Generator) -> Selection:
        """Exploit, explore, fill up."""
        record, count, explored = state.record, view.num_to_choose, state.record.last_round > 0
        allowed = not_too_often(record.times, self.blacklist_rounds, self.blacklist_share, rng)
        known = np.flatnonzero(view.available & explored & allowed)
        unknown = np.flatnonzero(view.available & ~explored)
        eps = self.exploration * self.exploration_decay ** (view.round - 1)
        places = count * max(eps, self.exploration_floor) if len(unknown) else 0.0
        explore = int(places) if places >= 1 else int(rng.random() < places)
        exploit = min(count - explore, len(known))
        score = self._guide.of(self._known(state, known, view.round))
        best = known[draw_near_top(score, exploit, self.cut_off, rng)]
        speed, tries = record.expected_speed(unknown), min(count - exploit, len(unknown))
        tried = unknown[weighted_draw(speed, tries, rng)]
        return filled_up(view, np.concatenate([best, tried]), allowed, rng)

    def observe(self, state: OortState, selection: Selection, feedback: Feedback) -> None:
        """Remember utility and duration; tell the pacer what the exploited brought."""
        utility = known_utility(feedback, of_rows(state.samples, feedback.clients))
        if selection.tickets is None:
            brought = learn_record(state.record, feedback, utility)
            self.pacer.update(state.pacer, brought, round_=feedback.round)
            return
        heard = int(state.record.last_round.max())
        if 0 < heard < feedback.round:  # with the first answer of a round, the one before is over
            brought = brought_in(state.record, heard)
            self.pacer.update(state.pacer, brought, round_=heard, until=feedback.round - 1)
        learn_answers(state.record, feedback, utility)

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return Guided(self)

    def scores(self, state: OortState, view: RoundView) -> Mapping[str, FloatArray]:
        """Score and terms of explored available clients; the chance of each of the others."""
        K, record, explored = len(view.available), state.record, state.record.last_round > 0
        rows, new = (np.flatnonzero(view.available & which) for which in (explored, ~explored))
        weighed = self._guide.terms(self._known(state, rows, view.round))
        told = of_some(rows, K, **weighed, **record.columns(rows))
        speed = record.expected_speed(new)
        return {**told, **of_some(new, K, exploration_share=speed / speed.sum())}

    def _known(self, state: OortState, rows: IntArray, round_: int) -> Known:
        preferred = preferred_seconds(state.record.seconds, float(state.pacer.percentile))
        return Known(*state.record.of(rows), round_, preferred)

    @property
    def _guide(self) -> GuidedScore:
        return GuidedScore(clip=self.clip, staleness=self.staleness, slow_penalty=self.slow_penalty)


@dataclass(frozen=True, slots=True)
class Guided(Rule):
    """Oort: most places by score, with some luck, the others to clients never tried."""

    policy: Oort

    needs = ("score", "statistical_utility", "staleness_bonus", "speed_factor")

    def about(self, moment: Moment) -> str:
        """The rule, and how much is explored."""
        policy = self.policy
        decayed = policy.exploration * policy.exploration_decay ** (moment.round - 1)
        share = max(decayed, policy.exploration_floor)
        new = "nobody is left who was never tried"
        if (moment.available & np.isnan(moment.column("score"))).any():
            new = f"{percent(share)} of the places go to clients never tried, by expected speed"
        return (
            f"{new}; for the others score = (statistical_utility + staleness_bonus) · "
            f"speed_factor, and those with at least {policy.cut_off:g} times the last score that "
            "would be taken are drawn by it"
        )

    def merit(self, moment: Moment) -> FloatArray:
        """The score; the unexplored after all others."""
        return np.nan_to_num(moment.column("score"), nan=-np.inf)

    def worth(self, moment: Moment) -> str | None:
        """How many were exploited and explored."""
        exploited = int(np.isfinite(moment.column("score")[moment.cohort]).sum())
        explored = len(moment.cohort) - exploited
        told = f"{exploited:,} of the cohort were exploited and {explored:,} explored"
        bar = self._bar(moment)
        return told if bar is None else f"{told}; the bar was a score of {number(bar)}"

    def chosen(self, moment: Moment, client: int) -> str:
        """Exploited, or explored."""
        if np.isnan(moment.column("score")[client]):
            return f"explored: {self._new(moment, client)}"
        return f"exploited: {self._score(moment, client)}"

    def passed_over(self, moment: Moment, client: int) -> str:
        """Never tried and unlucky, too often asked, below the bar, or above it and unlucky."""
        score = float(moment.column("score")[client])
        if np.isnan(score):
            return f"it could have been explored: {self._new(moment, client)}"
        most, times = self.policy.blacklist_rounds, float(moment.column("times_asked")[client])
        if most is not None and times > most:
            return (
                f"it was asked {times:.0f} times, more than blacklist_rounds = {most}, and such "
                "clients are left out"
            )
        told, bar = self._score(moment, client), self._bar(moment)
        if bar is None:
            return f"{told}; no place was left to exploit"
        if score < bar:
            return f"{told}, below the bar of {number(bar)}"
        return f"{told}, above the bar of {number(bar)}, but the draw among these took others"

    def _bar(self, moment: Moment) -> float | None:
        score = moment.column("score")
        places = int(np.isfinite(score[moment.cohort]).sum())
        if places == 0:
            return None
        known = np.sort(score[moment.available & np.isfinite(score)])
        return float(self.policy.cut_off * known[-places])

    def _score(self, moment: Moment, client: int) -> str:
        score = moment.column("score")
        explored = np.flatnonzero(moment.available & np.isfinite(score))
        utility, bonus, factor = (float(moment.column(name)[client]) for name in self.needs[1:])
        return (
            f"its score {number(float(score[client]))} = (statistical_utility {number(utility)} + "
            f"staleness_bonus {number(bonus)}) · speed_factor {number(factor)} is rank "
            f"{rank(score, explored, client):,} of {len(explored):,} explored"
        )

    def _new(self, moment: Moment, client: int) -> str:
        new = np.isnan(moment.column("score"))
        there = int(np.count_nonzero(moment.available & new))
        places = int(np.count_nonzero(new[moment.cohort]))
        share = float(moment.column("exploration_share")[client])
        return (
            f"it was never tried; {several(places, 'place')} went to such clients, of whom "
            f"{there:,} were available, in proportion to expected speed (its share is "
            f"{percent(share)})"
        )
