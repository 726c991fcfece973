"""When rounds close: quotas, preferences and uploads one after the other, by hand and by event."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmuster.core.records import BoolArray, FloatArray, IntArray, Selection
from fedmuster.worlds.round_time import Closing, RoundTime


def cohort(
    size: int,
    *,
    quota: int | None = None,
    preferred: list[bool] | None = None,
    order: list[int] | None = None,
) -> Selection:
    return Selection(
        round=1,
        clients=np.arange(size),
        quota=quota,
        preferred=None if preferred is None else np.array(preferred),
        order=None if order is None else np.array(order),
    )


def closed(
    latency: list[float], selection: Selection, deadline: float = np.inf
) -> tuple[list[bool], list[bool] | None, float]:
    completed, used, seconds = RoundTime(deadline_seconds=deadline).close(
        selection, np.array(latency)
    )
    return completed.tolist(), None if used is None else used.tolist(), seconds


def test_a_quota_ends_the_round_with_the_last_preferred_answer_that_it_takes() -> None:
    # The second preferred answer comes after 3 s; by then client 0 has answered too, undrafted.
    selection = cohort(4, quota=2, preferred=[False, True, True, True])
    completed, used, seconds = closed([1.0, 2.0, 3.0, 4.0], selection, deadline=9.0)
    assert (completed, used, seconds) == (
        [True, True, True, False],
        [False, True, True, False],
        3.0,
    )


def test_if_the_deadline_comes_first_others_fill_the_quota_in_order_of_arrival() -> None:
    selection = cohort(5, quota=3, preferred=[False, False, True, True, False])
    completed, used, seconds = closed([2.0, 1.0, 4.0, 11.0, 3.0], selection, deadline=10.0)
    assert completed == [True, True, True, False, True]
    assert used == [True, True, True, False, False]  # one preferred, then the two first others
    assert seconds == 10.0


def test_a_round_in_which_all_have_answered_ends_without_the_quota() -> None:
    selection = cohort(3, quota=5, preferred=[True, False, True])
    assert closed([2.0, 6.0, 1.0], selection, deadline=10.0) == ([True] * 3, [True] * 3, 6.0)


def test_a_quota_without_preferences_is_the_first_so_many() -> None:
    assert closed([3.0, 1.0, 2.0], cohort(3, quota=2)) == ([False, True, True], None, 2.0)
    kept = RoundTime(keep_first=2).close(cohort(3), np.array([3.0, 1.0, 2.0]))
    assert (kept.completed.tolist(), kept.seconds) == ([False, True, True], 2.0)
    overruled = RoundTime(keep_first=2).close(cohort(3, quota=1), np.array([3.0, 1.0, 2.0]))
    assert (overruled.completed.tolist(), overruled.seconds) == ([False, True, False], 1.0)


def second_by_second(
    latency: FloatArray, quota: int, preferred: BoolArray, deadline: float
) -> tuple[set[int], set[int], float]:
    """CFCFM as SAFA tells it: take arrivals one by one."""
    picked: list[int] = []
    others: list[int] = []
    for client in sorted(range(len(latency)), key=lambda k: (latency[k], k)):
        if latency[client] > deadline or not np.isfinite(latency[client]):
            break
        (picked if preferred[client] else others).append(client)
        if len(picked) == quota:
            return {*picked, *others}, set(picked), float(latency[client])
    arrived = {*picked, *others}
    all_there = len(arrived) == len(latency)
    end = float(latency.max()) if all_there else deadline
    return arrived, {*picked, *others[: quota - len(picked)]}, end


@given(st.data())
def test_closing_equals_taking_arrivals_one_by_one(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 8))
    moments = st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.0, np.inf])
    latency = np.array(data.draw(st.lists(moments, min_size=size, max_size=size)))
    preferred = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    quota = data.draw(st.integers(1, 9))
    deadline = data.draw(st.sampled_from([1.0, 2.5]))
    selection = cohort(size, quota=quota, preferred=preferred)
    found: Closing = RoundTime(deadline_seconds=deadline).close(selection, latency)
    assert found.used is not None
    expected = second_by_second(latency, quota, np.array(preferred), deadline)
    assert (
        set(np.flatnonzero(found.completed).tolist()),
        set(np.flatnonzero(found.used).tolist()),
        found.seconds,
    ) == expected


def sequential(selection: Selection, update: list[float], upload: list[float]) -> FloatArray:
    signals = {"compute_seconds": np.array(update), "upload_seconds": np.array(upload)}
    alone = np.array(update) + np.array(upload)
    return RoundTime(sequential=True).latency(selection, alone, signals)


def test_uploads_one_after_the_other_in_the_order_of_the_selection() -> None:
    """MAB-CS Eq. 1 by hand.

    The distribution takes 3 s, the longest upload. Then client 2 computes for 1 s and uploads
    until 1 + 3 = 4; client 0 is ready at 2, waits, and uploads until 4 + 2 = 6; client 1 is ready
    at 9 and uploads until 10.
    """
    update, upload = [2.0, 9.0, 1.0], [2.0, 1.0, 3.0]
    latency = sequential(cohort(3, order=[2, 0, 1]), update, upload)
    np.testing.assert_allclose(latency, [3 + 6, 3 + 10, 3 + 4])


def test_without_an_order_whoever_is_ready_first_uploads_first() -> None:
    update, upload = [2.0, 9.0, 1.0], [2.0, 1.0, 3.0]
    np.testing.assert_array_equal(
        sequential(cohort(3), update, upload),
        sequential(cohort(3, order=[2, 0, 1]), update, upload),
    )


@given(st.permutations(range(5)), st.integers(0, 2**32 - 1))
def test_no_order_beats_whoever_is_ready_first(order: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    update, upload = rng.uniform(0, 10, 5).tolist(), rng.uniform(0, 3, 5).tolist()
    ordered = sequential(cohort(5, order=order), update, upload).max()
    assert sequential(cohort(5), update, upload).max() <= ordered + 1e-12


def test_who_drops_out_holds_up_nobody() -> None:
    signals = {"compute_seconds": np.array([1.0, 2.0]), "upload_seconds": np.array([5.0, 1.0])}
    alone: FloatArray = np.array([np.inf, 3.0])
    clients: IntArray = np.arange(2)
    latency = RoundTime(sequential=True).latency(
        Selection(round=1, clients=clients, order=clients), alone, signals
    )
    np.testing.assert_array_equal(latency, [np.inf, 1 + 2 + 1])


def test_nobody_ends_at_once() -> None:
    assert RoundTime(sequential=True).close(cohort(0), np.empty(0)).seconds == 0.0
    assert len(sequential(cohort(0), [], [])) == 0


@pytest.mark.parametrize("deadline", [np.inf, 2.0])
def test_everybody_lost_waits_for_the_deadline(deadline: float) -> None:
    completed, used, seconds = closed([np.inf, np.inf], cohort(2), deadline)
    assert (completed, used, seconds) == ([False, False], None, deadline)
