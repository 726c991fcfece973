"""The edges' knapsacks against trying every subset."""

from itertools import compress, product
from math import fsum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmuster.core.records import FloatArray
from fedmuster.core.streams import stream
from fedmuster.solvers.assignment import knapsacks
from fedmuster.solvers.assignment.knapsacks import Items, best_loads

amounts = st.sampled_from([0.1, 0.2, 0.25, 0.5, 1.0]) | st.floats(0.01, 1.0)


@st.composite
def hands(draw: st.DrawFn) -> tuple[Items, int]:
    num_edges = draw(st.integers(1, 3))
    edge = draw(st.lists(st.integers(0, num_edges - 1), max_size=11))
    value = [draw(amounts) for _ in edge]
    share = [draw(amounts | st.just(0.0)) for _ in edge]
    columns = np.array(edge, dtype=np.int64), np.array(value), np.array(share)
    return Items(*columns), num_edges


def optima(items: Items, num_edges: int) -> FloatArray:
    best = []
    for m in range(num_edges):
        value, share = items.value[items.edge == m], items.share[items.edge == m]
        best.append(
            max(
                fsum(compress(value, chosen))
                for chosen in product((0, 1), repeat=len(value))
                if fsum(compress(share, chosen)) <= 1.0 + 1e-12
            )
        )
    return np.array(best)


@given(hand=hands())
def test_every_edge_makes_the_best_of_its_hand(hand: tuple[Items, int]) -> None:
    items, num_edges = hand
    taken, worth = best_loads(items, num_edges, 10_000)
    best = optima(items, num_edges)
    found = np.bincount(items.edge[taken], items.value[taken], num_edges)
    used = np.bincount(items.edge[taken], items.share[taken], num_edges)
    assert (used <= 1 + 1e-9).all()
    np.testing.assert_allclose(found, best, atol=1e-9)
    np.testing.assert_allclose(worth, best, atol=1e-9)
    assert (worth >= best - 1e-12).all()


@pytest.mark.parametrize("most_undecided", [1, 3, 100])
@pytest.mark.parametrize("width", [1, 4])
def test_what_is_not_looked_at_is_bounded(
    width: int, most_undecided: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knapsacks, "_MOST_UNDECIDED", most_undecided)
    loose = 0
    for seed in range(150):
        rng = stream(seed, "hand")
        size = int(rng.integers(1, 13))
        items = Items(np.zeros(size, dtype=np.int64), rng.random(size), rng.random(size))
        taken, worth = best_loads(items, 1, width)
        (best,) = optima(items, 1)
        assert items.value[taken].sum() <= best + 1e-9 <= worth[0] + 2e-9
        loose += bool(worth[0] > best + 1e-6)
    assert (loose > 0) == (width < 4 or most_undecided < 100)


def test_gains_that_are_too_small_are_not_looked_for() -> None:
    """Two items of 1 fit, three do not: nothing between 2 and 3 is to be found."""
    items = Items(np.zeros(9, dtype=np.int64), np.ones(9), np.full(9, 0.4))
    taken, worth = best_loads(items, 1, 100, gain=1 - 1e-6)
    assert taken.sum() == 2
    assert 2.0 <= worth[0] < 3.0
