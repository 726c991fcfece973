"""Optimal client sampling: clients with large updates are likelier, by known probabilities."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.explaining import Rule
from fedmuster.core.policy import POLICIES, PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection, of_rows
from fedmuster.core.state import given
from fedmuster.policies.explaining.simple_rules import ByChance
from fedmuster.policies.score_columns import of_some
from fedmuster.solvers.inclusion import chances, systematic_draw
from fedmuster.solvers.top_k import nobody

_UNKNOWN = -1.0
_LARGEST: Final = 1e100
"""Norms are clipped to this, so that sums of them cannot overflow."""


@dataclass(slots=True)
class NormState:
    """[K] each: the norm of the last update (-1 if unknown), how often asked, and answered."""

    norm: FloatArray
    asked: IntArray
    answered: IntArray
    data: FloatArray = given()
    """``w_k``, the share of each client in the target; 0-d where all count alike."""


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class OptimalSampling(PolicyTraits):
    """Clients are drawn with probabilities in proportion to the size of their updates.

    The mean over all clients, ``sum w_k U_k``, is estimated from the cohort by
    ``sum w_k / p_k U_k``, where p_k is the probability that client k is chosen. The error of this
    estimate is smallest for ``p_k = min(1, c w_k ||U_k||)``, with c such that m clients are
    expected: l clients have ``p_k = (m + l - n) w_k ||U_k|| / sum of these l`` and all others 1,
    where l is the largest number for which no p_k exceeds 1.

    It is meant for ``weighting = "unbiased"`` in ``[training]``, which divides by these
    probabilities: with the usual mean over the answers clients with large updates count too much.

    Args:
        by_data: whether ``w_k`` is the client's share of the samples, as in the mean of a server
            with weights by data; else all clients count alike.
        unseen: the norm of a client that has not answered yet: the "largest" of those known, so
            that it is tried soon, or their "mean".
        floor: the least norm, as a share of the mean of those known, so that no client is ruled out
            by one small update. The estimate is unbiased only if every client may be chosen.

    State:
        Of each client the norm of its last update, and how often it was asked and answered.

    Deviations:
        1. The paper's clients all train in every round, and those that are drawn send their update.
           Here clients that are not drawn do not train: ``||U_k||`` is the norm of the client's
           last update (the signal ``update_norm``). The estimate stays unbiased, for any p_k > 0;
           it is optimal as far as norms last.
        2. The paper draws clients independently, so their number varies. Here exactly m are drawn,
           by systematic sampling in random order, with the same p_k.
        3. Clients that were not heard from have the norm ``unseen``, and no norm is below
           ``floor``. Where nobody reports norms, all clients have the same.
        4. A client that answers with probability a_k contributes ``a_k w_k² ||U_k||² / p_k`` to the
           second moment of the estimate, which is smallest for p_k in proportion to
           ``w_k ||U_k|| sqrt(a_k)``. So norms are multiplied by the square root of
           ``(answers + 1) / (asked + 1)``.

    References:
        W. Chen, S. Horváth, P. Richtárik, Optimal Client Sampling for Federated Learning,
        Transactions on Machine Learning Research, 2022, arXiv:2010.13723.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> problem = Problem(num_clients=4, cohort_size=2, num_samples=np.array([10, 30, 20, 20]))
        >>> cohort = Selector(OptimalSampling(), problem).select()
        >>> cohort.clients, cohort.inclusion
        (array([1, 3]), array([0.75, 0.5 ]))
    """

    name: ClassVar[str] = "optimal-sampling"
    terms: ClassVar[Mapping[str, str]] = {
        "chance": "how likely it was to be chosen",
        "update_norm": "the norm of its last update",
        "answer_rate": "(answers + 1) / (times asked + 1)",
    }

    by_data: bool = True
    unseen: Literal["largest", "mean"] = "largest"
    floor: float = 0.1

    def __post_init__(self) -> None:
        check_types(self)
        require(0 < self.floor <= 1, self, "floor", "a number > 0 and at most 1")

    def init(self, problem: Problem) -> NormState:
        """No update received yet."""
        clients, samples = problem.num_clients, problem.num_samples if self.by_data else None
        return NormState(
            norm=np.full(clients, _UNKNOWN),
            asked=np.zeros(clients, dtype=np.int64),
            answered=np.zeros(clients, dtype=np.int64),
            data=np.array(1.0) if samples is None else samples / samples.sum(),
        )

    def select(self, state: NormState, view: RoundView, rng: Generator) -> Selection:
        """Draw a cohort."""
        if view.num_to_choose == 0:
            return nobody(view)
        rows = view.candidates()
        chance = self._chances(state, rows, view.num_to_choose)
        drawn = systematic_draw(chance, rng)
        return replace(Selection.of(view, rows, drawn), inclusion=chance[drawn])

    def observe(self, state: NormState, selection: Selection, feedback: Feedback) -> None:
        """Remember the norms of updates, and who answered."""
        clients, answered = feedback.clients, feedback.answered
        state.asked[clients] += 1
        state.answered[clients[answered]] += 1
        norm = feedback.signals.get("update_norm")
        if norm is not None:
            state.norm[clients[answered]] = np.minimum(np.abs(norm[answered]), _LARGEST)

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        share = "share of the data times " if self.by_data else ""
        return ByChance(
            formula=f"clients are drawn in proportion to {share}update_norm · sqrt(answer_rate)",
            term="chance",
            exact=True,
        )

    def scores(self, state: NormState, view: RoundView) -> Mapping[str, FloatArray]:
        """How likely each available client is to be chosen, and why."""
        candidates, clients = np.flatnonzero(view.available), len(view.available)
        norm = np.where(state.norm == _UNKNOWN, np.nan, state.norm)
        return {
            **of_some(
                candidates, clients, chance=self._chances(state, candidates, view.num_to_choose)
            ),
            "update_norm": norm,
            "answer_rate": _answer_rate(state, slice(None)),
        }

    def _chances(self, state: NormState, rows: IntArray | slice, count: int) -> FloatArray:
        """p_k of each of the available clients ``rows``, of which ``count`` are chosen."""
        norm = state.norm[rows]
        known = norm[norm != _UNKNOWN]
        if known.any():
            unseen = float(known.max() if self.unseen == "largest" else known.mean())
            norm = np.where(norm == _UNKNOWN, unseen, norm)
            norm = np.maximum(norm, self.floor * float(known.mean()))
        else:
            norm = np.ones(len(norm))
        norm = norm * np.sqrt(_answer_rate(state, rows))
        return chances(of_rows(state.data, rows) * norm, count)


def _answer_rate(state: NormState, rows: IntArray | slice) -> FloatArray:
    rate: FloatArray = (state.answered[rows] + 1.0) / (state.asked[rows] + 1.0)
    return rate
