"""The contract at edge servers: honest placements pass, each broken one fails the point meant."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.random import Generator

from fedmuster.bandits.utility import participated
from fedmuster.core.policy import CohortRule, Policy, PolicyTraits
from fedmuster.core.records import (
    BoolArray,
    Feedback,
    FloatArray,
    IntArray,
    Problem,
    RoundView,
    Selection,
)
from fedmuster.core.state import shared
from fedmuster.testing import CHECKS, Check, ContractError, Knowledge, check_policy, knowledges
from fedmuster.testing import learning_checks as learning
from fedmuster.testing.playing import feedback_rows

pytestmark = pytest.mark.slow

AT_EDGES = Knowledge(num_edges=3)
BONUS = 0.1


@dataclass
class State:
    """How often each pair of client and edge was asked, and in time; room for others' sins."""

    count: FloatArray
    successes: FloatArray
    note: IntArray = shared()


class Placer(PolicyTraits):
    """The unseen pairs first, then those most often in time, as long as edges can pay."""

    cohort_rule: ClassVar[CohortRule] = "at most"
    assigns_edges: ClassVar[bool] = True

    def init(self, problem: Problem) -> State:
        shape = (problem.num_clients, problem.num_servers)
        return State(count=np.zeros(shape), successes=np.zeros(shape), note=np.zeros(2, np.int64))

    def score(self, state: State, view: RoundView) -> FloatArray:
        seen = np.maximum(state.count, 1)
        bonus = BONUS * np.sqrt(np.log(view.round + 1) / seen)
        return np.where(state.count == 0, np.inf, state.successes / seen + bonus)

    def tie_break(self, view: RoundView, rng: Generator) -> FloatArray:
        return rng.random(view.network.coverage.shape)

    def reach(self, view: RoundView) -> BoolArray:
        return np.asarray(view.network.coverage & view.available[:, None])

    def affords(self, costs: list[float], budget: float) -> bool:
        return fsum(costs) <= budget

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        network, reach = view.network, self.reach(view)
        keys = (self.tie_break(view, rng)[reach], -self.score(state, view)[reach])
        clients, edges = (column[np.lexsort(keys)].tolist() for column in np.nonzero(reach))
        costs: list[list[float]] = [[] for _ in range(network.num_edges)]
        placed: dict[int, int] = {}
        for client, edge in zip(clients, edges, strict=True):
            paid = [*costs[edge], float(network.cost[client, edge])]
            room = len(placed) < view.cohort_size and client not in placed
            if room and self.affords(paid, float(network.budget[edge])):
                placed[client] = edge
                costs[edge] = paid
        return Selection.at_edges(
            view,
            np.array(list(placed), dtype=np.int64),
            np.array(list(placed.values()), dtype=np.int64),
        )

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        place = np.searchsorted(selection.clients, feedback.clients)
        edges = np.zeros_like(place) if selection.edges is None else selection.edges[place]
        state.count[feedback.clients, edges] += 1
        state.successes[feedback.clients, edges] += participated(feedback)


config = dataclass(frozen=True, kw_only=True)


# --- Policies that keep the contract -----------------------------------------------------------


@config
class HonestPlacer(Placer):
    name: ClassVar[str] = "honest-placer"


@config
class Told(Placer):
    """An oracle: knows who is likely to be in time."""

    name: ClassVar[str] = "told"
    oracle: ClassVar[bool] = True
    learns: ClassVar[bool] = False

    def score(self, state: State, view: RoundView) -> FloatArray:
        assert view.truth is not None
        if view.truth.success is None:
            return view.truth.mean_speed[:, None]
        return view.truth.success


@config
class Clairvoyant(Told):
    """Knows who will be in time."""

    name: ClassVar[str] = "clairvoyant"

    def score(self, state: State, view: RoundView) -> FloatArray:
        assert view.truth is not None
        if view.truth.succeeds is None:
            return view.truth.mean_speed[:, None]
        return view.truth.succeeds.astype(np.float64)


