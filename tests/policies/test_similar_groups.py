"""Groups of clients by the direction of their updates."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import linkage

from fedmuster.bandits.similarity import unit_rows
from fedmuster.core.errors import MissingExtraError
from fedmuster.core.records import FloatArray
from fedmuster.policies.clustered_sampling import similar_groups


def at(*degrees: float) -> FloatArray:
    """Directions in the plane."""
    angle = np.radians(degrees)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def parted(groups: np.ndarray[tuple[int], np.dtype[np.int64]]) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(groups == g).tolist()) for g in set(groups.tolist())}


def test_similar_clients_are_in_one_group() -> None:
    """Three bundles; a bin holds all of the first, but not the first two."""
    directions = at(0, 90, 3, 180, 92, 6, 178)
    units = np.array([2, 3, 2, 3, 3, 2, 3])
    expected = {frozenset({0, 2, 5}), frozenset({1, 4}), frozenset({3, 6})}
    assert parted(similar_groups(directions, units, capacity=6)) == expected


def test_a_branch_that_is_too_heavy_falls_apart_and_only_it() -> None:
    """Of the bundle at 0°, 0° and 1° are nearer to each other than to 6°."""
    units = np.array([2, 3, 2, 3, 3, 2, 3])
    parts = parted(similar_groups(at(0, 90, 1, 180, 92, 6, 178), units, capacity=5))
    assert {0, 2} in parts
    assert {5} in parts
    assert {1} in parts  # with client 4 it would take 6


def test_clients_of_no_direction_are_alike() -> None:
    """And at right angles to others, who may well be nearer to them than to one another."""
    directions = at(0, 0, 120, 0, 240)
    directions[[1, 3]] = 0.0
    parts = parted(similar_groups(directions, np.ones(5, dtype=np.int64), capacity=2))
    assert {1, 3} in parts


@given(st.integers(2, 12), st.integers(1, 5), st.integers(0, 2**32))
def test_groups_are_the_largest_branches_that_fit(clients: int, count: int, seed: int) -> None:
    """Against the tree cut by hand: from the root down, until a branch is light enough."""
    rng = np.random.default_rng(seed)
    directions = unit_rows(rng.normal(size=(clients, 3)))
    units = rng.integers(1, 9, clients)
    capacity = max(int(units.max()), int(units.sum()) // count)
    angles = [
        np.arccos(np.clip(directions[i] @ directions[j], -1, 1))
        for i in range(clients)
        for j in range(i + 1, clients)
    ]
    tree = linkage(angles, method="ward")

    def leaves(node: int) -> list[int]:
        if node < clients:
            return [node]
        left, right = tree[node - clients, :2].astype(int).tolist()
        return leaves(left) + leaves(right)

    def cut(node: int) -> set[frozenset[int]]:
        below = leaves(node)
        if units[below].sum() <= capacity:
            return {frozenset(below)}
        left, right = tree[node - clients, :2].astype(int).tolist()
        return cut(left) | cut(right)

    found = similar_groups(directions, units, capacity=capacity)
    assert parted(found) == cut(2 * clients - 2)
    assert sorted(set(found.tolist())) == list(range(int(found.max()) + 1))


def test_weights_are_compared_in_integers() -> None:
    """Beyond 2^53 a float does not tell a bin's capacity from one unit more."""
    half = 2**54
    alike = at(0, 0)
    for extra, groups in ((0, 1), (1, 2)):
        units = np.array([half, half + extra])
        assert len(parted(similar_groups(alike, units, capacity=2 * half))) == groups


def test_one_client_is_a_group() -> None:
    assert similar_groups(at(30), np.array([4]), capacity=4).tolist() == [0]


@pytest.mark.parametrize("scale", [1e-320, 1.0, 1e300])
def test_unit_rows_of_any_scale(scale: float) -> None:
    rows = unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]) * scale)
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0.0, 0.0]], rtol=1e-2)


def test_without_scipy_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.cluster.hierarchy", None)
    with pytest.raises(MissingExtraError, match=r"needs scipy: pip install 'fedmuster\[scipy\]'"):
        similar_groups(at(0, 1), np.array([1, 1]), capacity=2)
