"""The combinatorial problem behind every bottleneck bandit, its solvers' protocol, brute force."""

from dataclasses import dataclass
from itertools import chain, combinations
from math import comb
from typing import ClassVar, Final, Protocol

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.rewards import repeats
from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.errors import DataError
from fedmuster.core.records import RoundView, Selection, is_integer
from fedmuster.core.registry import Registry
from fedmuster.solvers.bottleneck_candidates import Stored, heaviest, refuse_unordered
from fedmuster.solvers.top_k import nobody


@dataclass(frozen=True, kw_only=True, slots=True)
class BottleneckProblem:
    """Maximise ``min_S u + (1/m) sum_S w - penalty * sum_r max(0, |S ∩ C_r| - 1)`` over m-sets S.

    BSFL Eq. 13 and PAUSE Eq. 14 with 18 have no penalty; PAUSE Eq. 22 has ``penalty = alpha rho``.

    Args:
        bottleneck: u, one value per candidate; ``+inf`` for candidates that were never seen.
        weight: w, finite.
        size: m, 1 … number of candidates.
        clusters: a label >= 0 for each candidate; None when there is no penalty.
        penalty: >= 0, per further client of the same cluster. Below 0 the sweep would not be
            exact, so it is refused.
    """

    bottleneck: FloatArray
    weight: FloatArray
    size: int
    clusters: IntArray | None = None
    penalty: float = 0.0

    def __post_init__(self) -> None:
        try:  # copies nothing that is of the right type already
            object.__setattr__(self, "bottleneck", np.asarray(self.bottleneck, dtype=np.float64))
            object.__setattr__(self, "weight", np.asarray(self.weight, dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise DataError(
                f"BottleneckProblem: bottleneck and weight must hold numbers: {error}"
            ) from None
        shape = self.bottleneck.shape
        if len(shape) != 1 or self.weight.shape != shape:
            raise DataError(
                f"BottleneckProblem: bottleneck {shape} and weight {self.weight.shape} must be two "
                "lists of the same length"
            )
        if not is_integer(self.size, least=1) or self.size > shape[0]:
            raise DataError(f"BottleneckProblem: size is {self.size}, expected 1 … {shape[0]}")
        if not self.penalty >= 0 or not np.isfinite(self.penalty):
            raise DataError(f"BottleneckProblem: penalty is {self.penalty}, expected a number >= 0")
        if self.clusters is not None:
            labels = np.asarray(self.clusters)
            if labels.shape != shape or not np.issubdtype(labels.dtype, np.integer):
                raise DataError(
                    f"BottleneckProblem: clusters is {labels.dtype}{labels.shape}, expected "
                    f"int64{shape}"
                )
            object.__setattr__(self, "clusters", labels.astype(np.int64, copy=False))
        if self.penalty > 0 and self.clusters is None:
            raise DataError("BottleneckProblem: a penalty needs clusters")

    def energy(self, positions: IntArray) -> float:
        """The value of the cohort at ``positions`` (BSFL Eq. 13; PAUSE Eq. 19, 22)."""
        slowest, rest = self.parts(positions)
        return slowest + rest

    def parts(self, positions: IntArray) -> tuple[float, float]:
        """The bottleneck and the additive part of the energy.

        Infinite energies tie; their additive parts decide.
        """
        # The mean, so that a cohort of another size than m (everyone, say) can be judged too.
        rest = float(self.weight[positions].mean())
        if self.penalty > 0 and self.clusters is not None:
            rest -= self.penalty * repeats(self.clusters[positions])
        return float(self.bottleneck[positions].min()), rest


def check_values(instance: BottleneckProblem) -> None:
    """Complain unless u is finite or ``+inf`` and w finite."""
    candidates = Stored(instance.bottleneck, instance.weight)
    refuse_unordered(candidates)
    heaviest(candidates)


class Solver(Protocol):
    """A frozen, keyword-only dataclass with a ``name`` that solves a :class:`BottleneckProblem`."""

    name: ClassVar[str]

    def solve(self, instance: BottleneckProblem, rng: Generator, /) -> IntArray:
        """Increasing positions of the cohort; ``rng`` decides between equals."""


SOLVERS: Final[Registry[Solver]] = Registry(
    "solver",
    Solver,
    modules=(
        "fedmuster.solvers.annealing",
        "fedmuster.solvers.bottleneck",
        "fedmuster.solvers.bottleneck_problem",
    ),
    methods=("solve",),
    group="fedmuster.solvers",
)


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
    """The best cohort of ``candidates`` for a bottleneck reward, see :class:`BottleneckProblem`."""
    if view.num_to_choose == 0:
        return nobody(view)
    size = view.num_to_choose
    instance = BottleneckProblem(
        bottleneck=bottleneck, weight=weight, size=size, clusters=clusters, penalty=penalty
    )
    return Selection.of(view, candidates, solver.solve(instance, rng))


MOST_SETS = 1_000_000


@SOLVERS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class BruteForce:
    """The best of all m-sets, one of them at random where several are best.

    Infinite energies tie, so sets of unseen clients alone are compared on their additive part.

    Example:
        >>> speed, weight = np.array([3.0, 1.0, 2.0]), np.array([0.0, 5.0, 1.0])
        >>> instance = BottleneckProblem(bottleneck=speed, weight=weight, size=2)
        >>> BruteForce().solve(instance, np.random.default_rng(0))
        array([1, 2])
    """

    name: ClassVar[str] = "brute-force"

    def solve(self, instance: BottleneckProblem, rng: Generator) -> IntArray:
        """Increasing positions of the best cohort."""
        check_values(instance)
        num_clients, size = len(instance.bottleneck), instance.size
        num_sets = comb(num_clients, size)
        if num_sets > MOST_SETS:
            raise DataError(
                f"BruteForce: {size} of {num_clients} clients are {num_sets} sets, more than "
                f"{MOST_SETS}; use Exact, which finds the same optimum without trying them"
            )
        members = chain.from_iterable(combinations(range(num_clients), size))
        sets = np.fromiter(members, np.int64, num_sets * size).reshape(num_sets, size)
        slowest = instance.bottleneck[sets].min(axis=1)
        rest = instance.weight[sets].sum(axis=1) / size
        if instance.penalty > 0 and instance.clusters is not None:
            labels = np.sort(instance.clusters[sets], axis=1)
            rest -= instance.penalty * (labels[:, 1:] == labels[:, :-1]).sum(axis=1)
        energy = slowest + rest
        if np.isinf(energy.max()):
            energy = np.where(np.isinf(slowest), rest, -np.inf)
        best = np.flatnonzero(energy == energy.max())
        chosen: IntArray = sets[rng.choice(best)]
        return chosen