# --- Policies that do something wrong, but only where there are edge servers -------------------


@config
class Undeclared(Placer):
    """Says neither yes nor no."""

    name: ClassVar[str] = "undeclared"
    assigns_edges: ClassVar[Any] = "yes"


@config
class OverspendsABit(Placer):
    name: ClassVar[str] = "overspends-a-bit"

    def affords(self, costs: list[float], budget: float) -> bool:
        return fsum(costs) <= budget + 1e-12


@config
class ReachesTooFar(Placer):
    name: ClassVar[str] = "reaches-too-far"

    def reach(self, view: RoundView) -> BoolArray:
        return np.broadcast_to(view.available[:, None], view.network.coverage.shape)


@config
class KeepsEdgesSecret(Placer):
    name: ClassVar[str] = "keeps-edges-secret"

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        return replace(Placer.select(self, state, view, rng), edges=None, features=None)


@config
class EdgesEverywhere(Placer):
    """Names edges in flat federated learning, too."""

    name: ClassVar[str] = "edges-everywhere"

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        chosen = Placer.select(self, state, view, rng)
        edges = np.zeros_like(chosen.clients) if chosen.edges is None else chosen.edges
        return replace(chosen, edges=edges)


@config
class NarrowEdges(Placer):
    name: ClassVar[str] = "narrow-edges"

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        chosen = Placer.select(self, state, view, rng)
        narrow: Any = None if chosen.edges is None else chosen.edges.astype(np.int32)
        return replace(chosen, edges=narrow)


@config
class CountsFromOne(Placer):
    name: ClassVar[str] = "counts-from-one"

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        chosen = Placer.select(self, state, view, rng)
        edges = None if chosen.edges is None else chosen.edges + 1
        return replace(chosen, edges=edges, features=None)


@config
class TooFewEdges(Placer):
    name: ClassVar[str] = "too-few-edges"

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        chosen = Placer.select(self, state, view, rng)
        return replace(chosen, edges=None if chosen.edges is None else chosen.edges[1:])


@config
class TwoEdgesForOne(Placer):
    """Puts a client at two edges, which takes naming it twice."""

    name: ClassVar[str] = "two-edges-for-one"

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        chosen = Placer.select(self, state, view, rng)
        if chosen.edges is None or len(chosen.edges) == 0:
            return chosen
        clients = np.append(chosen.clients[0], chosen.clients)
        edges = np.append((chosen.edges[0] + 1) % 3, chosen.edges)
        return replace(chosen, clients=clients, edges=edges, features=None)


@config
class ContextOfAnotherEdge(Placer):
    name: ClassVar[str] = "context-of-another-edge"

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        chosen = Placer.select(self, state, view, rng)
        if view.edges is None or view.features is None:
            return chosen
        return replace(chosen, features=view.features[chosen.clients, 0])


@config
class ScalesContexts(Placer):
    name: ClassVar[str] = "scales-contexts"

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        if view.edges is not None and view.features is not None:
            view.features[...] /= view.features.max(initial=1.0)
        return Placer.select(self, state, view, rng)


@config
class SpendsFromBudgets(Placer):
    """Subtracts what it spends from the operator's own numbers."""

    name: ClassVar[str] = "spends-from-budgets"

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        chosen = Placer.select(self, state, view, rng)
        if view.edges is not None and chosen.edges is not None:
            view.edges.budget[:] -= view.edges.spent(chosen.clients, chosen.edges)
        return chosen


@config
class BorrowsEdges(Placer):
    name: ClassVar[str] = "borrows-edges"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        Placer.observe(self, state, selection, feedback)
        if selection.edges is not None and len(selection.edges) >= 2:
            state.note = selection.edges[:2]


