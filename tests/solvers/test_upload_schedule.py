"""The schedule by Algorithm 1 of MAB-CS, against its pseudo-code in fractions, and by hand."""

from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedmuster.core.errors import DataError
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.solvers import schedule as dominance
from fedmuster.solvers.schedule import added_seconds, finish_seconds, greedy_schedule, increments

Times = tuple[float, float]
"""(t_UD, t_UL) of a client."""


def distribution(schedule: list[Times]) -> Fraction:
    """Eq. 2; no negative time, and none for nobody."""
    return max([Fraction(0), *(Fraction(upload) for _, upload in schedule)])


def t_inc(schedule: list[Times], client: Times, t: Fraction) -> Fraction:
    """Eq. 1, as it is printed."""
    update, upload = map(Fraction, client)
    before, after = distribution(schedule), distribution([*schedule, client])
    return (after - before) + max(update - (t - before), Fraction(0)) + upload


def algorithm_1(clients: list[Times], size: int) -> list[Times]:
    """The pseudo-code; of equals the shorter upload, then the shorter update."""
    left, t = list(clients), Fraction(0)
    schedule: list[Times] = []
    while left:
        x = min(left, key=lambda k: (t_inc(schedule, k, t), k[1], k[0]))
        left.remove(x)
        longer = t + t_inc(schedule, x, t)
        if len(schedule) < size:
            t = longer
            schedule.append(x)
    return schedule


quarters = st.integers(-12, 40).map(lambda n: n / 4)  # exact in floating point, with many ties
few_values = st.sampled_from([0.0, 1.0, 2.0])
optimistic = st.integers(-20, 0).map(lambda n: n / 4)
anything = st.floats(-1e3, 1e3)


@st.composite
def instances(draw: st.DrawFn) -> tuple[list[Times], int]:
    value = draw(st.sampled_from([quarters, few_values, optimistic]))
    clients = draw(st.lists(st.tuples(value, value), min_size=1, max_size=25))
    return clients, draw(st.integers(1, len(clients)))


