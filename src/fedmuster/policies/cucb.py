"""CUCB: UCB1 whose arms are whole decisions, and its explanation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar
from zlib import crc32

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.means import confidence_radius, log_rounds
from fedmuster.bandits.utility import participated
from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.explaining import Moment, Rule
from fedmuster.core.policy import POLICIES, CohortRule, PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.state import shared
from fedmuster.core.streams import stream
from fedmuster.core.words import number, ordinal
from fedmuster.policies.score_columns import costs
from fedmuster.solvers.assignment import AssignmentProblem, all_pairs, first_come

_UNKNOWN = -1


@dataclass(slots=True)
class CUCBState:
    """Plays and total utility of each arm, least and most utility of a round.

    ``catalogue`` is the number from which the orders of the arms are made.
    """

    count: IntArray = shared()
    total: FloatArray = shared()
    least: FloatArray = shared()
    most: FloatArray = shared()
    catalogue: IntArray = shared()


def index_terms(state: CUCBState) -> tuple[FloatArray, FloatArray]:
    """Of each arm the mean, on a scale from ``least`` to ``most``, and the confidence bonus.

    The bonus is ``sqrt(2 ln t / n)`` (Auer et al., UCB1), ``+inf`` of an arm never played.

    Example:
        >>> played, total, least, most = np.array([1, 4]), np.array([3.0, 4.0]), 1.0, 3.0
        >>> mean, bonus = index_terms(CUCBState(played, total, least, most, np.array(7)))
        >>> mean, bonus.round(3)
        (array([1., 0.]), array([1.794, 0.897]))
    """
    mean = state.total / np.maximum(state.count, 1)
    least, most = float(state.least), float(state.most)
    scaled = (mean - least) / (most - least) if most > least else np.zeros_like(mean)
    return scaled, confidence_radius(state.count, 2.0 * log_rounds(float(state.count.sum())))


def best_arm(state: CUCBState) -> int:
    """The arm with the highest index; of equal arms the first."""
    mean, bonus = index_terms(state)
    return int(np.argmax(bonus + mean))


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class CUCB(PolicyTraits):
    """UCB1 whose arms are whole decisions: who trains at which edge.

    Each round plays the arm with the highest ``mean utility + sqrt(2 ln t / n)`` (Auer et al.,
    UCB1), each arm once at first. The utility of a round is the number of participants (COCS
    Eq. 8), on a scale from the fewest to the most that a round had so far.

    An arm is a fixed random order of all pairs of client and edge. Its decision in a round is
    whatever can be had in this order: pairs that are covered and available, each client once, each
    edge within its budget, until nothing more fits. It needs rounds: a decision is judged when all
    of its clients are heard of.

    Args:
        num_arms: how many decisions there are to choose from. The more, the better the best of
            them, and the longer the others are played.

    State:
        Of each arm how often it was played and the sum of its utilities; the smallest and the
        largest of a round; the number from which the orders are made.

    Deviations:
        1. COCS enumerates all feasible decisions: more than 10^20 in its own network, none of which
           would be played twice. Here there are ``num_arms`` random ones, which are maximal.
        2. COCS holds the network still for CUCB, because a decision may become infeasible. Here
           an order always leads to a decision that is feasible now, and to nearly the same one
           while the network changes little.
        3. The decision of the first round is drawn, and the orders follow from it: no client is
           favoured by the catalogue. This round is not counted for any arm.
        4. A round in which nobody could be chosen is not counted.

    References:
        P. Auer, N. Cesa-Bianchi, P. Fischer, Finite-time Analysis of the Multiarmed Bandit
        Problem, Machine Learning 47, 2002; as a baseline in Z. Qu et al., Context-Aware Online
        Client Selection for Hierarchical Federated Learning, IEEE TPDS 33(12), 2022.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> from fedmuster.core.edges import EdgeView
        >>> network = EdgeView(
        ...     coverage=np.ones((5, 2), dtype=bool), cost=np.full(5, 1.5), budget=np.full(2, 3.5)
        ... )
        >>> selector = Selector(CUCB(), Problem(num_clients=5, cohort_size=5, num_edges=2))
        >>> np.bincount(selector.select(edges=network).edges)
        array([2, 2])
    """

    name: ClassVar[str] = "cucb"
    terms: ClassVar[Mapping[str, str]] = {
        "arm": "which of the fixed decisions is played",
        "arm_mean": "how good that decision was so far, from 0 to 1",
        "arm_bonus": "how much better it may be",
        "arm_played": "how often it was played",
        "turn": "when it is the client's turn in the order of that decision",
    }
    cohort_rule: ClassVar[CohortRule] = "at most"
    assigns_edges: ClassVar[bool] = True
    rounds_only: ClassVar[str | None] = (
        "its arms are whole decisions, judged by how many of their clients answer in time"
    )

    num_arms: int = 30

    def __post_init__(self) -> None:
        check_types(self)
        require(self.num_arms >= 1, self, "num_arms", "an integer >= 1")

    def init(self, problem: Problem) -> CUCBState:
        """Nothing played yet."""
        return CUCBState(
            count=np.zeros(self.num_arms, dtype=np.int64),
            total=np.zeros(self.num_arms),
            least=np.array(np.inf),
            most=np.array(0.0),
            catalogue=np.array(_UNKNOWN),
        )

    def select(self, state: CUCBState, view: RoundView, rng: Generator) -> Selection:
        """The decision of the best arm."""
        if state.catalogue != _UNKNOWN:
            # Of equal arms the first, as their orders are all alike.
            rng = self._order_of(state, best_arm(state))
        pairs = all_pairs(view)
        return first_come(view, pairs, _turns(view, pairs, rng))

    def observe(self, state: CUCBState, selection: Selection, feedback: Feedback) -> None:
        """Update the arm that was played."""
        if len(selection.clients) == 0:
            return
        utility = float(np.count_nonzero(participated(feedback)))
        if state.catalogue == _UNKNOWN:
            state.catalogue[...] = _number_of(selection)
        else:
            arm = best_arm(state)  # the same as in select: nothing was learned since
            state.count[arm] += 1
            state.total[arm] += utility
        state.least[...] = min(float(state.least), utility)
        state.most[...] = max(float(state.most), utility)

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return PlayedArm()

    def scores(self, state: CUCBState, view: RoundView) -> Mapping[str, FloatArray]:
        """Which arm is played, the terms of its index, and when it is each client's turn in it."""
        turn = np.full(len(view.available), np.nan)
        if state.catalogue == _UNKNOWN:
            return {"turn": turn, **costs(view)}
        arm, pairs = best_arm(state), all_pairs(view)
        order = pairs.clients[_turns(view, pairs, self._order_of(state, arm))]
        np.fmin.at(turn, order, np.arange(1.0, len(order) + 1))
        mean, bonus = (float(of[arm]) for of in index_terms(state))
        told = {"arm": arm, "arm_mean": mean, "arm_bonus": bonus, "arm_played": state.count[arm]}
        alike = {name: np.full(len(turn), float(of)) for name, of in told.items() if of < np.inf}
        return {**alike, "turn": turn, **costs(view)}

    def _order_of(self, state: CUCBState, arm: int) -> Generator:
        return stream(int(state.catalogue), self.name, arm)