@config
class HashesEdges(Placer):
    name: ClassVar[str] = "hashes-edges"

    def tie_break(self, view: RoundView, rng: Generator) -> FloatArray:
        noise = Placer.tie_break(self, view, rng)
        if view.edges is None:
            return noise
        # Not merely an order of three edges: one time in six two processes would agree on that.
        return (
            noise + abs(hash(self.name)) / 2**61 * np.arange(noise.size).reshape(noise.shape)
        ) % 1


@config
class RandomEdges(Placer):
    """Lets Python's own generator choose among edges."""

    name: ClassVar[str] = "random-edges"

    def tie_break(self, view: RoundView, rng: Generator) -> FloatArray:
        noise = Placer.tie_break(self, view, rng)
        return noise if view.edges is None else np.roll(noise, random.randrange(3), axis=1)


@config
class WritesADiary(Placer):
    name: ClassVar[str] = "writes-a-diary"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        Placer.observe(self, state, selection, feedback)
        if selection.edges is not None:
            state.note = np.append(state.note, selection.edges)


@config
class ForgetsOnRestore(Placer):
    """Rests the edge that had most clients, but does not say so in a field of the state."""

    name: ClassVar[str] = "forgets-on-restore"

    def score(self, state: State, view: RoundView) -> FloatArray:
        score = Placer.score(self, state, view).copy()
        score[:, vars(state).get("resting", [])] -= 1.0
        return score

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        Placer.observe(self, state, selection, feedback)
        if selection.edges is not None and len(selection.edges):
            vars(state)["resting"] = [int(np.bincount(selection.edges).argmax())]


@config
class FavoursTheFirstEdge(Placer):
    """Fair to clients, not to edges."""

    name: ClassVar[str] = "favours-the-first-edge"

    def tie_break(self, view: RoundView, rng: Generator) -> FloatArray:
        noise = Placer.tie_break(self, view, rng)
        return noise if view.edges is None else np.sort(noise, axis=1)


@config
class HomesClients(Placer):
    """Fair to clients and to edges, but client k goes to edge k % M."""

    name: ClassVar[str] = "homes-clients"

    def tie_break(self, view: RoundView, rng: Generator) -> FloatArray:
        noise = Placer.tie_break(self, view, rng)
        clients, edges = np.indices(noise.shape)
        return np.asarray(noise + (clients % noise.shape[1] != edges))


@config
class FavoursLowIds(Placer):
    name: ClassVar[str] = "favours-low-ids-at-edges"

    def tie_break(self, view: RoundView, rng: Generator) -> FloatArray:
        noise = Placer.tie_break(self, view, rng)
        return noise if view.edges is None else np.sort(noise, axis=0)


@config
class RemembersLastEdge(Placer):
    name: ClassVar[str] = "remembers-last-edge"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        Placer.observe(self, state, selection, feedback)
        if selection.edges is not None and len(feedback.clients):
            last = np.searchsorted(selection.clients, feedback.clients[-1])
            state.note[0] = selection.edges[last]


@config
class TrustsRowOrder(Placer):
    """Takes it that row i of the feedback is client i of the cohort."""

    name: ClassVar[str] = "trusts-row-order"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        if selection.edges is None:
            Placer.observe(self, state, selection, feedback)
            return
        rows = len(feedback.clients)
        in_time = feedback.answered & (feedback.signals["in_time"] > 0)
        clients, edges = selection.clients[:rows], selection.edges[:rows]
        state.count[clients, edges] += 1
        state.successes[clients, edges] += in_time


@config
class NeedsThePayable(Placer):
    name: ClassVar[str] = "needs-the-payable"

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        if view.edges is not None and view.num_available > 0:
            payable = view.edges.cost <= view.edges.budget
            assert self.score(state, view)[payable].max() >= -np.inf  # the maximum of nothing
        return Placer.select(self, state, view, rng)


