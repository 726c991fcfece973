"""From scores of the available clients to a Selection, by any of the solvers."""

import numpy as np
from numpy.random import Generator

from fedmuster.core.records import FloatArray, IntArray, RoundView, Selection
from fedmuster.solvers.annealing import Annealing
from fedmuster.solvers.bottleneck import Exact
from fedmuster.solvers.brute_force import BruteForce
from fedmuster.solvers.instance import Instance
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


def nobody(view: RoundView) -> Selection:
    """The empty cohort, for a round in which nobody is available."""
    return Selection.of(view, slice(None), np.empty(0, dtype=np.int64))
