"""Placements of clients at edges: brute force, two exact solvers and FLGreedy compared."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.random import Generator

from fedmuster.core.records import FloatArray, IntArray, RoundView
from fedmuster.core.streams import stream
from fedmuster.solvers.assignment import (
    AssignmentProblem,
    ExactAssignment,
    FLGreedy,
    LagrangianAssignment,
)
from fedmuster.worlds import EdgeNetwork

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SAME = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Solved:
    """One problem, and what the solvers made of it.

    Args:
        exact: the largest sum of probabilities, by HiGHS.
        lagrangian: by the Lagrangian solver.
        bound: its proof: no placement has more.
        greedy: by FLGreedy.
        iterations: in how many clients FLGreedy placed, one after the other.
        num_edges: M.
    """

    exact: float
    lagrangian: float
    bound: float
    greedy: float
    iterations: int
    num_edges: int

    @property
    def agree(self) -> bool:
        """Whether both exact solvers found the optimum, and the second proved it."""
        return (
            abs(self.exact - self.lagrangian) <= _SAME
            and abs(self.bound - self.lagrangian) <= _SAME
        )

    @property
    def greedy_share(self) -> float:
        """FLGreedy's utility (Eq. 19) as a share of the optimum's; 1 where nobody can be had."""
        return math.sqrt(self.greedy / self.exact) if self.exact > 0 else 1.0

    @property
    def clients_lost(self) -> float:
        """By which share FLGreedy expects fewer participants than the optimum has."""
        return 1.0 - self.greedy / self.exact if self.exact > 0 else 0.0


def solved(problem: AssignmentProblem, greedy: FLGreedy, rng: Generator) -> Solved:
    """Solve a problem by HiGHS, the Lagrangian solver and FLGreedy."""
    exact, relaxed, approximate = (
        solver.solve(problem, rng) for solver in (ExactAssignment(), LagrangianAssignment(), greedy)
    )
    return Solved(
        exact=problem.total(exact.pairs),
        lagrangian=problem.total(relaxed.pairs),
        bound=relaxed.bound,
        greedy=problem.total(approximate.pairs),
        iterations=len(approximate.pairs),
        num_edges=problem.num_edges,
    )


def true_problems(world: EdgeNetwork, *, seed: int, rounds: int) -> Iterator[AssignmentProblem]:
    """P2 with the true probabilities, in the first rounds of a network."""
    run = world.start(seed)
    for number in range(1, rounds + 1):
        drawn = run.realise(number)
        assert drawn.truth.success is not None
        view = RoundView(
            round=number,
            cohort_size=run.problem.cohort_size,
            available=drawn.available,
            edges=drawn.edges,
        )
        yield AssignmentProblem.of(view, drawn.truth.success)


def tiny_problem(seed: int) -> AssignmentProblem:
    """A network of up to six clients and three edges, with any coverage and budgets."""
    rng = stream(seed, "tiny network")
    num_clients, num_edges = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    clients, edges = np.nonzero(rng.random((num_clients, num_edges)) < 0.7)
    return AssignmentProblem(
        clients=clients,
        edges=edges,
        value=rng.random(len(clients)),
        cost=rng.uniform(1.0, 8.0, num_clients)[clients],
        budget=rng.uniform(0.0, 15.0, num_edges),
        size=num_clients,
    )


def placements(problem: AssignmentProblem) -> Iterator[IntArray]:
    """Every placement that obeys (10b)–(10d): each client nowhere, or at one of its edges."""
    options = [
        [None, *np.flatnonzero(problem.clients == client).tolist()]
        for client in np.unique(problem.clients)
    ]
    for choice in product(*options):
        pairs = np.array([pair for pair in choice if pair is not None], dtype=np.int64)
        if problem.fits(pairs):
            yield pairs


def worth(problem: AssignmentProblem, pairs: IntArray) -> tuple[float, float]:
    """Of a placement: P2's objective (Eq. 8), and P3's (Eq. 19)."""
    mean = problem.total(pairs) / problem.num_edges
    return mean, math.sqrt(mean)


class Enumeration(NamedTuple):
    """What comes out of looking at every placement.

    Attributes:
        optimum: the largest sum of values.
        same_maximiser: whether the best by P2 is the best by P3, and the other way round.
    """

    optimum: float
    same_maximiser: bool


def brute_force(problem: AssignmentProblem) -> Enumeration:
    """Look at every placement of a tiny network."""
    linear, root = np.array([worth(problem, pairs) for pairs in placements(problem)]).T
    by_linear, by_root = linear.argmax(), root.argmax()
    return Enumeration(
        optimum=problem.num_edges * float(linear.max()),
        same_maximiser=bool(
            root[by_linear] >= root.max() - _SAME and linear[by_root] >= linear.max() - _SAME
        ),
    )


def diminishing(values: FloatArray, num_edges: int, rng: Generator) -> bool:
    """Theorem 3 on one chain of sets A within B of pairs with these values, and one pair more."""
    order = rng.permutation(len(values))
    small, large = np.sort(rng.integers(0, len(values), 2))
    sums = [math.fsum(values[order[:size]].tolist()) / num_edges for size in (small, large)]
    more = float(values[order[-1]]) / num_edges
    gains = [math.sqrt(total + more) - math.sqrt(total) for total in sums]
    return gains[0] >= gains[1] - _SAME and gains[1] >= 0.0


def greedy_against_optimum(
    groups: Mapping[str, Sequence[Solved]],
    networks: Sequence[str],
    *,
    guarantee: float,
    num_edges: int,
) -> "Figure":
    """How near FLGreedy comes to the optimum, and in how many iterations.

    Args:
        groups: problems that were solved.
        networks: those of them that are rounds of a whole network.
        guarantee: what FLGreedy is sure to reach in these.
        num_edges: of these.
    """
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    from fedmuster.report.figures import style

    colours = dict(zip(groups, ("#888888", "#0072B2", "#D55E00"), strict=True))
    with matplotlib.rc_context(style.STYLE):
        figure = Figure(figsize=(style.WIDTH, 3.4), layout="constrained")
        count = sum(map(len, groups.values()))
        title = f"FLGreedy against the optimum – {count:,} instances"
        figure.suptitle(title, x=0.01, ha="left")
        reach, steps = figure.subplots(1, 2)
        for name, group in groups.items():
            share = np.sort([one.greedy_share for one in group])
            height = np.arange(1, len(share) + 1) / len(share)
            reach.step(share, height, where="post", color=colours[name], label=name)
        reach.axvline(guarantee, color="#444444", linewidth=0.8, linestyle=(0, (1, 2)))
        reach.annotate(
            f"guaranteed for M = {num_edges} (Lemma 3)",
            (guarantee, 0.5),
            (4, 0),
            textcoords="offset points",
            color="#444444",
            fontsize=6.5,
        )
        reach.set(
            title="share of the optimal utility: instances up to it",
            xlabel="FLGreedy's utility / the largest",
            xlim=(0, 1.02),
            ylim=(0, 1.02),
        )
        for name in networks:
            counts = np.bincount([one.iterations for one in groups[name]])
            steps.bar(
                np.arange(len(counts)),
                counts / counts.sum(),
                width=0.9,
                color=colours[name],
                alpha=0.8,
                label=name,
            )
        steps.axvline(num_edges + 0.5, color="#444444", linewidth=0.8, linestyle=(0, (1, 2)))
        steps.annotate(
            f"M = {num_edges}: the paper's most",
            (num_edges + 0.5, 1.0),
            (4, -7),
            xycoords=steps.get_xaxis_transform(),
            textcoords="offset points",
            color="#444444",
            fontsize=6.5,
        )
        steps.margins(y=0.15)
        steps.set(title="iterations: share of rounds", xlabel="clients placed", xlim=(0, None))
        for axes in (reach, steps):
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
        handles, labels = reach.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        return figure