@config
class NeedsABudget(Placer):
    """Measures costs in budgets, of which some are 0 and some infinite."""

    name: ClassVar[str] = "needs-a-budget"

    def affords(self, costs: list[float], budget: float) -> bool:
        return fsum(costs) / budget <= 1.0 and int(budget) >= 0


@config
class SumsSignals(Placer):
    name: ClassVar[str] = "sums-signals"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        if selection.edges is None:
            Placer.observe(self, state, selection, feedback)
            return
        edges = selection.edges[np.searchsorted(selection.clients, feedback.clients)]
        state.count[feedback.clients, edges] += 1
        state.successes[feedback.clients, edges] += feedback.signals["in_time"]


@config
class ExploresEarlyOnly(Placer):
    name: ClassVar[str] = "explores-edges-early-only"

    def score(self, state: State, view: RoundView) -> FloatArray:
        score = Placer.score(self, state, view)
        late = view.edges is not None and view.round > 30
        return np.where(state.count == 0, -np.inf, score) if late else score

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        if view.edges is None or view.round <= 30:
            return Placer.select(self, state, view, rng)
        known = replace(view, available=view.available & (state.count > 0).any(axis=1))
        return Placer.select(self, state, known, rng)


@config
class LearnsNothing(Placer):
    name: ClassVar[str] = "learns-nothing-at-edges"

    def score(self, state: State, view: RoundView) -> FloatArray:
        flat = Placer.score(self, state, view)
        return flat if view.edges is None else np.zeros_like(flat)


@config
class DeniesLearning(Placer):
    name: ClassVar[str] = "denies-learning-at-edges"
    learns: ClassVar[bool] = False

    def score(self, state: State, view: RoundView) -> FloatArray:
        score = Placer.score(self, state, view)
        return np.zeros_like(score) if view.edges is None else score


@config
class KeepsTheSilent(Placer):
    """Counts answers alone, so that a client that never answers stays unseen and comes first."""

    name: ClassVar[str] = "keeps-the-silent-at-edges"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        Placer.observe(
            self, state, selection, feedback_rows(feedback, np.flatnonzero(feedback.answered))
        )


@config
class WaitsForAll(Placer):
    """Learns only from feedback of more than one client."""

    name: ClassVar[str] = "waits-for-all-at-edges"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        if len(feedback.clients) > 1:
            Placer.observe(self, state, selection, feedback)


@config
class RemembersLastLate(Placer):
    """Remembers the last row of late answers, but only at edge servers."""

    name: ClassVar[str] = "remembers-last-late"
    hears_late: ClassVar[bool] = True

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        Placer.observe(self, state, selection, feedback)
        late = feedback.late
        if late is not None and len(late.clients) > 0 and selection.edges is not None:
            state.note[0] = late.clients[-1]


@config
class LosesHeart(Placer):
    """Asks nobody any more when most of many jobs came too late or not at all."""

    name: ClassVar[str] = "loses-heart"

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        if state.successes.sum() < min(0.4 * state.count.sum(), state.count.sum() - 8):
            view = replace(view, cohort_size=0)
        return Placer.select(self, state, view, rng)


POINT = {check.point: check for check in CHECKS}

KEEPING: Sequence[tuple[Policy[Any], Check]] = (
    *((HonestPlacer(), check) for check in CHECKS),
    *((Told(), POINT[point]) for point in (2, 3, 9, 14)),
    *((Clairvoyant(), POINT[point]) for point in (3, 9, 14)),
)

