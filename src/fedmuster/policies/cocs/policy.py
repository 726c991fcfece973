"""COCS: context-aware online client selection for hierarchical federated learning."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.utility import participated
from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.explaining import Moment, Rule
from fedmuster.core.policy import POLICIES, CohortRule, PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.policies.cocs.hypercubes import (
    Control,
    Cubes,
    EqualCubes,
    Estimate,
    Pool,
    RatesState,
    SuccessRates,
)
from fedmuster.policies.explaining.placements import BestPlacement
from fedmuster.policies.score_columns import at_edges, costs
from fedmuster.solvers.assignment import (
    AssignmentProblem,
    AssignmentSolver,
    LagrangianAssignment,
    explore,
)


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class COCS(PolicyTraits):
    """Clients at edge servers who are likely to answer in time, by their context, within budgets.

    The share of answers in time ``p = successes / C`` (Eq. 12) is learned apart for each client,
    edge and hypercube of contexts. A pair whose cube has ``C <= K(t) = t^z ln t`` observations is
    under-explored (Eq. 13). As many of these as fit into the budgets come first (Eq. 14, 15); what
    is left of the budgets goes to the explored pairs with the largest sum of p (Eq. 17), and all of
    it when there are no others (Eq. 18). Theorem 2: regret ``O(T^((2 alpha + 2)/(3 alpha + 2))
    ln T)``. In flat federated learning there is one edge, without a budget.

    Either utility has the same best placement, as (19) is the root of (8). What the paper does for
    (19) is ``solver=FLGreedy(utility="square-root")``; every other solver serves both.

    Args:
        holder_alpha: alpha, how smooth success is in the context. Paper: 1.
        exponent: z; None for ``2 alpha / (3 alpha + 2)`` (Theorem 2).
        exploration: a factor on K(t). Paper: 1. With cubes for each pair exploration does not end
            within the paper's rounds: 3,750 cubes want 109 observations each by round 1,000.
        cubes: which contexts are taken to be alike: equal cubes (paper: 5 an axis), or cubes
            that open where much is known (``ZoomingCubes``).
        pool: for whom cubes are kept: each of the "pairs" (the paper), each of the "clients" or
            "edges", or one set for the "network".
        solver: how placements are found.

    State:
        Of each pair (client, edge, or once) and cube the observations and the successes.

    Deviations:
        1. The counter counts every selection in the cube. The paper's event wants the answer to
           be in time, too, and with that every estimate were 1.
        2. For the same reason "in time" is left out of (13): it is not known before the choice.
        3. (14)–(17) speak of sets of clients and of edges by turns; here all are sets of pairs. A
           client not needed for exploration may so be used where it is explored.
        4. Pairs that exceed their edge's budget by themselves do not keep exploration going.
        5. Explored pairs with p = 0 are not chosen, even if there is budget left.
        6. Theorem 4 prints ``K(t) = t^((2 alpha + 2)/(3 alpha + 2)) ln t``, the exponent of the
           regret. Lemma 1 is then no longer sublinear, and (60) holds with Theorem 2's, which is
           used for either utility; ``exponent=0.8`` is as printed (alpha = 1).
        7. Features outside of [0, 1] belong to the cubes at the border; d of them make h^d cubes.
        8. Which of several equally good placements is taken, chance decides.

    References:
        Z. Qu, R. Duan, L. Chen, J. Xu, Z. Lu, Y. Liu, Context-Aware Online Client Selection for
        Hierarchical Federated Learning, IEEE TPDS 33(12), 2022.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> Selector(COCS(), Problem(num_clients=20, cohort_size=5)).select().clients.shape
        (5,)
    """

    name: ClassVar[str] = "cocs"
    terms: ClassVar[Mapping[str, str]] = {
        "probability": "p, the share of its answers that came in time in such a context",
        "count": "C, how many observations that is the share of",
        "counter": "how often it was observed in such a context",
        "needed": "K(t): with no more observations than this it is under-explored",
    }
    cohort_rule: ClassVar[CohortRule] = "at most"
    assigns_edges: ClassVar[bool] = True

    holder_alpha: float = 1.0
    exponent: float | None = None
    exploration: float = 1.0
    cubes: Cubes = field(default_factory=EqualCubes)
    pool: Pool = "pairs"
    solver: AssignmentSolver = field(default_factory=LagrangianAssignment)

    def __post_init__(self) -> None:
        check_types(self)
        require(0 < self.holder_alpha <= 1, self, "holder_alpha", "a number in (0, 1]")
        z = self.exponent
        require(z is None or 0 < z < 1, self, "exponent", "a number in (0, 1), or nothing")
        require(0 <= self.exploration < np.inf, self, "exploration", "a number >= 0")

    @property
    def _rates(self) -> SuccessRates:
        return SuccessRates(cubes=self.cubes, pool=self.pool)

    def init(self, problem: Problem) -> RatesState:
        """No client observed yet."""
        return self._rates.init(problem)

    def select(self, state: RatesState, view: RoundView, rng: Generator) -> Selection:
        """Under-explored pairs first, then the most promising ones."""
        reach = view.network.coverage & view.available[:, np.newaxis]
        pairs = np.nonzero(reach)
        known = self._estimate(state, view, *pairs)
        value = np.zeros(reach.shape)
        under_explored = np.zeros(value.shape, dtype=np.bool_)
        value[pairs], under_explored[pairs] = known.probability, known.under_explored
        problem = AssignmentProblem.of(view, value, among=under_explored | (value > 0))
        under = under_explored[problem.clients, problem.edges]
        chosen = explore(problem, under, self.solver, rng)  # Eq. 14, 15, 17, 18
        return Selection.at_edges(view, problem.clients[chosen], problem.edges[chosen])

    def observe(self, state: RatesState, selection: Selection, feedback: Feedback) -> None:
        """Count each of the cohort in the cube of its context (Algorithm 1, lines 14–19)."""
        clients, context = selection.clients, selection.features
        success = np.zeros(len(clients), dtype=np.bool_)
        success[np.searchsorted(clients, feedback.clients)] = participated(feedback)
        self._rates.observe(
            state,
            clients,
            selection.edge_of_each,
            np.zeros((len(clients), 0)) if context is None else context,
            success,
        )

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return BestPlacement(
            formula="under-explored pairs of client and edge first (counter <= needed), then the "
            "largest sum of probability, within budgets",
            terms=("probability", "counter", "needed"),
            value=lambda moment: moment.at_edges("probability"),
            first=_under_explored,
        )

    def scores(self, state: RatesState, view: RoundView) -> Mapping[str, FloatArray]:
        """p and C of each client's context at each edge, and whether C is enough, at which cost."""
        pairs = np.nonzero(view.network.coverage)
        known = self._estimate(state, view, *pairs)
        opinion = np.where(known.observations > 0, known.probability, np.nan)
        counts = at_edges(view, pairs, count=known.observations, counter=known.counter)
        shares = at_edges(view, pairs, probability=opinion, needed=known.needed)
        return {**shares, **counts, **costs(view)}

    def _estimate(
        self, state: RatesState, view: RoundView, clients: IntArray, edges: IntArray
    ) -> Estimate:
        features = view.pair_features
        context = np.zeros((len(clients), 0)) if features is None else features[clients, edges]
        control = Control(
            holder_alpha=self.holder_alpha, exponent=self.exponent, factor=self.exploration
        )
        return self._rates.estimate(
            state, clients, edges, context, round_=view.round, control=control
        )


def _under_explored(moment: Moment) -> BoolArray:
    """[K, M], COCS Eq. 13: no more observations than needed."""
    there = moment.at_edges("counter") <= moment.at_edges("needed")
    return np.asarray(there & moment.available[:, np.newaxis])
