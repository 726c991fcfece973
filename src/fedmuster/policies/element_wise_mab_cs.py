"""Element-wise MAB-CS: a short schedule, by optimistic times."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.config import check_types, require
from fedmuster.core.policy import PolicyTraits
from fedmuster.core.records import Feedback, FloatArray, IntArray, Problem, RoundView, Selection
from fedmuster.estimators.confidence import confidence_radius, log_rounds
from fedmuster.estimators.mean import SampleMean
from fedmuster.estimators.resources import Resources, ResourceState
from fedmuster.estimators.seconds import typical_seconds
from fedmuster.policies.published import EVERYBODY, published
from fedmuster.policies.resource_request import in_order, requested
from fedmuster.solvers.schedule import added_seconds, greedy_schedule

_ALL = Resources(mean=SampleMean())


@dataclass(frozen=True, kw_only=True, slots=True)
class ElementWiseMABCS(PolicyTraits):
    """FedCS on times that are the shorter, the less is known of them.

    Of a random ``ceil(K C)`` clients Algorithm 1 adds the one with the largest
    ``f(S, k) = -T'_inc(S, k)`` (7) until m are chosen: ``T_inc`` (1) on

        tau_UD = mean(t_UD) / beta - sqrt(ln(sum N) / (2 N_k))    (5)
        tau_UL = mean(t_UL) / beta - sqrt(ln(sum N) / (2 N_k))    (6)

    with ``N_k`` how often k was selected. The length of the schedule so far is in these units,
    too. They upload one after the other, in this order; the unseen come first, in random order,
    and count as 0 in the schedule.

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
        3. A client that was asked and did not complete counts as having taken the longest times
           seen so far.
        4. Where answers say nothing of update and upload, their latency counts as update, with an
           upload of 0 s.
        5. Candidates that prolong the round alike: the shorter upload goes first, then the shorter
           update, then chance decides.
        6. C is 1 by default, where the paper has 0.1; never fewer than m clients are asked for
           their times.

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

    request_fraction: float = 1.0
    beta: float | None = None

    def __post_init__(self) -> None:
        check_types(self)
        require(0 < self.request_fraction <= 1, self, "request_fraction", "a number in (0, 1]")
        require(self.beta is None or 0 < self.beta < np.inf, self, "beta", "seconds > 0")

    def init(self, problem: Problem) -> ResourceState:
        """Nobody observed yet."""
        return _ALL.init(problem.num_clients)

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

    def observe(self, state: ResourceState, selection: Selection, feedback: Feedback) -> None:
        """Average the times of the cohort."""
        _ALL.observe(state, feedback)

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
            confidence_bonus=self._bonus(state, EVERYBODY),
        )
        return {**columns, "times_asked": state.count.astype(np.float64)}

    def _optimistic(
        self, state: ResourceState, rows: IntArray | slice
    ) -> tuple[FloatArray, FloatArray]:
        """``tau_UD`` and ``tau_UL``, -inf of the unseen."""
        update, upload = state.of(rows)
        beta = self.beta or typical_seconds(state.update, state.upload)
        bonus = self._bonus(state, rows)
        return update / beta - bonus, upload / beta - bonus  # Eq. 5, 6

    def _bonus(self, state: ResourceState, rows: IntArray | slice) -> FloatArray:
        log_term = 0.5 * log_rounds(float(state.count.sum()))
        return confidence_radius(state.count[rows], log_term)
