"""Which of COCS's rounds explored, counted from its journal and not by the policy."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from claims.cocs.network import Utilities
from fedmuster import COCS
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.experiments.journal import JournalReader
from fedmuster.policies.cocs.hypercubes import ZoomingCubes
from fedmuster.report.curves import Curve
from fedmuster.report.statistics import mean_and_half_width
from fedmuster.worlds import EdgeNetwork

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BELOW = 3.5
_BLOCKS = 40
"""Of rounds, in each of which shares are taken."""


class Pairs(NamedTuple):
    """Pairs of a client and an edge in one round: [n], [n] and their contexts [n, d]."""

    clients: IntArray
    edges: IntArray
    context: FloatArray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Exploration:
    """What a run explored, a number for each round.

    Args:
        possible: pairs that could have been chosen alone: covered and affordable.
        under_explored: those of them whose cube had no more than K(t) observations.
        chosen: how many clients were chosen.
        to_explore: how many of them in such a cube.
    """

    possible: IntArray
    under_explored: IntArray
    chosen: IntArray
    to_explore: IntArray

    @property
    def exploring(self) -> float:
        """The share of rounds that were exploration phases: with anything left to explore."""
        return float(np.mean(self.under_explored > 0))

    @property
    def first_exploitation(self) -> int | None:
        """The first round in which nothing was left to explore."""
        rounds = np.flatnonzero((self.under_explored == 0) & (self.possible > 0))
        return int(rounds[0]) + 1 if len(rounds) else None

    @property
    def spent_on_it(self) -> float:
        """The share of all selections that were made to explore."""
        return float(self.to_explore.sum() / max(self.chosen.sum(), 1))


def offers(world: EdgeNetwork, *, seed: int, rounds: int) -> list[Pairs]:
    """The pairs that an operator could have chosen in each round, whatever it did."""
    run, found = world.start(seed), []
    for number in range(1, rounds + 1):
        drawn = run.realise(number)
        assert drawn.edges is not None
        assert drawn.features is not None
        network = drawn.edges
        affordable = network.coverage & (network.cost <= network.budget)
        clients, edges = np.nonzero(affordable & drawn.available[:, None])
        found.append(Pairs(clients, edges, drawn.features[clients, edges]))
    return found


def selections(journal: JournalReader) -> list[Pairs]:
    """The pairs that a run chose in each round."""
    assert journal.edge_rows is not None
    return [
        Pairs(clients, row.edges, row.context)
        for clients, row in zip(journal.cohorts, journal.edge_rows, strict=True)
    ]


def recount(
    policy: COCS, world: EdgeNetwork, possible: Sequence[Pairs], chosen: Sequence[Pairs]
) -> Exploration:
    """Count C_{n,m}(l) (Algorithm 1, line 18) and hold it against K(t) (Eq. 13), round by round."""
    columns, cubes = [], _Cubes(policy, world, 0)
    for number, (open_pairs, taken) in enumerate(zip(possible, chosen, strict=True), start=1):
        per_axis, needed = _demand(policy, number)
        if per_axis != cubes.per_axis:  # they have become smaller: count from the beginning
            cubes = _Cubes(policy, world, per_axis)
            for earlier in chosen[: number - 1]:
                cubes.count(earlier)
        columns.append(
            [
                value
                for pairs in (open_pairs, taken)
                for value in (
                    len(pairs.clients),
                    np.count_nonzero(cubes.observations(pairs) <= needed),  # Eq. 13
                )
            ]
        )
        cubes.count(taken)
    table = np.array(columns, dtype=np.int64).reshape(-1, 4)
    return Exploration(
        possible=table[:, 0], under_explored=table[:, 1], chosen=table[:, 2], to_explore=table[:, 3]
    )


def _demand(policy: COCS, round_: int) -> tuple[int, float]:
    """Cubes an axis, and how many observations each of them wants."""
    alpha = policy.holder_alpha
    z = 2 * alpha / (3 * alpha + 2) if policy.exponent is None else policy.exponent  # Theorem 2
    if isinstance(policy.cubes, ZoomingCubes):
        level = min(int(z / (2 * alpha) * math.log2(round_)), policy.cubes.depth)
        return 2**level, policy.exploration * 4 ** (alpha * level) * math.log(round_)
    return policy.cubes.cubes_per_axis, policy.exploration * round_**z * math.log(round_)


class _Cubes:
    """Observations in equal cubes of two numbers, of each pair or of those who share them."""

    def __init__(self, policy: COCS, world: EdgeNetwork, per_axis: int) -> None:
        self.per_axis = per_axis
        self._by_client = policy.pool in ("pairs", "clients")
        self._by_edge = policy.pool in ("pairs", "edges")
        self._counts = np.zeros(
            (world.num_clients, world.num_edges, per_axis, per_axis), dtype=np.int64
        )

    def observations(self, pairs: Pairs) -> IntArray:
        return np.asarray(self._counts[self._index(pairs)])

    def count(self, pairs: Pairs) -> None:
        np.add.at(self._counts, self._index(pairs), 1)

    def _index(self, pairs: Pairs) -> tuple[IntArray, ...]:
        steps = np.floor(np.clip(pairs.context, 0.0, 1.0) * self.per_axis).astype(np.int64)
        return (
            pairs.clients * self._by_client,
            pairs.edges * self._by_edge,
            *np.minimum(steps, self.per_axis - 1).T,
        )


def exploration_over_rounds(
    utilities: Utilities, explorations: Mapping[str, Sequence[Exploration]]
) -> "Figure":
    """How much of what could be chosen is unexplored, and how many are chosen to explore it."""
    import matplotlib
    from matplotlib.ticker import PercentFormatter

    from fedmuster.report.figures import style

    comparison = utilities.comparison
    starts = np.unique(np.linspace(0, comparison.rounds, _BLOCKS, endpoint=False).astype(np.int64))
    middle = 0.5 * (starts + np.append(starts[1:], comparison.rounds)) + 0.5
    with matplotlib.rc_context(style.STYLE):
        figure = style.new_figure(comparison, "Exploration", height=3.4)
        for panel, title, part, whole in zip(
            figure.subplots(1, 2, sharey=True),
            ("pairs that could be chosen: under-explored", "clients chosen: to explore"),
            ("under_explored", "to_explore"),
            ("possible", "chosen"),
            strict=True,
        ):
            curves = []
            for label, own in explorations.items():
                sums = [
                    np.add.reduceat(np.stack([getattr(one, name) for one in own]), starts, axis=1)
                    for name in (part, whole)
                ]
                mean, half_width = mean_and_half_width(sums[0] / np.maximum(sums[1], 1))
                curves.append(Curve(label=label, x=middle, mean=mean, half_width=half_width))
            style.draw_curves(panel, comparison, curves)
            panel.get_lines()[0].set_linewidth(_BELOW)  # others may lie upon it
            panel.set(title=title, ylim=(-0.02, 1.03), xlabel="round", xlim=(1, comparison.rounds))
            panel.xaxis.set_major_formatter(style.PLAIN)
            panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
        style.add_legend(figure, comparison, list(explorations), below=True)
        return figure
