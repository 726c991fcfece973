"""Point 9: among clients that are all alike, everyone is chosen as often as everyone else."""

from dataclasses import replace
from typing import Any

import numpy as np

from fedmuster.core.policy import Policy
from fedmuster.core.records import BoolArray, FloatArray
from fedmuster.core.streams import POLICY, WORLD, stream
from fedmuster.testing.federation import Federation, Knowledge

_NUM_CLIENTS = 12
_NUM_EDGES = 3
_SEEDS = 300
LEVEL = 1e-5
CHI_SQUARE_QUANTILE = {7: 35.2585, 11: 43.2060, 23: 63.9675, 35: 82.6404}
"""Of 1 - LEVEL, by degrees of freedom."""


def tie_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Whether round 1 favours somebody: with all clients available, and with two thirds of them.

    Nothing tells the clients apart, so a fair policy draws its cohort uniformly among all sets of
    its size: there is no other distribution that is the same under every renaming of clients.
    Nor does anything tell the edge servers apart, where there are any.
    """
    everyone = np.ones(_NUM_CLIENTS, dtype=np.bool_)
    return _bias(policy, knowledge, everyone) or _bias(
        policy, knowledge, np.arange(_NUM_CLIENTS) % 3 > 0
    )


def _bias(policy: Policy[Any], knowledge: Knowledge, available: BoolArray) -> str | None:
    federation = Federation(
        mean_seconds=np.full(_NUM_CLIENTS, 0.5),
        knowledge=replace(knowledge, num_edges=_NUM_EDGES if knowledge.num_edges > 0 else 0),
        equal_data=True,
        num_clusters=_NUM_CLIENTS,
        variation=0.0,
        layout="together",
    )
    state = policy.init(federation.problem())
    view = replace(federation.draw(1), available=available).view(policy)
    times = np.zeros(_NUM_CLIENTS)
    sizes = np.zeros(_SEEDS)
    met = np.zeros((_NUM_CLIENTS, _NUM_EDGES))
    for seed in range(_SEEDS):
        chosen = policy.select(state, view, stream(seed, POLICY, 1))
        times[chosen.clients] += 1
        sizes[seed] = len(chosen.clients)
        if chosen.edges is not None and len(chosen.clients) > 0:
            # One of each cohort: those of the others may well depend on it.
            someone = stream(seed, WORLD, 1).integers(len(chosen.clients))
            met[chosen.clients[someone], chosen.edges[someone]] += 1
    statistic = tie_statistic(times[available], sizes)
    among = f"in {_SEEDS} first rounds with different seeds it chose"
    if statistic > CHI_SQUARE_QUANTILE[view.num_available - 1]:
        return (
            f"{among} clients that nothing tells apart {_counts(times[available])} times "
            f"(chi-square {statistic:.0f}, p < {LEVEL:g}); break ties with the rng it is given, "
            "not by id"
        )
    pairs = met[available].ravel()
    statistic = tie_statistic(pairs, np.ones(int(pairs.sum())))
    if statistic > CHI_SQUARE_QUANTILE[len(pairs) - 1]:
        return (
            f"{among} edge servers that nothing tells apart {_counts(met.sum(axis=0))} times, for "
            f"one client of each cohort, and the first {_counts(met[available][:, 0])} times for "
            f"each client (chi-square {statistic:.0f}, p < {LEVEL:g}); break ties among edges with "
            "the rng it is given, too"
        )
    return None


def _counts(times: FloatArray) -> list[int]:
    return [int(count) for count in times]


def tie_statistic(times: FloatArray, sizes: FloatArray) -> float:
    """Pearson's statistic of how often each client was in cohorts of ``sizes``.

    Clients of a cohort exclude each other, which takes one degree of freedom: it has a chi-square
    law with ``len(times) - 1`` of them if all sets of a size are equally likely.
    """
    share = sizes / len(times)
    variance = np.sum(share * (1 - share))
    if variance == 0.0:  # everyone, or nobody: there was nothing to choose
        return 0.0
    freedom = len(times) - 1
    return float(np.sum((times - share.sum()) ** 2) / variance * freedom / len(times))
