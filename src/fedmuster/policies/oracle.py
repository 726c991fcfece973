"""The oracle of COCS: knows who will answer in time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator

from fedmuster.core.config import check_types
from fedmuster.core.errors import DataError
from fedmuster.core.explaining import Rule
from fedmuster.core.policy import POLICIES, CohortRule, Stateless
from fedmuster.core.records import FloatArray, RoundView, Selection
from fedmuster.core.state import NoState
from fedmuster.policies.explaining.placements import BestPlacement
from fedmuster.policies.score_columns import at_edges, costs
from fedmuster.solvers.assignment import AssignmentSolver, LagrangianAssignment, best_placement


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Oracle(Stateless):
    """The best placement that the true chances of an answer in time can buy.

    Solves P2 (Eq. 10): the largest ``sum p_{n,m}`` of pairs of a client and an edge that covers
    it, each client once, each edge within its budget, for the true probability ``p_{n,m}`` that
    the answer comes by the deadline, given what the operator sees. The square root of it (Eq. 20)
    has the same maximiser.

    Args:
        knows: "probability" for ``p_{n,m}`` (section IV-A: what regret is measured against);
            "outcome" for whether the answer will come, this time (section VI-B: "knows precisely
            whether one client can be received"), with which no luck is left.
        solver: how P2 is solved. Paper: brute force for the linear utility, GreedyLS for the
            square root; here both are solved as P2.

    State:
        Nothing is learned.

    Deviations:
        1. Where there are no edge servers, and so no chances of success, it takes the m clients
           of the largest true speed ``E[tau_min / tau]``.

    References:
        Z. Qu, R. Duan, L. Chen, J. Xu, Z. Lu, Y. Liu, Context-Aware Online Client Selection for
        Hierarchical Federated Learning, IEEE TPDS 33(12), 2022.

    Example:
        >>> import numpy as np
        >>> from fedmuster import Problem, Selector
        >>> from fedmuster.core.edges import EdgeView
        >>> from fedmuster.core.records import Truth
        >>> network = EdgeView(
        ...     coverage=np.ones((3, 2), dtype=bool), cost=np.full(3, 2.0), budget=np.full(2, 3.5)
        ... )
        >>> truth = Truth(
        ...     mean_latency_seconds=np.ones(3),
        ...     mean_speed=np.ones(3),
        ...     success=np.array([[0.9, 0.8], [0.9, 0.2], [0.1, 0.3]]),
        ... )
        >>> selector = Selector(Oracle(), Problem(num_clients=3, cohort_size=3, num_edges=2))
        >>> placement = selector.select(edges=network, truth=truth)
        >>> placement.clients, placement.edges
        (array([0, 1]), array([1, 0]))
    """

    name: ClassVar[str] = "oracle"
    terms: ClassVar[Mapping[str, str]] = {
        "true_value": "what it is truly worth, which only oracles know"
    }
    cohort_rule: ClassVar[CohortRule] = "at most"
    oracle: ClassVar[bool] = True
    assigns_edges: ClassVar[bool] = True

    knows: Literal["probability", "outcome"] = "probability"
    solver: AssignmentSolver = field(default_factory=LagrangianAssignment)

    def __post_init__(self) -> None:
        check_types(self)

    def select(self, state: NoState, view: RoundView, rng: Generator) -> Selection:
        """The best placement by Eq. 10."""
        return best_placement(view, self._value(view), solver=self.solver, rng=rng)

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return BestPlacement(
            formula="the placement with the largest sum of true_value, within budgets",
            terms=("true_value",),
            value=lambda moment: moment.at_edges("true_value"),
        )

    def scores(self, state: NoState, view: RoundView) -> Mapping[str, FloatArray]:
        """What each client is truly worth at each edge, and what it costs there."""
        if view.truth is None:
            return {}
        pairs = np.nonzero(view.network.coverage)
        return {**at_edges(view, pairs, true_value=self._value(view)[pairs]), **costs(view)}

    def _value(self, view: RoundView) -> FloatArray:
        """[K, M], what each pair is truly worth."""
        truth = view.truth
        if truth is None:
            raise DataError("Oracle: the view holds no truth, which only a simulated world knows")
        if view.edges is None:
            return truth.mean_speed[:, None]
        if truth.success is None or (truth.succeeds is None and self.knows == "outcome"):
            raise DataError(
                f"Oracle: the truth does not hold the {self.knows} of an answer in time at each "
                "edge: a world with edges must tell Truth.success and Truth.succeeds"
            )
        if self.knows == "outcome" and truth.succeeds is not None:
            return truth.succeeds.astype(float)
        return truth.success