def columns(clients: list[Times]) -> tuple[FloatArray, FloatArray]:
    table = np.array(clients, dtype=np.float64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()


def chosen_times(clients: list[Times], size: int, seed: int = 0) -> list[Times]:
    update, upload = columns(clients)
    order = greedy_schedule(update, upload, size, np.random.default_rng(seed))
    assert len(set(order.tolist())) == size
    return [clients[k] for k in order.tolist()]


@given(instances())
def test_schedule_is_that_of_the_pseudo_code(case: tuple[list[Times], int]) -> None:
    clients, size = case
    assert chosen_times(clients, size) == algorithm_1(clients, size)


@given(instances(), st.sampled_from([(1,), (2, 1), (3, 1)]))
def test_sifting_drops_nobody_who_is_needed(
    case: tuple[list[Times], int], strides: tuple[int, ...]
) -> None:
    clients, size = case
    with patch.object(dominance, "_FEW", 0), patch.object(dominance, "_STRIDES", strides):
        assert chosen_times(clients, size) == algorithm_1(clients, size)


def plainly(update: FloatArray, upload: FloatArray, size: int) -> IntArray:
    """Algorithm 1 over all candidates in every step, on distinct uploads."""
    left, elapsed, longest = update.copy(), 0.0, 0.0
    chosen = []
    for _ in range(size):
        added = np.maximum(upload - longest, 0.0) + np.maximum(left - elapsed, 0.0) + upload
        best = int(added.argmin())
        chosen.append(best)
        elapsed = max(elapsed, left[best]) + upload[best]
        longest = max(longest, upload[best])
        left[best] = np.inf
    return np.array(chosen)


@pytest.mark.parametrize("kind", ["upload", "update", "balanced", "negative", "opposed"])
@pytest.mark.parametrize("size", [1, 7, 300])
def test_many_candidates_as_plainly(kind: str, size: int) -> None:
    rng = np.random.default_rng(5)
    update, upload = rng.exponential(1.0, (2, 12_000))
    if kind == "upload":
        upload *= 50.0
    elif kind == "update":
        update *= 1e4
    elif kind == "negative":
        update, upload = update - 1.5, upload - 0.5
    elif kind == "opposed":
        update = 1.0 / upload
    order = greedy_schedule(update, upload, size, np.random.default_rng(0))
    np.testing.assert_array_equal(order, plainly(update, upload, size))


def test_a_million_candidates() -> None:
    rng = np.random.default_rng(6)
    update, upload = rng.exponential(10.0, 10**6), rng.exponential(100.0, 10**6)
    order = greedy_schedule(update, upload, 12, np.random.default_rng(0))
    np.testing.assert_array_equal(order, plainly(update, upload, 12))


def test_a_million_that_nobody_knows() -> None:
    zero = np.zeros(10**6)
    order = greedy_schedule(zero, zero, 100, np.random.default_rng(0))
    assert len(set(order.tolist())) == 100
    # Were they taken by index, the largest of 100 would hardly be so large; p < 1e-30.
    assert order.max() > 500_000


@pytest.mark.parametrize("few", [0, 2_000])
def test_equals_are_chosen_and_ordered_by_chance(few: int) -> None:
    """All ordered pairs of five equals, beside a slower one, equally often: chi-square at 1e-3."""
    update, upload = np.array([3.0, 3, 3, 9, 3, 3]), np.array([2.0, 2, 2, 2, 2, 2])
    with patch.object(dominance, "_FEW", few):
        pairs = [
            tuple(greedy_schedule(update, upload, 2, np.random.default_rng(seed)).tolist())
            for seed in range(2_000)
        ]
    times = [pairs.count((a, b)) for a in (0, 1, 2, 4, 5) for b in (0, 1, 2, 4, 5) if a != b]
    assert sum(times) == 2_000
    assert stats.chisquare(times).pvalue > 1e-3


def test_equals_among_others_are_chosen_by_chance() -> None:
    """One who is best and one of three equals: chi-square at 1e-3."""
    update, upload = np.array([5.0, 1, 5, 5, 9]), np.array([4.0, 1, 4, 4, 9])
    orders = [
        greedy_schedule(update, upload, 2, np.random.default_rng(seed)).tolist()
        for seed in range(1_000)
    ]
    assert {first for first, _ in orders} == {1}
    seconds = [second for _, second in orders]
    times = [seconds.count(k) for k in (0, 2, 3)]
    assert sum(times) == 1_000
    assert stats.chisquare(times).pvalue > 1e-3


def test_an_upload_that_turns_time_back_makes_others_wait() -> None:
    """By hand: all are ready at 0, and after the first, at -5, it is 2 to (-3, -3.9), 5 to (0, -4).

    So they add -1.9 and 1.
    """
    assert chosen_times([(0.0, -4.0), (-3.0, -3.9), (-1.0, -5.0)], 3) == [
        (-1.0, -5.0),
        (-3.0, -3.9),
        (0.0, -4.0),
    ]


# --- The length of a round ----------------------------------------------------------------------


def test_a_round_worked_by_hand() -> None:
    """Three clients, (t_UD, t_UL) = (3, 2), (1, 4), (9, 1).

    Distribution takes max t_UL = 4. The first is ready 3 after it and done at 5, the second is
    ready and done at 9; the third is ready at 9 just then and done at 10. With the distribution
    9, 13, 14.

    T_inc of the first: Td 0 -> 2, waits 3, uploads 2: 7. Of the second: Td 2 -> 4, no wait (it is
    ready at 1, e = 7 - 2 = 5), 4: 6. Of the third: no Td, ready at 9 = e, 1: 1. Sum 14.
    """
    update, upload = np.array([3.0, 1.0, 9.0]), np.array([2.0, 4.0, 1.0])
    np.testing.assert_array_equal(finish_seconds(update, upload), [9.0, 13.0, 14.0])
    np.testing.assert_array_equal(increments(update, upload), [7.0, 6.0, 1.0])


def test_what_each_would_add_worked_by_hand() -> None:
    """After the first of the three: t = 7, Td = 2, e = 5. (1, 4): 2 + 0 + 4; (9, 1): 0 + 4 + 1."""
    added = added_seconds(np.array([1.0, 9.0]), np.array([4.0, 1.0]), elapsed=5.0, distribution=2.0)
    np.testing.assert_array_equal(added, [6.0, 5.0])
    # So the greedy order is 0 (7 against 9 and 11), 2, 1; 14 s as well: 7 + 5 + 6 - 4 (no wait).
    update, upload = np.array([3.0, 1.0, 9.0]), np.array([2.0, 4.0, 1.0])
    order = greedy_schedule(update, upload, 3, np.random.default_rng(0))
    np.testing.assert_array_equal(order, [0, 2, 1])


@given(st.lists(st.tuples(quarters, quarters), max_size=20))
def test_increments_and_finish_follow_the_recursion(clients: list[Times]) -> None:
    update, upload = columns(clients)
    t, added = Fraction(0), []
    for i, client in enumerate(clients):
        added.append(t_inc(clients[:i], client, t))
        t += added[-1]
    assert [Fraction(x) for x in increments(update, upload)] == added
    finish = finish_seconds(update, upload)
    elapsed, expected = Fraction(0), []
    for updating, uploading in clients:
        elapsed = max(elapsed, Fraction(updating)) + Fraction(uploading)
        expected.append(distribution(clients) + elapsed)
    assert [Fraction(x) for x in finish] == expected
    assert not clients or Fraction(finish[-1]) == t


@given(st.lists(st.tuples(anything, anything), min_size=1, max_size=30))
def test_increments_sum_to_the_length_of_the_round(clients: list[Times]) -> None:
    update, upload = columns(clients)
    assert increments(update, upload).sum() == pytest.approx(
        finish_seconds(update, upload)[-1], abs=1e-9
    )


def test_refusals() -> None:
    rng, two, three = np.random.default_rng(0), np.zeros(2), np.zeros(3)
    with pytest.raises(DataError, match=r"shape \(2,\) and upload_seconds \(3,\)"):
        finish_seconds(two, three)
    with pytest.raises(DataError, match="size is 3, expected 0 … 2"):
        greedy_schedule(two, two, 3, rng)
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(DataError):
            increments(np.array([1.0, bad]), two)
    both = np.array([np.inf, 1.0]), np.array([-np.inf, 1.0])
    with pytest.raises(DataError):
        greedy_schedule(*both, 1, rng)
    assert len(greedy_schedule(two, two, 0, rng)) == 0
    assert len(finish_seconds(np.empty(0), np.empty(0))) == 0
