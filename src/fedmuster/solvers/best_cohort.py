"""From scores of the available clients to a Selection, by any of the solvers."""

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.records import RoundView, Selection
from fedmuster.solvers.annealing import Annealing
from fedmuster.solvers.bottleneck import Exact
from fedmuster.solvers.instance import BruteForce, Instance
from fedmuster.solvers.top_k import top_k

Solver = Exact | Annealing | BruteForce


def best_cohort(
    view: RoundView,
    candidates: IntArray | slice,
    *,
    bottleneck: FloatArray,
    weight: FloatArray,
    clusters: IntArray | None = None,
    penalty: float = 0.0,
    solver: Solver,
    rng: Generator,
) -> Selection:
    """The best cohort of ``candidates`` for a bottleneck reward, see :class:`Instance`."""
    if view.num_to_choose == 0:
        return nobody(view)
    instance = Instance(
        bottleneck=bottleneck,
        weight=weight,
        size=view.num_to_choose,
        clusters=clusters,
        penalty=penalty,
    )
    return Selection.of(view, candidates, solver.solve(instance, rng))


def highest(
    view: RoundView, candidates: IntArray | slice, scores: FloatArray, rng: Generator
) -> Selection:
    """The candidates with the highest scores."""
    return Selection.of(view, candidates, top_k(scores, view.num_to_choose, rng))


def filled_up(view: RoundView, chosen: IntArray, first: BoolArray, rng: Generator) -> Selection:
    """``chosen`` and as many others as are missing: uniformly, those in ``first`` (bool[K]) first.

    Example:
        >>> view = RoundView(round=1, cohort_size=3, available=np.array([1, 1, 0, 1, 1], bool))
        >>> first = np.array([False, True, True, True, False])
        >>> filled_up(view, np.array([4]), first, np.random.default_rng(0)).clients
        array([1, 3, 4])
    """
    missing = view.num_to_choose - len(chosen)
    if missing > 0:
        others = np.setdiff1d(np.flatnonzero(view.available), chosen)
        added = others[top_k(first[others].astype(np.float64), missing, rng)]
        chosen = np.concatenate([chosen, added])
    return Selection.of(view, slice(None), chosen)


def nobody(view: RoundView) -> Selection:
    """The empty cohort, for a round in which nobody is available."""
    return Selection.of(view, slice(None), np.empty(0, dtype=np.int64))
