"""Any flat policy, lifted to edge servers by an assignment step."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, get_args

import numpy as np
from numpy.random import Generator

from fedmuster.core.config import require
from fedmuster.core.late_answers import LateAnswers
from fedmuster.core.policy import CohortRule
from fedmuster.core.records import Feedback, FloatArray, IntArray, Problem, RoundView, Selection
from fedmuster.policies.bsfl import BSFL
from fedmuster.policies.flat import FlatPolicy, flattened
from fedmuster.policies.published import costs
from fedmuster.solvers.assignment import (
    AssignmentSolver,
    LagrangianAssignment,
    all_pairs,
    fill_in_turns,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Lifted:
    """A policy of flat federated learning that chooses; an assignment step places at edges.

    In turns, until nothing more fits:

    1. n, the most clients that the budgets that are left can pay for (COCS Eq. 14);
    2. the flat policy chooses n of the clients that an edge covers and can pay for;
    3. as many of these as possible are placed: P2 (Eq. 10) on their pairs, each worth 1. Who did
       not fit leaves room for others, in the next turn.

    A policy that chooses fewer than it may is not asked again. Without edge servers it is the flat
    policy itself, bit for bit.

    Args:
        policy: which clients are wanted.
        solver: how many fit, and where. In large networks a gap of 1 % will do: what a turn leaves
            of the budgets is spent in the next.

    State:
        That of the flat policy.

    Deviations:
        1. The flat policy chooses by the mean context over the edges that cover a client, and
           learns from the context at the edge where it trained.
        2. Orders of upload (MAB-CS) and quotas (SAFA) are dropped: each edge closes by the deadline
           (COCS Eq. 6). So SAFA is everyone who fits, up to ``cohort_size``.
        3. Where the paper of a policy has m, it is told the problem's ``cohort_size``.

    References:
        The edge servers and P2: Z. Qu, R. Duan, L. Chen, J. Xu, Z. Lu, Y. Liu, Context-Aware
        Online Client Selection for Hierarchical Federated Learning, IEEE TPDS 33(12), 2022.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> from fedmuster.core.edges import EdgeView
        >>> network = EdgeView(
        ...     coverage=np.ones((5, 2), dtype=bool), cost=np.full(5, 1.5), budget=np.full(2, 3.5)
        ... )
        >>> problem = Problem(num_clients=5, cohort_size=5, num_edges=2)
        >>> placement = Selector(Lifted(policy=BSFL(alpha=3.0)), problem).select(edges=network)
        >>> np.bincount(placement.edges)
        array([2, 2])
    """

    name: ClassVar[str] = "lifted"
    assigns_edges: ClassVar[bool] = True

    policy: FlatPolicy = field(default_factory=BSFL)
    solver: AssignmentSolver = field(default_factory=lambda: LagrangianAssignment(gap=0.01))

    def __post_init__(self) -> None:
        # Not by check_types: the policy may be one that the registry does not know.
        solvers = get_args(AssignmentSolver)
        require(isinstance(self.solver, solvers), self, "solver", "an assignment solver")
        is_policy = not isinstance(self.policy, type) and hasattr(self.policy, "select")
        require(is_policy, self, "policy", "a policy, such as BSFL()")
        assigns = getattr(self.policy, "assigns_edges", False)
        require(not assigns, self, "policy", "one that does not assign edges by itself")

    @property
    def cohort_rule(self) -> CohortRule:
        """The flat policy's, where there are no edges."""
        return self.policy.cohort_rule

    @property
    def oracle(self) -> bool:
        """Whether the flat policy must be told the true expectations."""
        return self.policy.oracle

    @property
    def learns(self) -> bool:
        """Whether the flat policy does."""
        return self.policy.learns

    @property
    def wants_gain(self) -> bool:
        """Whether the flat policy wants clients to measure their gain."""
        return self.policy.wants_gain

    @property
    def wanted_sketch_size(self) -> int:
        """How many numbers of each update's direction the flat policy wants."""
        return self.policy.wanted_sketch_size

    @property
    def late_answers(self) -> LateAnswers:
        """What the flat policy would have done with them."""
        return self.policy.late_answers

    def init(self, problem: Problem) -> Any:
        """The state of the flat policy."""
        return self.policy.init(replace(problem, num_edges=0))

    def select(self, state: Any, view: RoundView, rng: Generator) -> Selection:
        """Ask the flat policy and place its cohort, until nothing more fits."""
        if view.edges is None:
            return self.policy.select(state, view, rng)
        flat, pairs = flattened(view), all_pairs(view)

        def choose(clients: IntArray, count: int) -> IntArray:
            available = np.zeros(len(view.available), dtype=np.bool_)
            available[clients] = True
            turn = replace(flat, available=available, cohort_size=count)
            return self.policy.select(state, turn, rng).clients

        taken = fill_in_turns(pairs, choose, solver=self.solver, rng=rng)
        return Selection.at_edges(view, pairs.clients[taken], pairs.edges[taken])

    def observe(self, state: Any, selection: Selection, feedback: Feedback) -> None:
        """Let the flat policy learn."""
        self.policy.observe(state, replace(selection, edges=None), feedback)

    def scores(self, state: Any, view: RoundView) -> Mapping[str, FloatArray]:
        """What the flat policy thinks of each client, and what it costs at each edge."""
        flat = view if view.edges is None else flattened(view)
        return {**self.policy.scores(state, flat), **costs(view)}
