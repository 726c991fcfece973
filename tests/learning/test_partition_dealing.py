"""The arithmetic of dealing: sums, roundings and moves, against brute force and exact means."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmuster.core.records import IntArray
from fedmuster.training.dealing import apportioned, dealt, fitted, gathered, raised, resized

weights = st.lists(st.floats(0.0, 1e6, allow_subnormal=False), min_size=1, max_size=30).map(
    np.array
)
sizes = st.lists(st.integers(0, 40), min_size=1, max_size=30).map(np.array)
seeds = st.integers(0, 10**6)


@given(weights, st.integers(0, 10_000), seeds)
def test_parts_add_up_and_are_within_one(parts: IntArray, total: int, seed: int) -> None:
    found = apportioned(parts, total, np.random.default_rng(seed))
    assert found.sum() == total
    exact = parts / parts.sum() if parts.sum() > 0 else np.full(len(parts), 1 / len(parts))
    assert (abs(found - total * exact) < 1 + 1e-6).all()


def test_parts_are_exact_on_average() -> None:
    weights = np.array([0.5, 3.2, 0.0, 1.7, 1.1])
    rng = np.random.default_rng(5)
    draws = np.array([apportioned(weights, 7, rng) for _ in range(4_000)])
    exact = 7 * weights / weights.sum()
    spread = np.sqrt((exact % 1) * (1 - exact % 1) / len(draws))
    # Five two-sided tests at 4.5 standard errors: a false alarm in fewer than 1 of 25,000 seeds.
    assert (abs(draws.mean(axis=0) - exact) <= 4.5 * spread + 1e-12).all()


def test_parts_of_many_columns_are_parts_of_each() -> None:
    rng = np.random.default_rng(2)
    weights, totals = rng.random((9, 4)), np.array([0, 5, 100, 1_234])
    found = apportioned(weights, totals, rng)
    assert (found.sum(axis=0) == totals).all()
    assert (abs(found - totals * weights / weights.sum(axis=0)) < 1).all()


@given(sizes, st.data())
def test_raising_keeps_the_sum_and_takes_only_what_is_spare(
    held: IntArray, data: st.DataObject
) -> None:
    least = data.draw(st.integers(0, int(held.sum()) // len(held)))
    found = raised(held, least, np.random.default_rng(1))
    assert found.sum() == held.sum()
    assert (found >= least).all()
    assert (found[held < least] == least).all()
    assert (found[held >= least] <= held[held >= least]).all()


def test_fitting_meets_both_margins_and_keeps_the_odds() -> None:
    rng = np.random.default_rng(3)
    weights = rng.random((6, 4)) + 0.1
    rows, columns = rng.integers(10, 90, 6), np.array([1, 2, 3, 4])
    columns = columns * rows.sum() / columns.sum()
    fit = fitted(weights, rows, columns)
    np.testing.assert_allclose(fit.sum(axis=1), rows, rtol=1e-9)
    np.testing.assert_allclose(fit.sum(axis=0), columns, rtol=1e-6)
    # Scaling rows and columns leaves every odds ratio as it was.
    for table in (fit, weights):
        table /= table[:1] * table[:, :1] / table[0, 0]
    np.testing.assert_allclose(fit, weights, rtol=1e-9)


def test_fitting_survives_what_cannot_be_met() -> None:
    fit = fitted(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([2, 2]), np.array([3, 1]))
    assert np.isfinite(fit).all()


@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 8), seeds)
def test_dealing_and_moving_by_brute_force(
    num_samples: int, num_labels: int, num_clients: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, num_labels, num_samples)
    first = rng.integers(0, num_clients, num_samples)
    counts = np.zeros((num_clients, num_labels), dtype=np.int64)
    np.add.at(counts, (first, labels), 1)
    owners = dealt(labels, counts, rng)
    for client in range(num_clients):
        for label in range(num_labels):
            assert np.sum((owners == client) & (labels == label)) == counts[client, label]

    wanted = np.bincount(rng.integers(0, num_clients, num_samples), minlength=num_clients)
    moved = resized(owners, wanted, rng)
    held = np.bincount(owners, minlength=num_clients)
    assert (np.bincount(moved, minlength=num_clients) == wanted).all()
    assert np.count_nonzero(moved != owners) == np.maximum(held - wanted, 0).sum()

    some = np.where(rng.random(num_samples) < 0.5, moved, -1)
    shares = gathered(some, num_clients, rng)
    for client in range(num_clients):
        rows = shares.rows[shares.offsets[client] : shares.offsets[client + 1]]
        assert sorted(rows) == np.flatnonzero(some == client).tolist()


def test_any_sample_may_move() -> None:
    owners, rng = np.zeros(5, dtype=np.int64), np.random.default_rng(1)
    moved = np.array([resized(owners, np.array([4, 1]), rng) for _ in range(2_000)])
    # Five frequencies of 1/5: four standard errors of each.
    assert moved.mean(axis=0) == pytest.approx(0.2, abs=4 * np.sqrt(0.16 / 2_000))


def test_samples_move_from_anybody_to_anybody() -> None:
    owners, rng = np.array([0, 0, 1, 1]), np.random.default_rng(2)
    moved = [resized(owners, np.array([1, 1, 1, 1]), rng) for _ in range(2_000)]
    from_first = np.mean([owners[new == 2][0] == 0 for new in moved])
    assert from_first == pytest.approx(0.5, abs=4 * np.sqrt(0.25 / 2_000))
