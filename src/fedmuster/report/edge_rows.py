"""What a run did at its edge servers (places, times, costs), and the scores that it kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray, exact_sums
from fedmuster.core.errors import StateError
from fedmuster.experiments.journal import JournalReader
from fedmuster.federation import EdgeRow
from fedmuster.report.statistics import quotients


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class NetworkHistory:
    """One run at its M edge servers; n is how many choices there were in its R rounds.

    Args:
        edges: int64[n], where each entry of the run's ``chosen`` trained.
        in_time: bool[n], whose answer came by the deadline.
        cost: [n], what was paid for each.
        place_km: [n, 2], where each was; None where clients are nowhere.
        budget: [R, M], what each edge could have spent in a round; infinite for no limit, and
            without rounds.
        spent: [R, M], what it did: the correctly rounded sum.
        participants: int64[R], how many were in time.
        edge_km: [M, 2], where the edges stand; None where they stand nowhere.
        radius_km: how far they reach; None where the world does not say.
        start_km: [K, 2], where clients were in round 1; None where they are nowhere.
        price: [K], what clients ask for a unit of their work; None where the world does not say.
    """

    edges: IntArray
    in_time: BoolArray
    cost: FloatArray
    place_km: FloatArray | None
    budget: FloatArray
    spent: FloatArray
    participants: IntArray
    edge_km: FloatArray | None = None
    radius_km: float | None = None
    start_km: FloatArray | None = None
    price: FloatArray | None = None

    @property
    def num_edges(self) -> int:
        """M."""
        return int(self.budget.shape[1])

    @property
    def limited(self) -> bool:
        """Whether any edge ever had a budget that it could spend from."""
        return not np.isnan(self.share).all()

    @property
    def share(self) -> FloatArray:
        """[R, M], the part of its budget that an edge spent; NaN where it had none to spend."""
        share = np.full(self.budget.shape, np.nan)
        counts = np.isfinite(self.budget) & ((self.budget > 0) | (self.spent > 0))
        with np.errstate(divide="ignore"):  # an edge that spends without a budget overspends
            np.divide(self.spent, self.budget, out=share, where=counts)
        return share

    @property
    def mean_share(self) -> FloatArray:
        """[R], over the edges that had a budget; NaN where none had."""
        share = self.share
        known = ~np.isnan(share)
        return quotients(np.where(known, share, 0.0).sum(axis=1), known.sum(axis=1))


def read_network(reader: JournalReader, rounds: int) -> NetworkHistory | None:
    """The first ``rounds`` rounds of a run; None where there are no edge servers."""
    if reader.edge_rows is None:
        return None
    rows, clients = reader.edge_rows[:rounds], reader.clients
    _check(reader, rows, reader.cohorts[:rounds])
    round_ = np.repeat(np.arange(len(rows)), [len(row.edges) for row in rows])
    edges = np.concatenate([row.edges for row in rows])
    in_time = np.concatenate([row.in_time for row in rows])
    cost = np.concatenate([row.cost for row in rows])
    places = [row.position_km for row in rows if row.position_km is not None]
    budget = np.stack([row.budget for row in rows])
    if reader.jobs is not None:  # it is for a period of several aggregations, not for each
        budget = np.full(budget.shape, np.inf)
    cells = round_ * budget.shape[1] + edges
    radius = clients.get("edge_radius_km")
    return NetworkHistory(
        edges=edges,
        in_time=in_time,
        cost=cost,
        place_km=np.concatenate(places) if len(places) == len(rows) else None,
        budget=budget,
        spent=exact_sums(cells, cost, budget.size).reshape(budget.shape),
        participants=np.bincount(round_[in_time], minlength=len(rows)),
        edge_km=clients.get("edge_position_km"),
        radius_km=None if radius is None else float(radius),
        start_km=clients.get("position_km"),
        price=clients.get("price"),
    )


def _check(reader: JournalReader, rows: Sequence[EdgeRow], cohorts: Sequence[IntArray]) -> None:
    if len(rows) != len(cohorts):
        raise StateError(
            f"{reader.path} is damaged: of {len(cohorts):,} rounds it says of {len(rows):,} what "
            "happened at the edge servers"
        )
    num_edges = len(rows[0].budget)
    for number, (row, cohort) in enumerate(zip(rows, cohorts, strict=True), start=1):
        aligned = {len(row.edges), len(row.in_time), len(row.cost)} == {len(cohort)}
        known = not len(row.edges) or 0 <= row.edges.min() <= row.edges.max() < num_edges
        if not aligned or not known or len(row.budget) != num_edges:
            raise StateError(
                f"{reader.path} is damaged: its round {number:,} does not say where each of "
                f"{len(cohort):,} clients trained, and at what cost"
            )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scores:
    """The policy's scores of the watched clients, as it had them when it chose.

    Args:
        rounds: [R], those in which they were written down, increasing.
        clients: [n], whose they are.
        values: [R, n] by name, NaN where it had none.
    """

    rounds: IntArray
    clients: IntArray
    values: Mapping[str, FloatArray]

    def last(self, name: str) -> FloatArray:
        """[n], the last score of each client; NaN where there never was one."""
        values = self.values[name]
        known = np.isfinite(values)
        row = len(values) - 1 - np.argmax(known[::-1], axis=0)
        found = values[row, np.arange(values.shape[1])]
        return np.where(known.any(axis=0), found, np.nan)


def read_scores(reader: JournalReader, rounds: int) -> Scores | None:
    """The scores of the first ``rounds`` rounds; None where the journal has none."""
    kept = reader.score_rounds <= rounds
    if not reader.scores or not kept.any():
        return None
    watched, num_clients = reader.clients.get("watched"), len(reader.clients["group"])
    if watched is None or watched.ndim != 1 or not ((watched >= 0) & (watched < num_clients)).all():
        raise StateError(f"{reader.path} is damaged: it does not say whose scores it holds")
    shape = (len(kept), len(watched))
    for name, values in reader.scores.items():
        if values.shape != shape:
            raise StateError(
                f"{reader.path} is damaged: its score {name!r} is {values.shape}, expected {shape}"
            )
    return Scores(
        rounds=reader.score_rounds[kept],
        clients=watched,
        values={name: values[kept] for name, values in reader.scores.items()},
    )