def _turns(view: RoundView, pairs: AssignmentProblem, rng: Generator) -> IntArray:
    """The order in which an arm looks at pairs."""
    # Row by row: the order of those who are here does not change when others join.
    return np.argsort(rng.random(view.network.coverage.shape)[pairs.clients, pairs.edges])


def _number_of(selection: Selection) -> int:
    """A number that follows from who was chosen, and at which edge."""
    pairs = np.stack([selection.clients, selection.edge_of_each])
    return crc32(pairs.astype("<i8").tobytes())


@dataclass(frozen=True, kw_only=True, slots=True)
class PlayedArm(Rule):
    """CUCB: one of a few fixed orders of pairs, as far as budgets go."""

    needs = ("turn",)

    def about(self, moment: Moment) -> str:
        """The rule, and which order is played."""
        told = (
            "one of a few fixed orders of all pairs of client and edge is played, by UCB1: who "
            "comes first and fits is placed"
        )
        arm = moment.column("arm")
        if np.isnan(arm).all():
            return f"{told}; in the first round the order is drawn"
        played, mean, bonus = (
            number(float(moment.column(name)[0]))
            for name in ("arm_played", "arm_mean", "arm_bonus")
        )
        return (
            f"{told}. Order {arm[0]:.0f} was played {played} times before, with arm_mean {mean} + "
            f"arm_bonus {bonus.replace('–', '∞')}, the highest of all"
        )

    def merit(self, moment: Moment) -> FloatArray:
        """Clients whose turn comes first have the highest merit."""
        return -np.nan_to_num(moment.column("turn"), nan=np.inf)

    def worth(self, moment: Moment) -> str | None:
        """What the edges have left."""
        if moment.budget is None:
            return None
        return f"The edges have {', '.join(map(number, moment.left().tolist()))} left"

    def chosen(self, moment: Moment, client: int) -> str:
        """The turn of the client came while there was room."""
        return f"{self._turn(moment, client)}, and there was room for it"

    def passed_over(self, moment: Moment, client: int) -> str:
        """The turn of the client came too late."""
        return f"{self._turn(moment, client)}, and by then nothing was left that it fits into"

    def _turn(self, moment: Moment, client: int) -> str:
        turn = float(moment.column("turn")[client])
        if np.isnan(turn):
            return "its turn came in the order that was drawn"
        return f"the first turn of a pair of it is the {ordinal(int(turn))} in that order"
