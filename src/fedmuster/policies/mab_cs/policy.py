"""MAB-CS: bandits on how much clients prolong a round (naive), or on their times."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.means import MeanEstimator, SampleMean
from fedmuster.bandits.speed import check_seconds
from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.explaining import Rule
from fedmuster.core.policy import POLICIES, PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.policies.explaining.simple_rules import Highest
from fedmuster.policies.mab_cs.explain import ShortSchedule, drawn_words
from fedmuster.policies.mab_cs.fedcs import ScheduledByTimes
from fedmuster.policies.mab_cs.resources import (
    PLANS_UPLOADS,
    ResourceState,
    SecondsState,
    blank_seconds,
    check_request,
    in_order,
    learn_seconds,
    reported_seconds,
    requested,
    selection_bonus,
    typical_seconds,
)
from fedmuster.policies.score_columns import EVERYBODY, published
from fedmuster.solvers.schedule import added_seconds, greedy_schedule, increments
from fedmuster.solvers.top_k import top_k


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class NaiveMABCS(PolicyTraits):
    """The clients that have prolonged rounds least so far, and those seldom tried.

    Of a random ``ceil(K C)`` clients the m with the highest

        f(S, k) = -mean(T_inc) / alpha + sqrt(ln(sum N) / (2 N_k))    (4)

    upload one after the other, in this order. ``T_inc`` is by how much k has prolonged the rounds
    that it took part in, by Eq. 1 on the times that were really needed; ``N_k`` how often it was
    selected. The unseen come first, in random order. The order of upload is one of a whole cohort:
    it needs rounds.

    Args:
        request_fraction: C, which share of the clients is asked for its times. Paper: 0.1.
        alpha: the seconds that weigh as much as one unit of the bonus. Paper: 1000, "similar to
            T_inc". None for the mean of all ``T_inc`` so far.

    State:
        Of each client the times selected and the mean ``T_inc``; of all answers the longest and
        the mean.

    Deviations:
        1. ``alpha`` follows the federation by default: 1000 s fit the paper's cell.
        2. A client that was asked and did not complete has prolonged the round by the longest
           ``T_inc`` seen so far; the others have it computed without those.
        3. Where answers say nothing of update and upload, their latency counts as update, with an
           upload of 0 s.
        4. The paper says that the bonus is smaller the less often a client was selected; by (4) it
           is larger.
        5. C is 1 by default, where the paper has 0.1; never fewer than m clients are asked for
           their times.

    References:
        N. Yoshida, T. Nishio, M. Morikura, K. Yamamoto, MAB-based Client Selection for Federated
        Learning with Uncertain Resources in Mobile Networks, IEEE Globecom Workshops 2020.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> problem = Problem(num_clients=100, cohort_size=5)
        >>> Selector(NaiveMABCS(request_fraction=0.1, alpha=1000.0), problem).select().order.shape
        (5,)
    """

    name: ClassVar[str] = "naive-mab-cs"
    terms: ClassVar[Mapping[str, str]] = {
        "time_term": "minus the mean seconds it prolonged rounds by, over alpha",
        "mean_added_seconds": "by how much it prolonged the rounds it took part in",
    }
    rounds_only: ClassVar[str | None] = PLANS_UPLOADS

    request_fraction: float = 1.0
    alpha: float | None = None

    def __post_init__(self) -> None:
        check_request(self)
        check_seconds(self, "alpha")

    def init(self, problem: Problem) -> SecondsState:
        """No client observed yet."""
        return blank_seconds(SampleMean(), problem.num_clients)

    def select(self, state: SecondsState, view: RoundView, rng: Generator) -> Selection:
        """The m highest scores, the highest first."""
        rows = requested(view, self.request_fraction, rng)
        score, cost = self._terms(state, rows)
        score -= cost  # Eq. 4
        best = rng.permutation(top_k(score, view.num_to_choose, rng))
        return in_order(view, rows, best[np.argsort(-score[best], kind="stable")])

    def observe(self, state: SecondsState, selection: Selection, feedback: Feedback) -> None:
        """Learn by how much each client of the cohort prolonged the round."""
        update, upload = reported_seconds(feedback)
        turns = _turns(selection, feedback.clients, update)
        turns = turns[feedback.answered[turns]]
        added = np.zeros(len(feedback.clients))
        added[turns] = increments(update[turns], upload[turns])  # Eq. 1
        learn_seconds(SampleMean(), state, feedback, added)

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return Highest(
            term="score",
            formula="the highest score = time_term + confidence_bonus",
            parts=(("time_term", 1.0), ("confidence_bonus", 1.0)),
            drawn=lambda moment: drawn_words(moment, self.request_fraction),
        )

    def scores(self, state: SecondsState, view: RoundView) -> Mapping[str, FloatArray]:
        """``f(S, k)``, which does not depend on S, its two terms, and the mean ``T_inc``."""
        bonus, cost = self._terms(state, EVERYBODY)
        return {
            **published(
                bonus - cost,
                time_term=-cost,
                confidence_bonus=bonus,
                mean_added_seconds=state.of_client.mean,
            ),
            "times_asked": state.of_client.count.astype(np.float64),
        }

    def _terms(self, state: SecondsState, rows: IntArray | slice) -> tuple[FloatArray, FloatArray]:
        """What Eq. 4 adds, and what it subtracts."""
        mean = state.of_client.mean[rows]
        bonus = selection_bonus(state.of_client.count, rows)
        return bonus, mean / (self.alpha or typical_seconds(state))


def _turns(selection: Selection, clients: IntArray, update: FloatArray) -> IntArray:
    """Rows of ``clients`` in upload order; without an order, in order of their update times."""
    if selection.order is None:
        return np.lexsort((clients, update))
    turn = np.argsort(selection.order)  # of each position in the selection
    return np.argsort(turn[np.searchsorted(selection.clients, clients)])


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class ElementWiseMABCS(ScheduledByTimes):
    """FedCS applied to optimistic (lower-confidence-bound) time estimates.

    Of a random ``ceil(K C)`` clients Algorithm 1 adds the one with the largest
    ``f(S, k) = -T'_inc(S, k)`` (7) until m are chosen: ``T_inc`` (1) on

        tau_UD = mean(t_UD) / beta - sqrt(ln(sum N) / (2 N_k))    (5)
        tau_UL = mean(t_UL) / beta - sqrt(ln(sum N) / (2 N_k))    (6)

    with ``N_k`` how often k was selected. The length of the schedule so far is in these units,
    too. They upload one after the other, in this order; the unseen come first, in random order,
    and count as 0 in the schedule. It needs rounds.

    Args:
        request_fraction: C, which share of the clients is asked for its times. Paper: 0.1.
        beta: the seconds that weigh as much as one unit of the bonus. Paper: 50, "similar to t_UL
            and t_UD". None for the mean of both over all answers so far.

    State:
        Of each client the times selected and the means of both times; of all answers the longest
        and the means.

    Deviations:
        1. ``beta`` follows the federation by default: 50 s fit the paper's cell.
        2. (5) and (6) may be negative. Times count as they are, but a distribution (2) takes no
           negative time, whatever the bonus: ``Td = max(0, max tau_UL)``.
        3. Deviations 2 to 5 of FedCS.

    References:
        N. Yoshida, T. Nishio, M. Morikura, K. Yamamoto, MAB-based Client Selection for Federated
        Learning with Uncertain Resources in Mobile Networks, IEEE Globecom Workshops 2020.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> problem = Problem(num_clients=100, cohort_size=5)
        >>> Selector(ElementWiseMABCS(beta=50.0), problem).select().order.shape
        (5,)
    """

    name: ClassVar[str] = "element-wise-mab-cs"
    terms: ClassVar[Mapping[str, str]] = {
        "optimistic_update": "mean update time over beta, less the bonus",
        "optimistic_upload": "mean upload time over beta, less the bonus",
        **ScheduledByTimes.terms,
    }
    mean: ClassVar[MeanEstimator] = SampleMean()

    request_fraction: float = 1.0
    beta: float | None = None

    def __post_init__(self) -> None:
        check_request(self)
        check_seconds(self, "beta")

    def select(self, state: ResourceState, view: RoundView, rng: Generator) -> Selection:
        """The unseen, then Algorithm 1 on the optimistic times."""
        rows, size = requested(view, self.request_fraction, rng), view.num_to_choose
        seen = state.count[rows] > 0
        unseen = np.flatnonzero(~seen)
        if len(unseen) >= size:
            return in_order(view, rows, rng.choice(unseen, size, replace=False))
        known = np.flatnonzero(seen)
        update, upload = self._optimistic(state, rows)
        schedule = greedy_schedule(update[known], upload[known], size - len(unseen), rng)
        first = rng.permutation(unseen)
        return in_order(view, rows, np.concatenate((first, known[schedule])))

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return ShortSchedule(
            formula="one after the other the client that prolongs the round least, by optimistic "
            "times: the less is known of a client, the shorter (optimistic_update, "
            "optimistic_upload)",
            update="optimistic_update",
            upload="optimistic_upload",
            unseen_first=True,
            unit="units",
            request_fraction=self.request_fraction,
        )

    def scores(self, state: ResourceState, view: RoundView) -> Mapping[str, FloatArray]:
        """``f(S, k)`` of the first choice, the optimistic times, and what these are made of."""
        update, upload = self._optimistic(state, EVERYBODY)
        mean_update, mean_upload = state.of(EVERYBODY)
        first = -added_seconds(update, upload)  # Eq. 7
        columns = published(
            first,
            optimistic_update=update,
            optimistic_upload=upload,
            mean_update_seconds=mean_update,
            mean_upload_seconds=mean_upload,
            confidence_bonus=selection_bonus(state.count, EVERYBODY),
        )
        return {**columns, "times_asked": state.count.astype(np.float64)}

    def _optimistic(
        self, state: ResourceState, rows: IntArray | slice
    ) -> tuple[FloatArray, FloatArray]:
        """``tau_UD`` and ``tau_UL``, -inf of the unseen."""
        update, upload = state.of(rows)
        beta = self.beta or typical_seconds(state.update, state.upload)
        bonus = selection_bonus(state.count, rows)
        return update / beta - bonus, upload / beta - bonus  # Eq. 5, 6
