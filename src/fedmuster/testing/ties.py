"""Point 9: among clients that are all alike, everyone is chosen as often as everyone else."""

from dataclasses import replace
from typing import Any

import numpy as np

from fedmuster.core.policy import Policy
from fedmuster.core.records import BoolArray, FloatArray
from fedmuster.core.streams import POLICY, stream
from fedmuster.testing.federation import Federation, Knowledge

_NUM_CLIENTS = 12
_SEEDS = 300
LEVEL = 1e-5
CHI_SQUARE_QUANTILE = {7: 35.2585, 11: 43.2060}
"""Of 1 - LEVEL, by degrees of freedom."""


def tie_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Whether round 1 favours somebody: with all clients available, and with two thirds of them.

    Nothing tells the clients apart, so a fair policy draws its cohort uniformly among all sets of
    its size: there is no other distribution that is the same under every renaming of clients.
    """
    everyone = np.ones(_NUM_CLIENTS, dtype=np.bool_)
    return _bias(policy, knowledge, everyone) or _bias(
        policy, knowledge, np.arange(_NUM_CLIENTS) % 3 > 0
    )


def _bias(policy: Policy[Any], knowledge: Knowledge, available: BoolArray) -> str | None:
    federation = Federation(
        mean_seconds=np.full(_NUM_CLIENTS, 0.5),
        knowledge=knowledge,
        equal_data=True,
        num_clusters=_NUM_CLIENTS,
        variation=0.0,
    )
    state = policy.init(federation.problem())
    view = replace(federation.draw(1), available=available).view(policy)
    times = np.zeros(_NUM_CLIENTS)
    sizes = np.zeros(_SEEDS)
    for seed in range(_SEEDS):
        clients = policy.select(state, view, stream(seed, POLICY, 1)).clients
        times[clients] += 1
        sizes[seed] = len(clients)
    statistic = tie_statistic(times[available], sizes)
    if statistic <= CHI_SQUARE_QUANTILE[view.num_available - 1]:
        return None
    return (
        f"in {_SEEDS} first rounds with different seeds it chose clients that nothing tells apart "
        f"{times[available].astype(int).tolist()} times (chi-square {statistic:.0f}, "
        f"p < {LEVEL:g}); break ties with the rng it is given, not by id"
    )


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
