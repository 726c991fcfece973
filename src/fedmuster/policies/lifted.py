"""Any flat policy, lifted to edge servers by an assignment step."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.explaining import Moment, Rule
from fedmuster.core.policy import POLICIES, InnerTraits, Policy
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.words import number
from fedmuster.policies.bsfl import BSFL
from fedmuster.policies.explaining.simple_rules import rule_of
from fedmuster.policies.score_columns import costs
from fedmuster.solvers.assignment import (
    AssignmentSolver,
    LagrangianAssignment,
    all_pairs,
    fill_in_turns,
)


def flattened(view: RoundView) -> RoundView:
    """The view without edges; features are means over the edges of a client (or over all edges)."""
    features = view.pair_features
    if features is not None:
        network = view.network
        weight = np.where(network.covered[:, None], network.coverage, True).astype(np.float64)
        weight /= weight.sum(axis=1, keepdims=True)
        features = np.einsum("km,kmd->kd", weight, features)
    return replace(view, edges=None, features=features)


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Lifted(InnerTraits):
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
        4. Inclusion probabilities are dropped: whether a client fits depends on the others.

    References:
        Z. Qu, R. Duan, L. Chen, J. Xu, Z. Lu, Y. Liu, Context-Aware Online Client Selection for
        Hierarchical Federated Learning, IEEE TPDS 33(12), 2022: the edge servers and P2.

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

    policy: Policy[Any] = field(default_factory=BSFL)
    solver: AssignmentSolver = field(default_factory=lambda: LagrangianAssignment(gap=0.01))

    def __post_init__(self) -> None:
        check_types(self)
        assigns = getattr(self.policy, "assigns_edges", False)
        require(not assigns, self, "policy", "one that does not assign edges by itself")

    def init(self, problem: Problem) -> Any:
        """The state of the flat policy."""
        return self.policy.init(replace(problem, num_edges=0))

    def select(self, state: Any, view: RoundView, rng: Generator) -> Selection:
        """Ask the flat policy and place its cohort, until nothing more fits."""
        if view.edges is None:
            return self.policy.select(state, view, rng)
        flat, pairs = flattened(view), all_pairs(view)
        turns: list[Selection] = []

        def choose(clients: IntArray, count: int) -> IntArray:
            available = np.zeros(len(view.available), dtype=np.bool_)
            available[clients] = True
            turn = replace(flat, available=available, cohort_size=count)
            turns.append(self.policy.select(state, turn, rng))
            return turns[-1].clients

        taken = fill_in_turns(pairs, choose, solver=self.solver, rng=rng)
        placed = Selection.at_edges(view, pairs.clients[taken], pairs.edges[taken])
        wanted = [turn.wanted for turn in turns if turn.wanted is not None]
        return replace(
            placed,
            losses=turns[0].losses if turns else None,  # in the first turn all clients were asked
            wanted=np.unique(np.concatenate(wanted)) if wanted else None,
        )

    def observe(self, state: Any, selection: Selection, feedback: Feedback) -> None:
        """Let the flat policy learn."""
        self.policy.observe(state, replace(selection, edges=None), feedback)

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return Placed(flat=rule_of(self.policy))

    def scores(self, state: Any, view: RoundView) -> Mapping[str, FloatArray]:
        """What the flat policy thinks of each client, and what it costs at each edge."""
        flat = view if view.edges is None else flattened(view)
        return {**self.policy.scores(state, flat), **costs(view)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed(Rule):
    """The rule ``flat`` of a flat policy; a client that fits at no edge leaves room for others."""

    flat: Rule

    @property
    def needs(self) -> tuple[str, ...]:
        """What the flat policy needs."""
        return self.flat.needs

    @property
    def unlimited(self) -> tuple[str, ...]:
        """The unlimited terms of the flat policy."""
        return self.flat.unlimited

    def about(self, moment: Moment) -> str:
        """The flat policy's rule, in turns where there are edge servers."""
        told = self.flat.about(moment)
        if moment.num_edges == 0:
            return told
        return f"{told}; in turns, among those whom some edge can pay, until nothing more fits"

    def merit(self, moment: Moment) -> FloatArray:
        """The flat policy's."""
        return self.flat.merit(moment)

    def worth(self, moment: Moment) -> str | None:
        """The flat policy's, and what the edges have left."""
        told = self.flat.worth(moment)
        if moment.num_edges == 0:
            return told
        left = f"The edges have {', '.join(map(number, moment.left().tolist()))} left"
        return left if told is None else f"{told}. {left}"

    def chosen(self, moment: Moment, client: int) -> str:
        """By the flat policy, and what it costs."""
        edge, told = moment.edge_of(client), self.flat.chosen(moment, client)
        if edge is None:
            return told
        cost = float(moment.at_edges("cost")[client, edge])
        return f"{told}. At edge {edge} it costs {number(cost)}"

    def passed_over(self, moment: Moment, client: int) -> str:
        """By the flat policy, or for lack of budget."""
        if moment.num_edges == 0:
            return self.flat.passed_over(moment, client)
        cost, left = moment.at_edges("cost")[client], moment.left()
        covered = np.flatnonzero(np.isfinite(cost))
        told = ", ".join(
            f"{number(float(cost[edge]))} of {number(float(left[edge]))} left at edge {edge}"
            for edge in covered
        )
        if not (cost[covered] <= left[covered]).any():
            told = f"{told}: with this cohort there is no room for it"
        return f"{self.flat.passed_over(moment, client)}. It costs {told}"
