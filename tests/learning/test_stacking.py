"""Padding, the choice of the form, and the memory of Gram matrices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmuster.training.engines.client_stacks import stacking
from fedmuster.training.engines.first_layer import GramMatrices, gram_sides, padded
from fedmuster.training.local_sgd import LocalSGD


@given(st.integers(1, 10**9))
def test_less_than_half_is_padding(size: int) -> None:
    rounded = int(padded(np.array([size]))[0])
    assert size <= rounded < 1.5 * size + 1
    assert padded(np.array([rounded]))[0] == rounded


def test_form_follows_from_the_work() -> None:
    layers = (784, 64, 10)
    chosen = stacking("auto", LocalSGD(), np.array([0, 5, 110, 300, 5_000]), layers)
    # A client with more samples than inputs would multiply larger matrices, not smaller ones.
    assert (chosen.sides > 0).tolist() == [False, True, True, True, False]
    assert chosen.sides[2] == 128
    assert chosen.widths.tolist() == [1, 6, 20, 20, 20]
    # Few inputs: the weights are smaller than any Gram matrix.
    assert not stacking("auto", LocalSGD(), np.array([110]), (10, 1)).sides.any()
    both = np.array([5, 5_000])
    assert not stacking("stacked", LocalSGD(), both, layers).sides.any()
    assert stacking("gram", LocalSGD(), both, layers).sides.all()


def test_kept_matrices_are_bounded() -> None:
    limit = 2**28
    sizes = np.repeat([30, 110, 500], [1_000, 1_000, 3_000])
    chosen = stacking("gram", LocalSGD(), sizes, (8, 64))
    assert chosen.kept[:2_000].all()
    assert not chosen.kept[2_000:].any()
    assert 4 * (chosen.sides[chosen.kept] ** 2).sum() <= limit
    # Where matrices would have to be computed anew in every round, a single epoch does not pay.
    many = np.full(40_000, 110)
    assert not stacking("auto", LocalSGD(), many, (200, 64)).sides.any()
    assert stacking("auto", LocalSGD(), many[:1_000], (200, 64)).sides.all()


@pytest.mark.parametrize("kept", [True, False])
def test_gram_matrices(kept: bool) -> None:
    rng = np.random.default_rng(0)
    sizes = np.array([5, 4, 0, 5, 9])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    inputs = rng.standard_normal((23, 6), dtype=np.float32)
    matrices = GramMatrices(inputs, offsets, np.full(5, kept))
    assert gram_sides(sizes).tolist() == [6, 6, 1, 6, 12]
    for clients in ([3, 0], [0, 1, 3], [4], [1]):
        stored, places = matrices.of(np.array(clients))
        for client, place in zip(clients, places, strict=True):
            own = inputs[offsets[client] : offsets[client + 1]].astype(np.float64)
            expected = np.zeros((stored.shape[1],) * 2)
            expected[: len(own), : len(own)] = own @ own.T
            np.testing.assert_allclose(stored[place], expected, atol=1e-5)
    again, _ = matrices.of(np.array([4]))
    assert (again is matrices.of(np.array([4]))[0]) == kept
