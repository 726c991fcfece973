"""Policies without any estimate: random selection, and all clients in every round."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types
from fedmuster.core.explaining import Rule
from fedmuster.core.policy import POLICIES, CohortRule, PolicyTraits, Stateless
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.state import NoState, given
from fedmuster.policies.explaining.simple_rules import ByChance, Everyone
from fedmuster.policies.score_columns import costs
from fedmuster.solvers.assignment import all_pairs, first_come
from fedmuster.solvers.top_k import weighted_draw


@dataclass(slots=True)
class DataState:
    """How much data each client has, ``d_k``; 0-d where all clients count alike."""

    data: FloatArray = given()


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Random(PolicyTraits):
    """Uniform over the available clients, or in proportion to their data.

    Where there are edge servers, clients are drawn one after the other, and each goes to a random
    one of the edges that cover it and can still pay for it, until nobody more fits (COCS, section
    VI-B).

    Args:
        by_data: draw without replacement with probability in proportion to ``d_k = q_k |X_k|``
            (BSFL's choice on non-i.i.d. data) instead of uniformly; the same as uniformly where
            the problem says nothing of data.

    State:
        Nothing is learned.

    References:
        H. B. McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized
        Data, AISTATS 2017. Z. Qu, R. Duan, L. Chen, J. Xu, Z. Lu, Y. Liu, Context-Aware Online
        Client Selection for Hierarchical Federated Learning, IEEE TPDS 33(12), 2022.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> cohort = Selector(Random(), Problem(num_clients=20, cohort_size=5)).select()
        >>> cohort.clients.shape, float(cohort.inclusion[0])
        ((5,), 0.25)
    """

    name: ClassVar[str] = "random"
    terms: ClassVar[Mapping[str, str]] = {
        "data_share": "its share of the data of all who are available"
    }
    learns: ClassVar[bool] = False
    assigns_edges: ClassVar[bool] = True

    by_data: bool = False

    def __post_init__(self) -> None:
        check_types(self)

    def init(self, problem: Problem) -> DataState:
        """The data sizes, where they matter."""
        weights = problem.data_weights() if self.by_data else None
        return DataState(data=np.array(1.0) if weights is None else weights)

    def select(self, state: DataState, view: RoundView, rng: Generator) -> Selection:
        """Draw a cohort."""
        if view.edges is not None:
            return _at_edges(state.data, view, rng)
        drawn = draw(state.data, view, view.num_to_choose, rng)
        chosen = Selection.of(view, view.candidates(), drawn)
        if state.data.ndim > 0:
            return chosen
        share = view.num_to_choose / max(view.num_available, 1)
        return replace(chosen, inclusion=np.full(len(drawn), share))

    def observe(self, state: DataState, selection: Selection, feedback: Feedback) -> None:
        """Nothing is learned."""

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        if self.by_data:
            return ByChance(
                formula="clients are drawn in proportion to their data", term="data_share"
            )
        return ByChance(formula="clients are drawn uniformly from all that are available")

    def scores(self, state: DataState, view: RoundView) -> Mapping[str, FloatArray]:
        """Each client's share of the data of all available clients, where data count."""
        if not self.by_data:
            return costs(view)
        data = np.where(view.available, state.data, np.nan)
        return {"data_share": data / (np.nansum(data) or 1.0), **costs(view)}


def _at_edges(data: FloatArray, view: RoundView, rng: Generator) -> Selection:
    """Clients in the order in which they win an exponential race, each at its edges at random."""
    pairs = all_pairs(view)
    race = rng.standard_exponential(len(view.available))
    arrival = np.full(len(race), np.inf)
    np.divide(race, data, out=arrival, where=data > 0)
    # Those without data are last, among themselves in any order: that of the race.
    keys = (rng.random(len(pairs.clients)), race[pairs.clients], arrival[pairs.clients])
    return first_come(view, pairs, np.lexsort(keys))


def draw(data: FloatArray, view: RoundView, count: int, rng: Generator) -> IntArray:
    """Positions of ``count`` of the available clients, without replacement, in proportion to data.

    ``data`` is 0-d where all clients count alike; ``count`` is at most the number available.
    """
    if data.ndim == 0:
        return rng.choice(view.num_available, count, replace=False, shuffle=False)
    return weighted_draw(data[view.candidates()], count, rng)


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class AllClients(Stateless):
    """Everyone who is available, every round (FedAvg with full participation).

    State:
        Nothing is learned.

    References:
        O. Peleg et al., PAUSE, section V: "FedAvg, choosing all K users".

    Example:
        >>> from fedmuster import Problem, Selector
        >>> Selector(AllClients(), Problem(num_clients=20, cohort_size=5)).select().clients.shape
        (20,)
    """

    name: ClassVar[str] = "all-clients"
    cohort_rule: ClassVar[CohortRule] = "everyone"
    rounds_only: ClassVar[str | None] = "it asks everybody at once"

    def select(self, state: NoState, view: RoundView, rng: Generator) -> Selection:
        """Everyone available."""
        everyone = Selection.of(view, slice(None), np.flatnonzero(view.available))
        return replace(everyone, inclusion=np.ones(len(everyone.clients)))

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return Everyone(formula="every available client is asked")
