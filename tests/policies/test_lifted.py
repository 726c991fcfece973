"""Flat policies lifted to edge servers."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.random import Generator
from tests.policies.small_networks import KINDS, rounds

from fedmuster import POLICIES
from fedmuster.core.config import named, to_table
from fedmuster.core.edges import EdgeView
from fedmuster.core.errors import ConfigError
from fedmuster.core.policy import CohortRule, Policy, PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.selector import Selector
from fedmuster.core.state import NoState
from fedmuster.policies.bsfl import BSFL
from fedmuster.policies.clustered_sampling import ClusteredSampling
from fedmuster.policies.lifted import Lifted
from fedmuster.policies.random import AllClients, Random
from fedmuster.policies.rbcs_f import RBCSF
from fedmuster.policies.refl import REFL
from fedmuster.policies.safa import SAFA
from fedmuster.solvers.assignment import FLGreedy
from fedmuster.testing import Knowledge
from fedmuster.testing.repetition_checks import trajectory

FLAT: dict[str, Policy[Any]] = {
    name: kind() for name, kind in POLICIES.items() if not kind.assigns_edges
}

TRAITS = (
    "cohort_rule",
    "oracle",
    "learns",
    "wants_gain",
    "wanted_sketch_size",
    "wants_output_bias",
    "stale_answers",
    "hears_late",
    "late_hold_slots",
    "rounds_only",
    "published_federation",
)
"""What a policy around another has from that one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstComeFirst(PolicyTraits):
    """A policy of a user's own: the lowest ids, at most ``most`` of them; it notes what it saw."""

    name: ClassVar[str] = "first-come-first"
    cohort_rule: ClassVar[CohortRule] = "at most"
    seen: ClassVar[list[RoundView]] = []
    heard: ClassVar[list[Selection]] = []

    most: int = 100

    def init(self, problem: Problem) -> NoState:
        assert problem.num_edges == 0
        return NoState()

    def select(self, state: NoState, view: RoundView, rng: Generator) -> Selection:
        self.seen.append(view)
        count = min(view.num_to_choose, self.most)
        return Selection.of(view, slice(None), np.flatnonzero(view.available)[:count])

    def observe(self, state: NoState, selection: Selection, feedback: Feedback) -> None:
        self.heard.append(selection)


@pytest.fixture(autouse=True)
def _forget() -> None:
    FirstComeFirst.seen.clear()
    FirstComeFirst.heard.clear()


def test_every_flat_policy_of_the_registry_can_be_lifted_in_toml() -> None:
    for name, policy in FLAT.items():
        lifted: object = named(
            POLICIES, {"name": "lifted", "policy": {"name": name}}, key=(), what="policy"
        )
        assert lifted == Lifted(policy=policy)
        assert named(POLICIES, to_table(lifted), key=(), what="policy") == lifted
    table = {"name": "lifted", "policy": {"name": "bsfl", "alpha": 3.5}}
    assert named(POLICIES, table, key=(), what="policy") == Lifted(policy=BSFL(alpha=3.5))
    with pytest.raises(ConfigError, match="policy"):
        named(POLICIES, {"name": "lifted", "policy": {"name": "cocs"}}, key=(), what="policy")


@pytest.mark.parametrize("name", FLAT)
def test_flat_policies_at_edges(name: str) -> None:
    """Five rounds of each kind of network; the Selector checks budgets, coverage and all else."""
    policy = FLAT[name]
    for t, played in enumerate(rounds(Lifted(policy=policy), "mixed", 5 * len(KINDS))):
        if KINDS[t % len(KINDS)].startswith("nobody"):
            assert len(played.selection.clients) == 0
        if policy.cohort_rule != "at most":
            assert not played.more_fits()


@pytest.mark.parametrize("name", FLAT)
def test_without_edges_it_is_the_policy_itself(name: str) -> None:
    """Fifty rounds: the cohorts and, bit for bit, the state."""
    policy = FLAT[name]
    assert trajectory(Lifted(policy=policy), Knowledge()) == trajectory(policy, Knowledge())


def test_traits_are_those_of_the_policy() -> None:
    for policy in (*FLAT.values(), FirstComeFirst()):
        lifted = Lifted(policy=policy)
        for trait in TRAITS:
            assert getattr(lifted, trait) == getattr(policy, trait)
        assert lifted.assigns_edges
    assert Lifted(policy=ClusteredSampling(by="similarity")).wanted_sketch_size > 0
    assert Lifted(policy=REFL()).stale_answers != Lifted().stale_answers


def one_edge(cost: list[float], budget: float) -> EdgeView:
    return EdgeView(
        coverage=np.ones((len(cost), 1), dtype=np.bool_),
        cost=np.array(cost),
        budget=np.array([budget]),
    )


