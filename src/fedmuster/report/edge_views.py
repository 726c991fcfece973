"""What edge servers did: maps of the network, and what was spent of the budgets."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedmuster.bandits.utility import EdgeUtility
from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.report.runs import Comparison, Run
from fedmuster.report.statistics import quotients

LOW, HIGH = 5, 95
"""Per cent of the rounds."""
_MOST_CLIENTS = 600
"""To be seen one by one."""
_CHOICES_A_CELL = 6
_CLIENTS_A_CELL = 5
_FEWEST_CELLS, _MOST_CELLS = 10, 20
_MARGIN = 0.03
_FEW = 5
"""Choices: with fewer, a share in time says little."""


class Box(NamedTuple):
    """What a map shows, in kilometres."""

    left: float
    right: float
    bottom: float
    top: float

    @property
    def width(self) -> float:
        """From left to right."""
        return self.right - self.left

    @property
    def height(self) -> float:
        """From bottom to top."""
        return self.top - self.bottom


class Dots(NamedTuple):
    """Places with how often somebody was chosen there, and was in time.

    A place is a client's, or the mean place of all in a square of ``cell_km``.
    """

    place_km: FloatArray
    chosen: IntArray
    in_time: IntArray
    clients: IntArray | None = None
    cell_km: float | None = None

    @property
    def success(self) -> FloatArray:
        """The share of those chosen who were in time; NaN where nobody was."""
        return quotients(self.in_time, self.chosen)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class NetworkMap:
    """The network of one run.

    Args:
        edge_km: [M, 2].
        radius_km: how far edges reach; None where the world does not say.
        clients: where they were in round 1; None where the world does not say.
        choices: where those chosen were when they were; None where that is not known, or nobody
            ever moved.
    """

    edge_km: FloatArray
    radius_km: float | None
    clients: Dots | None
    choices: Dots | None


class Maps(NamedTuple):
    """Those of all policies, in the same box."""

    box: Box
    maps: dict[str, NetworkMap]


def network_maps(comparison: Comparison) -> Maps:
    """Of each policy in the first seed; none where places are not known."""
    runs = {label: own[0] for label, own in comparison.runs.items() if _placed(own[0])}
    box = _box(list(runs.values()))
    cells = _cells_across(max((len(run.chosen) for run in runs.values()), default=0))
    return Maps(box, {label: _map(run, box, cells) for label, run in runs.items()})


def usual_success(maps: Iterable[NetworkMap]) -> tuple[float, float]:
    """The tenths between which nearly all dots' shares in time lie, without dots of few choices."""
    dots = [one for own in maps for one in (own.clients, own.choices) if one is not None]
    success = np.concatenate([np.zeros(0), *(one.success[one.chosen >= _FEW] for one in dots)])
    if len(success) == 0:
        return 0.0, 1.0
    low, high = np.percentile(success, (2, 98))
    low, high = np.floor(10 * low) / 10, np.ceil(10 * high) / 10
    return (float(low), float(high)) if low < high else (0.0, 1.0)


def _placed(run: Run) -> bool:
    network = run.network
    if network is None or network.edge_km is None:
        return False
    return network.start_km is not None or network.place_km is not None


def _box(runs: list[Run]) -> Box:
    corners = [np.zeros((0, 2))]
    for network in (run.at_edges for run in runs):
        reach = network.radius_km or 0.0
        if network.edge_km is not None:
            corners += [network.edge_km - reach, network.edge_km + reach]
        corners += [own for own in (network.start_km, network.place_km) if own is not None]
    points = np.concatenate(corners)
    if len(points) == 0:
        return Box(0.0, 1.0, 0.0, 1.0)
    low, high = points.min(axis=0), points.max(axis=0)
    # One edge that reaches nowhere is a point.
    margin = _MARGIN * float((high - low).max()) or 0.5
    (left, bottom), (right, top) = (low - margin).tolist(), (high + margin).tolist()
    return Box(left, right, bottom, top)


def _cells_across(choices: int, each: int = _CHOICES_A_CELL) -> int:
    return int(np.clip(np.sqrt(choices / each), _FEWEST_CELLS, _MOST_CELLS))


