"""FedBuff and FedAsync: random clients, asked one by one, with the published federation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import IntArray
from fedmuster.core.policy import POLICIES
from fedmuster.core.records import RoundView, Selection
from fedmuster.policies.random import DataState, Random

_RARE, _MOST_AWAY = 64, 4
"""Clients are drawn one by one if at most 1 in 64 is wanted and at least 1 in 4 is available."""


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class FedBuff(Random):
    """Uniform over the idle clients; the server aggregates every 10 answers (FedBuff).

    In an experiment it works without rounds: a slot is refilled as soon as its client has answered
    (``refill = 1``), the server aggregates when it has 10 answers (``buffer = 10``, K of the
    paper), and an answer of age s counts by ``1 / sqrt(1 + s)``. The concurrency, M of the paper,
    is that of ``[federation]``, or else the cohort size of the world. Where fewer than 10 jobs may
    be open at once, the buffer is as large as the concurrency. A table ``federation`` of the
    policy's own replaces any of these settings.

    Args:
        by_data: draw in proportion to data instead of uniformly, see ``random``. Paper: uniformly.

    State:
        Nothing is learned.

    Deviations:
        1. The paper's server takes the plain mean of a buffer, and applies it with momentum. Here
           the server of ``[training]`` decides: write ``weights = "uniform"`` for a plain mean, or
           name a server with momentum.
        2. Clients do not arrive at a constant rate: a job begins when another has ended.

    References:
        J. Nguyen, K. Malik, H. Zhan, A. Yousefpour, M. Rabbat, M. Malek, D. Huba, Federated
        Learning with Buffered Asynchronous Aggregation, AISTATS 2022.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> selector = Selector(FedBuff(), Problem(num_clients=1000, cohort_size=20))
        >>> first = selector.select(count=20)
        >>> another = selector.select(count=1)  # while the first twenty are out
        >>> another.clients.shape, float(another.inclusion[0]) == 1 / 980
        ((1,), True)
    """

    name: ClassVar[str] = "fedbuff"
    published_federation: ClassVar[Mapping[str, Any]] = {
        "refill": 1,
        "buffer": 10,
        "staleness": {"name": "polynomial", "power": 0.5},
    }

    def select(self, state: DataState, view: RoundView, rng: Generator) -> Selection:
        """Draw clients, without a look at all of them where few of many are wanted."""
        wanted, there = view.num_to_choose, view.num_available
        rare = _RARE * wanted <= len(view.available) <= _MOST_AWAY * there
        if view.edges is not None or state.data.ndim > 0 or not rare:
            return Random.select(self, state, view, rng)
        chosen = Selection.of(view, slice(None), _draw_singly(view, wanted, rng))
        return replace(chosen, inclusion=np.full(wanted, wanted / there))


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class FedAsync(FedBuff):
    """Uniform over the idle clients; every answer changes the model at once (FedAsync).

    In an experiment it works without rounds: a slot is refilled as soon as its client has answered
    (``refill = 1``), and each answer is mixed into the model by itself (``buffer = 1``), with the
    factor ``(1 + s)^-0.5`` for an answer of age s. For the paper's mixing
    ``w <- (1 - alpha_s) w + alpha_s w_k`` write ``server = { name = "fedasync", mixing = 0.6 }`` in
    ``[training]``; other servers add the update to the model.

    Args:
        by_data: draw in proportion to data instead of uniformly, see ``random``. Paper: uniformly.

    State:
        Nothing is learned.

    Deviations:
        1. The paper draws the staleness of answers at random; here it follows from the latencies.
        2. The paper's clients train with a proximal term; here they train as ``[training]`` says.

    References:
        C. Xie, S. Koyejo, I. Gupta, Asynchronous Federated Optimization, 2019, arXiv:1903.03934.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> selector = Selector(FedAsync(), Problem(num_clients=20, cohort_size=5))
        >>> selector.select(count=2).clients.shape
        (2,)
    """

    name: ClassVar[str] = "fedasync"
    published_federation: ClassVar[Mapping[str, Any]] = {
        "refill": 1,
        "buffer": 1,
        "staleness": {"name": "polynomial", "power": 0.5},
    }


def _draw_singly(view: RoundView, count: int, rng: Generator) -> IntArray:
    """``count`` available clients: the first different ones of a sequence of uniform draws.

    All sets of ``count`` available clients are equally likely, because the sequence treats all of
    them alike.
    """
    drawn = np.empty(0, dtype=np.int64)
    while len(drawn) < count:
        tries = rng.integers(len(view.available), size=2 * _MOST_AWAY * count)
        found = np.concatenate([drawn, tries[view.available[tries]]])
        _, first = np.unique(found, return_index=True)
        drawn = found[np.sort(first)]
    return drawn[:count]
