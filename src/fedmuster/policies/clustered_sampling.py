"""Clustered sampling: a cohort in which every part of the clients is represented."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedmuster.core.config import check_types, require
from fedmuster.core.errors import DataError
from fedmuster.core.explaining import Rule
from fedmuster.core.policy import POLICIES, PolicyTraits
from fedmuster.core.records import Feedback, FloatArray, IntArray, Problem, RoundView, Selection
from fedmuster.core.state import given
from fedmuster.policies.explaining.simple_rules import ByChance
from fedmuster.policies.random import DataState, Random
from fedmuster.policies.score_columns import of_some
from fedmuster.solvers.pouring import (
    MOST_CLIENTS,
    Bins,
    chances,
    draw,
    num_certain,
    pour,
    pour_groups,
    similar_groups,
    unit_rows,
)


@dataclass(slots=True)
class DirectionState:
    """Data sizes, 0-d where all have alike, and [K, q] where each client's last update pointed."""

    directions: NDArray[np.float32]
    sizes: IntArray = given()


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class ClusteredSampling(PolicyTraits):
    """One client from each of m distributions, which together hold every client by its data.

    Each of the m distributions sums to 1 and client k has ``m p_k`` in all of them, where ``p_k =
    n_k / sum n`` is its share of the data of all who are available: so the mean over the cohort is
    that over all data, in expectation, and varies less than with m independent draws by data,
    for few distributions hold the same client. Two ways to fill them:

    - ``size`` (Algorithm 1): sorted by data, largest first, clients are poured into one
      distribution after the other;
    - ``similarity`` (Algorithm 2): clients whose last updates point the same way are grouped, by
      Ward's method on the angles, into groups of a share of 1/m or less. The m largest groups get
      a distribution each, and the others are poured on top.

    Args:
        by: which way. ``similarity`` needs scipy and a model that is being trained; until the
            first update its groups are random. At most 5,000 clients.
        sketch_size: q, how many numbers of each update's direction ``similarity`` keeps. It sees
            the cosine of two updates with an error of about 1/sqrt(q).

    State:
        Of each client the direction of its last update, as a short random projection.

    Deviations:
        1. The paper draws independently, and so at times a client twice. Here a client that
           several distributions share is drawn by a later one only if no earlier one drew it, and
           then more likely: the distributions stay, and P(chosen) is ``m p_k`` exactly.
        2. A client with a share of 1/m or more is always chosen, once; the other places go to the
           others, by clustered sampling among them. Clients without data are chosen, uniformly,
           only where there are not enough others.
        3. The paper averages with weights 1/m; the usual weights by data would count data twice.
           Write ``training.server = { name = "fedavg", weights = "uniform" }``.
        4. Clients never heard from, or whose update was zero, have no direction: they are alike,
           and at right angles to all others. The authors' code sets all their angles to 0.
        5. The angles are the distances of Ward's method. The authors' code hands the square
           matrix of angles to scipy, which takes its rows for points.

    References:
        Y. Fraboni, R. Vidal, L. Kameni, M. Lorenzi, Clustered Sampling: Low-Variance and Improved
        Representativity for Clients Selection in Federated Learning, ICML 2021.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> problem = Problem(num_clients=4, cohort_size=2, num_samples=np.array([10, 30, 20, 20]))
        >>> cohort = Selector(ClusteredSampling(), problem).select()
        >>> cohort.clients, cohort.inclusion
        (array([0, 1]), array([0.25, 0.75]))
    """

    name: ClassVar[str] = "clustered-sampling"
    terms: ClassVar[Mapping[str, str]] = {
        "chance": "how likely it was to be chosen",
    }
    learns: ClassVar[bool] = False  # whom to prefer: P(chosen) never depends on what it observes

    by: Literal["size", "similarity"] = "size"
    sketch_size: int = 128

    def __post_init__(self) -> None:
        check_types(self)
        require(1 <= self.sketch_size <= 1 << 16, self, "sketch_size", "an integer in 1 … 65536")

    @property
    def wanted_sketch_size(self) -> int:
        """Updates are compared by similarity only."""
        return self.sketch_size if self.by == "similarity" else 0

    def init(self, problem: Problem) -> DirectionState:
        """Nobody heard from yet."""
        clients, samples = problem.num_clients, problem.num_samples
        if self.by == "similarity" and clients > MOST_CLIENTS:
            raise DataError(
                f"ClusteredSampling: by = 'similarity' compares every two of {clients} clients, "
                f"and {MOST_CLIENTS} are the most it can: use by = 'size', or fewer clients"
            )
        if samples is not None and clients * samples.sum(dtype=np.float64) >= 2.0**62:
            raise DataError(
                f"ClusteredSampling: {clients} clients with {samples.sum(dtype=np.float64):g} "
                "samples are too many to be counted exactly: give num_samples in larger units"
            )
        return DirectionState(
            directions=np.zeros((clients, self.wanted_sketch_size), dtype=np.float32),
            sizes=np.array(1) if samples is None else samples,
        )

    def select(self, state: DirectionState, view: RoundView, rng: Generator) -> Selection:
        """One client from each distribution over the available ones."""
        if self.by == "size" and state.sizes.ndim == 0:  # equals are poured in random order
            return Random().select(DataState(data=np.ones(())), view, rng)
        count, candidates = view.num_to_choose, np.flatnonzero(view.available)
        sizes = np.broadcast_to(state.sizes, len(view.available))[candidates]
        order = rng.permutation(len(candidates))  # among equals, and so favours nobody
        order = order[np.argsort(-sizes[order], kind="stable")]
        sizes = sizes[order]
        certain = num_certain(sizes, count)
        chosen = np.arange(certain)
        if certain < count:
            rest = slice(certain, int(np.count_nonzero(sizes)))
            bins = self._bins(state, candidates[order[rest]], sizes[rest], count - certain)
            chosen = np.append(chosen, certain + draw(bins, rng))
        positions, chance = order[chosen], chances(sizes, count)[chosen]
        selection = Selection.of(view, candidates, positions)
        return replace(selection, inclusion=chance[np.argsort(positions)])

    def rule(self) -> Rule:
        """How it chooses, in words."""
        return ByChance(
            formula="one client from each of m distributions, which hold every client by its data",
            term="chance",
            exact=True,
        )

    def scores(self, state: DirectionState, view: RoundView) -> Mapping[str, FloatArray]:
        """How likely each client is to be chosen."""
        candidates, K = np.flatnonzero(view.available), len(view.available)
        sizes = np.broadcast_to(state.sizes, K)[candidates]
        order = np.argsort(-sizes)
        chance = chances(sizes[order], view.num_to_choose)
        return of_some(candidates[order], K, chance=chance)

    def observe(self, state: DirectionState, selection: Selection, feedback: Feedback) -> None:
        """Remember where the updates pointed."""
        if self.by == "similarity" and feedback.sketches is not None:
            heard = feedback.answered
            state.directions[feedback.clients[heard]] = unit_rows(feedback.sketches[heard])

    def _bins(self, state: DirectionState, clients: IntArray, sizes: IntArray, count: int) -> Bins:
        """``count`` distributions over ``clients``, largest first."""
        if self.by == "size":
            return pour(sizes, count)
        groups = similar_groups(state.directions[clients], count * sizes, capacity=int(sizes.sum()))
        return pour_groups(sizes, groups, count)