def _map(run: Run, box: Box, cells: int) -> NetworkMap:
    network = run.at_edges
    assert network.edge_km is not None
    places, start = network.place_km, network.start_km
    clients = choices = None
    if start is not None:
        clients = Dots(
            start, run.selection_counts(), run.in_time_counts(), clients=np.arange(run.num_clients)
        )
        if run.num_clients > _MOST_CLIENTS:
            across = _cells_across(run.num_clients, _CLIENTS_A_CELL)
            clients = _in_cells(clients, box, across)
    moved = start is None or places is None or not np.array_equal(places, start[run.chosen])
    if places is not None and moved:
        each = np.ones(len(places), dtype=np.int64)
        choices = _in_cells(Dots(places, each, network.in_time.astype(np.int64)), box, cells)
    return NetworkMap(
        edge_km=network.edge_km, radius_km=network.radius_km, clients=clients, choices=choices
    )


def _in_cells(dots: Dots, box: Box, across: int) -> Dots:
    """The sums over squares, ``across`` of them along the longer side of the box."""
    side = max(box.width, box.height) / across
    corner = np.array([box.left, box.bottom])
    square = np.floor((dots.place_km - corner) / side).astype(np.int64)
    _, member, count = np.unique(square, axis=0, return_inverse=True, return_counts=True)
    x, y, chosen, in_time = (
        np.bincount(member.reshape(-1), weights=values)
        for values in (*dots.place_km.T, dots.chosen, dots.in_time)
    )
    return Dots(
        np.column_stack([x, y]) / count[:, np.newaxis],
        chosen.astype(np.int64),
        in_time.astype(np.int64),
        cell_km=side,
    )


class BudgetUse(NamedTuple):
    """The part of its budget that each edge spent, over rounds and seeds: [M] each.

    NaN for an edge that never had a budget to spend.
    """

    mean: FloatArray
    low: FloatArray
    lower_quartile: FloatArray
    median: FloatArray
    upper_quartile: FloatArray
    high: FloatArray
    largest: FloatArray


def spread_of_shares(runs: Sequence[Run]) -> BudgetUse:
    """Of runs of the same policy, each round of each seed counting alike."""
    share = np.concatenate([run.at_edges.share for run in runs])
    columns = [column[~np.isnan(column)] for column in share.T]
    percents = (LOW, 25, 50, 75, HIGH, 100)
    found = np.full((1 + len(percents), len(columns)), np.nan)
    for edge, column in enumerate(columns):
        if len(column):
            found[:, edge] = column.mean(), *np.percentile(column, percents)
    return BudgetUse(*found)


def budget_check(comparison: Comparison) -> str | None:
    """A sentence that says whether every budget was kept; None where there was none.

    Sums of costs are correctly rounded, so no share is above 1 for want of digits.
    """
    most: tuple[float, str] | None = None
    for run in comparison.every_run:
        share = run.at_edges.share
        if np.isnan(share).all():
            continue
        round_, edge = np.unravel_index(np.nanargmax(share), share.shape)
        where = f"{run.label}, seed {run.seed}, round {round_ + 1:,}, edge {edge}"
        if most is None or share[round_, edge] > most[0]:
            most = float(share[round_, edge]), where
    if most is None:
        return None
    largest, where = most
    if largest > 1:
        return f"A budget was overspent: {100 * largest:.6g} % of it ({where})."
    # Cut off, not rounded: 99.999 % is not all of it.
    return (
        "No edge server ever spent more than its budget: the largest share was "
        f"{np.floor(1e4 * largest) / 100:g} % ({where})."
    )


def utility_words(comparison: Comparison) -> str:
    """What the utility of a round is."""
    reward = comparison.experiment.reward
    root = isinstance(reward, EdgeUtility) and reward.utility == "square-root"
    what, equation = ("the square root of participants", 19) if root else ("participants", 8)
    return (
        f"Utility of a round: {what} per edge server (COCS Eq. {equation}). Participants are the "
        "clients whose answers came by the deadline."
    )