BREAKING: Sequence[tuple[int, Policy[Any], str]] = (
    (1, Undeclared(), "its trait assigns_edges is 'yes'"),
    (2, OverspendsABit(), r"its clients cost 0\.\d{17} at edge \d, whose budget is 0\.\d$"),
    (2, ReachesTooFar(), "which does not cover it"),
    (2, KeepsEdgesSecret(), "its edges are None"),
    (2, NarrowEdges(), "dtype=int32"),
    (2, CountsFromOne(), "there are 3, counted from 0"),
    (2, TooFewEdges(), "for each of its clients"),
    (2, TwoEdgesForOne(), "none twice"),
    (2, ContextOfAnotherEdge(), "features in its selection"),
    (3, ScalesContexts(), "wrote into the view's arrays"),
    (3, SpendsFromBudgets(), "read-only"),
    (4, BorrowsEdges(), "state's note changed"),
    (5, HashesEdges(), "another PYTHONHASHSEED"),
    (6, RandomEdges(), "Python's global random generator"),
    (7, WritesADiary(), "the state's note was"),
    (8, ForgetsOnRestore(), "saved and restored before round"),
    (9, FavoursTheFirstEdge(), "edge servers that nothing tells apart"),
    (9, HomesClients(), "edge servers that nothing tells apart"),
    (9, FavoursLowIds(), "clients that nothing tells apart"),
    (10, RemembersLastEdge(), "state's note differ"),
    (10, TrustsRowOrder(), "successes differ"),
    (
        11,
        NeedsThePayable(),
        "edge servers that can almost pay for one.*: it raised|without budgets",
    ),
    (11, NeedsABudget(), "edge servers without budgets.*: it raised ZeroDivisionError"),
    (12, SumsSignals(), "NaN entered the state's successes"),
    (13, ExploresEarlyOnly(), "were not chosen once"),
    (14, DeniesLearning(), "declares learns = False"),
    (16, KeepsTheSilent(), "clients that never answer were chosen"),
    (17, WaitsForAll(), "answers that came one by one changed nothing"),
    (18, RemembersLastLate(), "state's note differ"),
    (19, LosesHeart(), "decisions in a row brought no answer"),
)


def label(value: Any) -> str:
    return str(getattr(value, "name", value))


@pytest.mark.parametrize(("policy", "check"), KEEPING, ids=label)
def test_an_honest_placement_keeps_every_point(policy: Policy[Any], check: Check) -> None:
    check(policy, knowledge=AT_EDGES)


@pytest.mark.parametrize(("point", "policy", "message"), BREAKING, ids=label)
def test_a_broken_placement_fails_the_point_meant_for_it(
    point: int, policy: Policy[Any], message: str
) -> None:
    check = POINT[point]
    with pytest.raises(ContractError, match=f"(?s) at 3 edge servers: .*({message})") as caught:
        check(policy, knowledge=AT_EDGES)
    assert caught.value.point == point


def test_who_learns_nothing_does_not_beat_random_placements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In none of the four easy instances; five seeds instead of twenty are as good for this."""
    monkeypatch.setattr(learning, "LOOKS", {5: learning.LOOKS[learning.SEEDS]})
    with pytest.raises(ContractError) as caught:
        POINT[14](LearnsNothing(), knowledge=AT_EDGES)
    assert caught.value.point == 14


def test_every_point_is_broken_by_somebody() -> None:
    assert {point for point, _, _ in BREAKING} == {check.point for check in CHECKS}


def test_whoever_assigns_edges_is_tried_at_them_without_being_asked() -> None:
    assert [told.num_edges for told in knowledges(HonestPlacer())] == [0, 3]
    for policy in (ReachesTooFar(), NarrowEdges()):
        with pytest.raises(ContractError, match=r"point 2: .* at 3 edge servers: in round"):
            check_policy(policy)
    with pytest.raises(ContractError) as caught:
        check_policy(EdgesEverywhere())
    assert caught.value.point == 2
    assert "edge servers" not in str(caught.value)


def test_a_flat_policy_at_edge_servers_is_told_to_be_lifted() -> None:
    @config
    class Flat(Placer):
        name: ClassVar[str] = "flat"
        assigns_edges: ClassVar[bool] = False

    assert [told.num_edges for told in knowledges(Flat())] == [0]
    with pytest.raises(ContractError, match=r"Lifted\(policy=Flat"):
        POINT[8](Flat(), knowledge=AT_EDGES)
