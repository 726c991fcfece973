"""Batches: permutations, cut as local SGD wants them, the same in every company."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedmuster.core.records import IntArray
from fedmuster.training.local_sgd import Batches, LocalSGD, batches

SIZES = st.lists(st.integers(0, 13), min_size=1, max_size=6)


def draw(
    local: LocalSGD, sizes: list[int], *, seed: int = 3, round_number: int = 2, first: int = 0
) -> Batches:
    clients = np.arange(first, first + len(sizes))
    return batches(
        local, seed=seed, round_number=round_number, clients=clients, num_samples=np.array(sizes)
    )


def trained(drawn: Batches, client: int) -> list[list[int]]:
    """The batches of a client, without padding."""
    rows = [row[row >= 0].tolist() for row in drawn.rows[client]]
    return [row for row in rows if row]


@given(sizes=SIZES, batch_size=st.integers(0, 15), epochs=st.integers(1, 3))
def test_every_epoch_is_a_permutation(sizes: list[int], batch_size: int, epochs: int) -> None:
    drawn = draw(LocalSGD(batch_size=batch_size, epochs=epochs), sizes)
    for client, size in enumerate(sizes):
        width = batch_size or max(size, 1)
        per_epoch = -(-size // width)
        own = trained(drawn, client)
        assert len(own) == epochs * per_epoch
        for epoch in range(epochs):
            cut = own[epoch * per_epoch : (epoch + 1) * per_epoch]
            assert sorted(chain(*cut)) == list(range(size))
            assert all(len(batch) == width for batch in cut[:-1])


@given(sizes=SIZES, batch_size=st.integers(0, 15), steps=st.integers(1, 9))
def test_steps_go_on_with_further_epochs(sizes: list[int], batch_size: int, steps: int) -> None:
    drawn = draw(LocalSGD(batch_size=batch_size, steps=steps), sizes)
    epochs = draw(LocalSGD(batch_size=batch_size, epochs=steps), sizes)
    for client, size in enumerate(sizes):
        assert trained(drawn, client) == trained(epochs, client)[: steps if size else 0]
        assert len(trained(drawn, client)) == (steps if size else 0)


@given(sizes=SIZES, batch_size=st.integers(0, 15), data=st.data())
def test_padding_stands_behind_and_sizes_count_the_rest(
    sizes: list[int], batch_size: int, data: st.DataObject
) -> None:
    drawn = draw(LocalSGD(batch_size=batch_size, epochs=data.draw(st.integers(1, 2))), sizes)
    position = np.arange(drawn.rows.shape[2])
    assert np.array_equal(drawn.rows >= 0, position < drawn.sizes[..., None])
    assert drawn.rows.dtype == drawn.sizes.dtype == np.int64


@given(sizes=SIZES, data=st.data())
def test_batches_do_not_depend_on_the_company(sizes: list[int], data: st.DataObject) -> None:
    local = LocalSGD(
        batch_size=data.draw(st.integers(0, 15)), steps=data.draw(st.none() | st.integers(1, 7))
    )
    everybody = draw(local, sizes)
    chosen: IntArray = np.array(data.draw(st.permutations(range(len(sizes)))))
    chosen = chosen[: data.draw(st.integers(1, len(sizes)))]
    some = batches(
        local, seed=3, round_number=2, clients=chosen, num_samples=np.array(sizes)[chosen]
    )
    for position, client in enumerate(chosen):
        assert trained(some, position) == trained(everybody, client)


def test_orders_differ_between_seeds_rounds_clients_and_epochs() -> None:
    local = LocalSGD(batch_size=0, epochs=2)
    orders = [
        tuple(batch)
        for seed in (3, 4)
        for round_number in (1, 2)
        for first in (0, 1)
        for batch in trained(
            draw(local, [50], seed=seed, round_number=round_number, first=first), 0
        )
    ]
    assert len(set(orders)) == len(orders) == 16


@pytest.mark.parametrize("size", [2, 3, 4])
def test_permutations_are_equally_likely(size: int) -> None:
    """Over 6,000 clients, significance 1e-4."""
    drawn = draw(LocalSGD(batch_size=0), [size] * 6_000)
    _, seen = np.unique(drawn.rows[:, 0], axis=0, return_counts=True)
    assert len(seen) == [2, 6, 24][size - 2]
    assert chisquare(seen).pvalue > 1e-4


def test_nobody_trains_without_samples() -> None:
    for local in (LocalSGD(), LocalSGD(steps=3), LocalSGD(batch_size=0)):
        assert not draw(local, [0, 0]).sizes.any()
