"""Improve a placement: deal the clients out among the edges, let each make the best of its hand."""

import numpy as np
from numpy.random import Generator

from fedmuster.core.records import IntArray
from fedmuster.solvers.assignment.knapsacks import Items, best_loads
from fedmuster.solvers.assignment.offers import Offers, sum_by_edge


def redealt(offers: Offers, chosen: IntArray, width: int, gain: float, rng: Generator) -> IntArray:
    """A placement that is worth no less than ``chosen``.

    Each edge keeps its clients in hand and is dealt some of those whom nobody has, each of them to
    one of the edges it offers itself to. Then hands have nobody in common, and every edge can
    choose from its own. Not for problems with a limit on ``size``, which hands would share.
    An edge that cannot gain ``gain`` need not change anything.
    """
    free = np.ones(offers.num_clients, dtype=np.bool_)
    free[offers.client[chosen]] = False
    dealt = offers.first[free] + np.floor(
        rng.random(offers.num_clients) * np.diff(offers.first, append=len(offers.client))
    )[free].astype(np.int64)
    hand = np.concatenate((chosen, dealt))
    hand = hand[offers.value[hand] > 0]
    items = Items(offers.edge[hand], offers.value[hand], offers.share[hand])
    loads = best_loads(items, offers.num_edges, width, gain)
    improved = hand[loads.taken]
    before = sum_by_edge(offers.edge[chosen], offers.value[chosen], offers.num_edges)
    after = sum_by_edge(offers.edge[improved], offers.value[improved], offers.num_edges)
    better = after > before
    kept, taken = chosen[~better[offers.edge[chosen]]], improved[better[offers.edge[improved]]]
    return np.concatenate((kept, taken))
