"""Naive MAB-CS: a bandit on how much each client prolongs a round."""

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
from fedmuster.estimators.seconds import Seconds, SecondsState, reported_seconds, typical_seconds
from fedmuster.policies.published import EVERYBODY, published
from fedmuster.policies.resource_request import in_order, requested
from fedmuster.solvers.schedule import increments
from fedmuster.solvers.top_k import top_k

_SECONDS = Seconds(mean=SampleMean())


@dataclass(frozen=True, kw_only=True, slots=True)
class NaiveMABCS(PolicyTraits):
    """The clients that have prolonged rounds least so far, and those seldom tried.

    Of a random ``ceil(K C)`` clients the m with the highest

        f(S, k) = -mean(T_inc) / alpha + sqrt(ln(sum N) / (2 N_k))    (4)

    upload one after the other, in this order. ``T_inc`` is by how much k has prolonged the rounds
    that it took part in, by Eq. 1 on the times that were really needed; ``N_k`` how often it was
    selected. The unseen come first, in random order.

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

    request_fraction: float = 1.0
    alpha: float | None = None

    def __post_init__(self) -> None:
        check_types(self)
        require(0 < self.request_fraction <= 1, self, "request_fraction", "a number in (0, 1]")
        require(self.alpha is None or 0 < self.alpha < np.inf, self, "alpha", "seconds > 0")

    def init(self, problem: Problem) -> SecondsState:
        """Nobody observed yet."""
        return _SECONDS.init(problem.num_clients)

    def select(self, state: SecondsState, view: RoundView, rng: Generator) -> Selection:
        """The m highest scores, the highest first."""
        rows = requested(view, self.request_fraction, rng)
        score, cost = self._terms(state, rows)
        score -= cost  # Eq. 4
        best = rng.permutation(top_k(score, view.num_to_choose, rng))
        return in_order(view, rows, best[np.argsort(-score[best], kind="stable")])

    def observe(self, state: SecondsState, selection: Selection, feedback: Feedback) -> None:
        """By how much each of the cohort has prolonged the round."""
        update, upload = reported_seconds(feedback)
        turns = _turns(selection, feedback.clients, update)
        turns = turns[feedback.answered[turns]]
        added = np.zeros(len(feedback.clients))
        added[turns] = increments(update[turns], upload[turns])  # Eq. 1
        _SECONDS.update(
            state,
            feedback.clients,
            added,
            feedback.answered,
            round_=feedback.round,
            round_seconds=feedback.lasted_seconds,
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
        of_client = state.of_client
        log_term = 0.5 * log_rounds(float(of_client.count.sum()))
        bonus = confidence_radius(of_client.count[rows], log_term)
        return bonus, of_client.mean[rows] / (self.alpha or typical_seconds(state))


def _turns(selection: Selection, clients: IntArray, update: FloatArray) -> IntArray:
    """Rows of ``clients`` in the order in which they uploaded: without one, who was ready first."""
    if selection.order is None:
        return np.lexsort((clients, update))
    turn = np.argsort(selection.order)  # of each position in the selection
    return np.argsort(turn[np.searchsorted(selection.clients, clients)])
