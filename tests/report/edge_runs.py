"""Runs with edge servers that can be checked by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmuster.bandits.utility import EdgeUtility
from fedmuster.core.records import FloatArray
from fedmuster.federation import EdgeRow
from fedmuster.worlds import EdgeNetwork

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun

WORLD = EdgeNetwork(num_clients=4, num_edges=2)


def edge_row(
    edges: Sequence[int],
    in_time: Sequence[int],
    cost: Sequence[float],
    *,
    budget: Sequence[float] = (3.0, 2.0),
    position_km: FloatArray | None = None,
) -> EdgeRow:
    """One round, written short."""
    return EdgeRow(
        edges=np.array(edges, dtype=np.int64),
        in_time=np.array(in_time, dtype=np.bool_),
        context=np.zeros((len(edges), 2)),
        cost=np.array(cost, dtype=np.float64),
        budget=np.array(budget, dtype=np.float64),
        position_km=position_km,
    )


def write_small(
    write_run: "WriteRun",
    label: str = "cocs",
    seed: int = 0,
    *,
    regret: Sequence[float] | None = (0.5, 0.0, 0.25),
    budget: Sequence[float] = (3.0, 2.0),
    utility: EdgeUtility | None = None,
    clients: dict[str, NDArray[Any]] | None = None,
) -> Path:
    """Four clients, two edges, three rounds; nobody is chosen in the second."""
    return write_run(
        label,
        seed,
        world=WORLD,
        reward=utility,
        regret=regret,
        cohorts=[[0, 1, 3], [], [0, 3]],
        network=[
            edge_row([0, 0, 1], [1, 0, 1], [1.0, 2.0, 0.5], budget=budget),
            edge_row([], [], [], budget=budget),
            edge_row([1, 0], [0, 1], [1.5, 0.75], budget=budget),
        ],
        clients={"cohort_size": np.array(4)} | (clients or {}),
    )


def write_network(
    write_run: "WriteRun",
    label: str,
    seed: int = 0,
    *,
    num_clients: int = 50,
    num_edges: int = 3,
    rounds: int = 40,
    a_round: int = 12,
    success: float = 0.6,
    moving: bool = True,
    judged: bool = True,
    priced: bool = True,
) -> Path:
    """Clients near edges on a line; more of them are in time the nearer they are."""
    luck = np.random.default_rng((num_clients, seed))  # of the world: the same for all policies
    rng = np.random.default_rng((len(label), seed))
    standing = np.column_stack(
        [2.5 * (np.arange(num_edges) % 6), 2.5 * (np.arange(num_edges) // 6)]
    )
    home = luck.integers(num_edges, size=num_clients)
    start = standing[home] + luck.uniform(-1.4, 1.4, (num_clients, 2))
    cohorts, rows = [], []
    for _ in range(rounds):
        cohort = np.sort(rng.choice(num_clients, rng.integers(a_round + 1), replace=False))
        place = start[cohort]
        if moving:
            place = standing[home[cohort]] + rng.uniform(-1.4, 1.4, (len(cohort), 2))
        far = np.hypot(*(place - standing[home[cohort]]).T) / 2.0
        cost = rng.uniform(0.1, 0.2, len(cohort))
        rows.append(
            edge_row(
                home[cohort].tolist(),
                (rng.random(len(cohort)) < success * (1.3 - far)).tolist(),
                cost.tolist(),
                budget=np.full(num_edges, 0.2 * a_round).tolist(),
                position_km=place,
            )
        )
        cohorts.append(cohort.tolist())
    return write_run(
        label,
        seed,
        world=EdgeNetwork(num_clients=num_clients, num_edges=num_edges),
        seconds=rng.uniform(2, 3, rounds).tolist(),
        regret=rng.exponential(2 - success, rounds).tolist() if judged else None,
        cohorts=cohorts,
        network=rows,
        clients={
            "group": np.zeros(num_clients, dtype=np.int64),
            "typical_latency_seconds": np.full(num_clients, 1.5),
            "cohort_size": np.array(num_clients),
            "edge_position_km": standing,
            "edge_radius_km": np.array(2.0),
            "position_km": start,
            **({"price": luck.uniform(0.5, 2.0, num_clients)} if priced else {}),
        },
    )
