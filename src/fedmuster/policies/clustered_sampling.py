"""Clustered sampling: a cohort that represents every group of clients.

Clients are poured into bins, and one client is drawn from each bin. Sizes are integers, so all sums
are exact. Clients of a bin's size or more are chosen for certain
(:func:`~fedmuster.solvers.inclusion.num_certain`) and are not poured. So only the first client that
is poured into a bin can also be in an earlier bin.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedmuster.bandits.similarity import WardTree, angles, unit_rows
from fedmuster.core.config import check_types, require
from fedmuster.core.errors import DataError
from fedmuster.core.explaining import Rule
from fedmuster.core.policy import POLICIES, PolicyTraits
from fedmuster.core.records import Feedback, FloatArray, IntArray, Problem, RoundView, Selection
from fedmuster.core.state import given
from fedmuster.policies.explaining.simple_rules import ByChance
from fedmuster.policies.random import DataState, Random
from fedmuster.policies.score_columns import of_some
from fedmuster.solvers.inclusion import chances, num_certain

MOST_CLIENTS: Final = 5_000
"""More clients are refused: time and memory grow with the square of their number."""


def similar_groups(directions: NDArray[np.floating], units: IntArray, *, capacity: int) -> IntArray:
    """The group 0, 1, … of each client: the largest branches of the tree that fit into a bin.

    Args:
        directions: [n, q], of length 1; 0 for clients of unknown direction.
        units: int64[n], the units of each client, at most ``capacity``.
        capacity: units of a bin.

    Example:
        >>> two_and_two = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.1, 1.0]])
        >>> groups = similar_groups(two_and_two, np.array([3, 3, 3, 3]), capacity=6)
        >>> groups[0] == groups[2] != groups[1] == groups[3]
        np.True_
    """
    if len(units) == 1:
        return np.zeros(1, dtype=np.int64)
    tree = WardTree(angles(directions))
    weight: list[int] = units.tolist()
    for left, right in tree.joins.tolist():
        weight.append(weight[left] + weight[right])
    # Cut where branches get too heavy, not too high. In integers: heights are rounded.
    return tree.groups_within([branch > capacity for branch in weight[len(units) :]])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SamplingBins:
    """m distributions over n clients, in which client k has ``m size_k`` units in all.

    A bin holds the sum of all sizes. Each bin has room for its own group of clients, and for a part
    of the line on which all other clients stand.

    Args:
        capacity: units of a bin.
        own: the clients whose group has a bin, bin by bin.
        own_edges: where each of these begins on a line of their own, and where the last ends.
        poured: all other clients, in the order in which they are poured.
        poured_edges: where each of these begins on their line, and where the last ends.
        room_edges: int64[m+1], where each bin's part of that line begins, and the last ends.
    """

    capacity: int
    own: IntArray
    own_edges: IntArray
    poured: IntArray
    poured_edges: IntArray
    room_edges: IntArray

    def __len__(self) -> int:
        return len(self.room_edges) - 1


def pour(sizes: IntArray, count: int) -> SamplingBins:
    """Algorithm 1: pour all clients in their order, one bin after the other."""
    nobody = np.empty(0, dtype=np.int64)
    capacity = int(sizes.sum())
    return SamplingBins(
        capacity=capacity,
        own=nobody,
        own_edges=_edges(nobody),
        poured=np.arange(len(sizes)),
        poured_edges=_edges(count * sizes),
        room_edges=capacity * np.arange(count + 1),
    )


def pour_groups(sizes: IntArray, groups: IntArray, count: int) -> SamplingBins:
    """Algorithm 2: each of the ``count`` largest groups gets a bin, the rest is poured on top.

    ``groups`` is the group 0, 1, … of each client; no group is larger than a bin.
    """
    capacity = int(sizes.sum())
    units = np.zeros(int(groups.max()) + 1, dtype=np.int64)
    np.add.at(units, groups, count * sizes)
    falling = np.argsort(-units, kind="stable")
    rank = np.empty_like(falling)
    rank[falling] = np.arange(len(falling))
    order = np.argsort(rank[groups], kind="stable")
    num_own = int(np.count_nonzero(rank[groups] < count))
    own, poured = order[:num_own], order[num_own:]
    return SamplingBins(
        capacity=capacity,
        own=own,
        own_edges=_edges(count * sizes[own]),
        poured=poured,
        poured_edges=_edges(count * sizes[poured]),
        room_edges=_edges(capacity - units[falling[:count]]),
    )


def draw(bins: SamplingBins, rng: Generator) -> IntArray:
    """One client from each bin, all distinct, with chances in proportion to its units in the bin.

    A client with ``before`` units in an earlier bin and ``shared`` units in this one is drawn here
    with chance ``shared / (capacity - before)`` unless the earlier bin drew it. So the chance is
    ``shared / capacity`` in all.
    """
    begin, end = bins.room_edges[:-1], bins.room_edges[1:]
    at_begin = np.searchsorted(bins.poured_edges, begin, side="right") - 1
    start = bins.poured_edges[at_begin]
    stop = bins.poured_edges[np.minimum(at_begin + 1, len(bins.poured))]
    before = begin - start
    shared = np.where(before > 0, np.minimum(stop, end) - begin, 0)

    point = begin + shared + rng.integers(bins.capacity - shared)
    is_poured = point < end
    chosen = np.empty(len(bins), dtype=np.int64)
    chosen[is_poured] = _owner(bins.poured, bins.poured_edges, point[is_poured])
    own_begin = bins.capacity * np.arange(len(bins)) - begin
    chosen[~is_poured] = _owner(bins.own, bins.own_edges, (own_begin + point - end)[~is_poured])

    hit = rng.integers(bins.capacity - before) < shared
    first_bin = np.searchsorted(bins.room_edges, start, side="right") - 1
    for j in np.flatnonzero(hit).tolist():
        client = bins.poured[at_begin[j]]
        if client not in chosen[first_bin[j] : j]:
            chosen[j] = client
    return chosen


def _edges(units: IntArray) -> IntArray:
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(units)))


def _owner(clients: IntArray, edges: IntArray, points: IntArray) -> IntArray:
    return clients[np.searchsorted(edges, points, side="right") - 1]


@dataclass(slots=True)
class DirectionState:
    """[K, q] direction of each client's last update, and data sizes (0-d if all are equal)."""

    directions: NDArray[np.float32]
    sizes: IntArray = given()


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class ClusteredSampling(PolicyTraits):
    """One client from each of m distributions, which together hold every client by its data.

    Each of the m distributions sums to 1 and client k has ``m p_k`` in all of them, where ``p_k =
    n_k / sum n`` is its share of the data of all who are available: so the mean over the cohort is
    that over all data, in expectation, and varies less than with m independent draws by data,
    for few distributions hold the same client. It needs rounds: clients that are drawn one by one
    are drawn by their data alone. Two ways to fill the distributions:

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
    terms: ClassVar[Mapping[str, str]] = {"chance": "how likely it was to be chosen"}
    learns: ClassVar[bool] = False  # whom to prefer: P(chosen) never depends on what it observes
    rounds_only: ClassVar[str | None] = (
        "its cohort represents all data only if it is chosen and averaged as a whole; one by one, "
        "clients are drawn by their data, as random:by_data=true draws them"
    )

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
        """No update received yet."""
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
        certain = num_certain(sizes[:count], sizes.sum())
        chosen = np.arange(certain)
        if certain < count:
            rest = slice(certain, int(np.count_nonzero(sizes)))
            bins = self._bins(state, candidates[order[rest]], sizes[rest], count - certain)
            chosen = np.append(chosen, certain + draw(bins, rng))
        positions, chance = order[chosen], chances(sizes, count)[chosen]
        selection = Selection.of(view, candidates, positions)
        return replace(selection, inclusion=chance[np.argsort(positions)])

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return ByChance(
            formula="one client from each of m distributions, which hold every client by its data",
            term="chance",
            exact=True,
        )

    def scores(self, state: DirectionState, view: RoundView) -> Mapping[str, FloatArray]:
        """How likely each client is to be chosen."""
        candidates, K = np.flatnonzero(view.available), len(view.available)
        sizes = np.broadcast_to(state.sizes, K)[candidates]
        return of_some(candidates, K, chance=chances(sizes, view.num_to_choose))

    def observe(self, state: DirectionState, selection: Selection, feedback: Feedback) -> None:
        """Remember where the updates pointed."""
        if self.by == "similarity" and feedback.sketches is not None:
            heard = feedback.answered
            state.directions[feedback.clients[heard]] = unit_rows(feedback.sketches[heard])

    def _bins(
        self, state: DirectionState, clients: IntArray, sizes: IntArray, count: int
    ) -> SamplingBins:
        """``count`` distributions over ``clients``, largest first."""
        if self.by == "size":
            return pour(sizes, count)
        groups = similar_groups(state.directions[clients], count * sizes, capacity=int(sizes.sum()))
        return pour_groups(sizes, groups, count)