@pytest.mark.parametrize(
    "lifted",
    [Lifted(policy=FirstComeFirst()), Lifted(policy=FirstComeFirst(), solver=FLGreedy())],
    ids=["lagrangian", "greedy"],
)
def test_turns_worked_by_hand(lifted: Lifted) -> None:
    """Costs 4, 1, 1, 2 and a budget of 4.5 pay for three. Wanted are 0, 1 and 2, of whom at most
    two fit: 1 and 2. Of the 2.5 that are left, 3 is paid in a second turn; 0 does not fit."""
    problem = Problem(num_clients=4, cohort_size=4, num_edges=1)
    cohort = Selector(lifted, problem).select(edges=one_edge([4.0, 1.0, 1.0, 2.0], 4.5))
    assert cohort.clients.tolist() == [1, 2, 3]
    asked = [(np.flatnonzero(v.available).tolist(), v.cohort_size) for v in FirstComeFirst.seen]
    assert asked == [([0, 1, 2, 3], 3), ([3], 1)]


def test_no_more_than_the_round_may_use() -> None:
    problem = Problem(num_clients=4, cohort_size=2, num_edges=1)
    edges = one_edge([3.0, 2.0, 1.0, 1.0], 4.0)
    cohort = Selector(Lifted(policy=FirstComeFirst()), problem).select(edges=edges)
    # Two of the cheap ones fit, so two are asked for; of 0 and 1 one fits, and one cheap beside it.
    assert len(cohort.clients) == 2
    assert [view.cohort_size for view in FirstComeFirst.seen] == [2, 1]


def test_who_wants_fewer_is_not_asked_again() -> None:
    lifted = Lifted(policy=FirstComeFirst(most=1))
    problem = Problem(num_clients=3, cohort_size=3, num_edges=1)
    cohort = Selector(lifted, problem).select(edges=one_edge([1.0, 1.0, 1.0], 3.0))
    assert cohort.clients.tolist() == [0]
    assert len(FirstComeFirst.seen) == 1


def test_everyone_who_fits_and_no_quotas() -> None:
    edges = one_edge([1.0, 1.0, 1.0], 2.5)
    for policy in (AllClients(), SAFA()):
        problem = Problem(num_clients=3, cohort_size=3, num_edges=1)
        cohort = Selector(Lifted(policy=policy), problem).select(edges=edges)
        assert len(cohort.clients) == 2
        assert cohort.quota is None
        assert cohort.preferred is None


def test_what_the_flat_policy_sees_and_hears() -> None:
    """The mean context over edges that cover a client; then that of the edge where it trained."""
    edges = EdgeView(
        coverage=np.array([[True, True], [False, True], [False, False]]),
        cost=np.array([2.0, 1.0, 1.0]),
        budget=np.array([2.0, 1.0]),
    )
    features = np.array([[[1.0], [3.0]], [[5.0], [7.0]], [[9.0], [11.0]]])
    problem = Problem(num_clients=3, cohort_size=3, num_edges=2, num_features=1)
    selector = Selector(Lifted(policy=FirstComeFirst()), problem)
    cohort = selector.select(edges=edges, features=features)
    assert cohort.edges is not None
    assert (cohort.clients.tolist(), cohort.edges.tolist()) == ([0, 1], [0, 1])
    (view,) = FirstComeFirst.seen
    assert view.edges is None
    assert view.features is not None
    assert view.features.tolist() == [[2.0], [7.0], [10.0]]
    selector.observe(Feedback(round=1, clients=np.array([0]), latency_seconds=np.ones(1)))
    (heard,) = FirstComeFirst.heard
    assert heard.edges is None
    assert heard.features is not None
    assert heard.features.tolist() == [[1.0], [7.0]]


def test_scores_are_those_of_the_policy() -> None:
    selector = Selector(Lifted(policy=RBCSF()), Problem(num_clients=3, cohort_size=3, num_edges=1))
    selector.select(edges=one_edge([1.0, 1.0, 1.0], 2.5))
    assert set(selector.scores()) >= {"latency_seconds", "owed_rounds", "cost[0]"}


def test_what_cannot_be_lifted() -> None:
    with pytest.raises(ConfigError) as found:
        Lifted(policy=Random())
    assert found.value.key == ("policy",)
    for wrong in (BSFL, "bsfl", None):
        strange: Any = wrong
        with pytest.raises(ConfigError) as found:
            Lifted(policy=strange)
        assert found.value.key == ("policy",)
    nothing: Any = "exact"
    with pytest.raises(ConfigError) as found:
        Lifted(solver=nothing)
    assert found.value.key == ("solver",)
