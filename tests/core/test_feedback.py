"""What came back from a cohort is checked row by row before a policy learns from it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmuster.core.errors import FeedbackError
from fedmuster.core.feedback import clean
from fedmuster.core.records import Feedback, Selection

SELECTION = Selection(round=4, clients=np.array([2, 5, 7, 9]))


def answer(clients: Any, latency: Any, **more: Any) -> Feedback:
    return Feedback(
        round=more.pop("round", 4),
        clients=np.asarray(clients, dtype=np.int64),
        latency_seconds=np.asarray(latency, dtype=np.float64),
        **more,
    )


def test_good_rows_are_aligned_with_the_selection() -> None:
    cleaned, report = clean(answer([9, 2], [0.9, 0.2], signals={"loss": [9.0, 2.0]}), SELECTION)
    assert cleaned.clients.tolist() == [2, 5, 7, 9]
    assert cleaned.answered.tolist() == [True, False, False, True]
    assert cleaned.latency_seconds.tolist() == [0.2, np.inf, np.inf, 0.9]
    assert cleaned.signals["loss"][[0, 3]].tolist() == [2.0, 9.0]
    assert report.accepted == 2
    assert report.refused == {}
    assert report.not_completed.tolist() == [5, 7]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -1.0, 0.0, 5e-324, 1.7e308])
def test_a_bad_latency_costs_only_its_own_client(bad: float) -> None:
    cleaned, report = clean(answer([2, 5, 7, 9], [1.0, bad, 1.0, 1.0]), SELECTION)
    assert cleaned.answered.tolist() == [True, False, True, True]
    assert report.refused == {"latency not finite and positive": 1}
    assert report.not_completed.tolist() == [5]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_signal_costs_only_its_own_client(bad: float) -> None:
    feedback = answer([2, 5], [1.0, 1.0], signals={"loss": np.array([0.5, bad])})
    cleaned, report = clean(feedback, SELECTION)
    assert cleaned.answered.tolist() == [True, False, False, False]
    assert report.refused == {"signal 'loss' not finite": 1}


@pytest.mark.parametrize("bad", ["0.5", None, [1.0, 2.0], {}])
def test_a_cell_that_is_no_number_costs_only_its_own_client(bad: Any) -> None:
    latency: Any = [1.0, bad, 1.0]
    feedback = Feedback(round=4, clients=np.array([2, 5, 7]), latency_seconds=latency)
    cleaned, report = clean(feedback, SELECTION)
    assert cleaned.answered.tolist() == [True, False, True, False]
    assert report.refused == {"latency not finite and positive": 1}
    signals: Any = {"loss": [1.0, "high", 1.0]}
    feedback = Feedback(
        round=4, clients=np.array([2, 5, 7]), latency_seconds=np.ones(3), signals=signals
    )
    assert clean(feedback, SELECTION)[1].refused == {"signal 'loss' not finite": 1}


def test_sketches_are_aligned_with_the_selection() -> None:
    rows = np.array([[9.0, 0.9], [2.0, 0.2]])
    cleaned, report = clean(answer([9, 2], [1.0, 1.0], sketches=rows), SELECTION, sketch_size=2)
    assert cleaned.sketches is not None
    assert cleaned.sketches[[0, 3]].tolist() == [[2.0, 0.2], [9.0, 0.9]]
    assert np.isnan(cleaned.sketches[1:3]).all()
    assert report.accepted == 2


def test_sketches_are_copied() -> None:
    rows = np.ones((4, 2))
    cleaned, _ = clean(answer([2, 5, 7, 9], [1.0] * 4, sketches=rows), SELECTION, sketch_size=2)
    rows[:] = 7.0
    assert cleaned.sketches is not None
    assert cleaned.sketches.tolist() == [[1.0, 1.0]] * 4


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("clients", [[2, 5], [2, 5, 7, 9]])
def test_a_bad_sketch_costs_only_its_own_client(clients: list[int], bad: float) -> None:
    rows = np.ones((len(clients), 2))
    rows[1, 1] = bad
    feedback = answer(clients, [1.0] * len(clients), sketches=rows)
    cleaned, report = clean(feedback, SELECTION, sketch_size=2)
    assert cleaned.answered.tolist() == [k in clients and k != 5 for k in (2, 5, 7, 9)]
    assert report.refused == {"sketch not finite": 1}
    assert cleaned.sketches is not None
    assert np.isfinite(cleaned.sketches[cleaned.answered]).all()


def test_who_did_not_complete_needs_no_sketch() -> None:
    completed, rows = np.array([True, False]), np.array([[1.0], [np.nan]])
    feedback = answer([2, 5], [1.0, 1.0], completed=completed, sketches=rows)
    cleaned, report = clean(feedback, SELECTION, sketch_size=1)
    assert report.refused == {}
    assert cleaned.answered.tolist() == [True, False, False, False]


def test_answers_with_different_sketches_contradict_each_other() -> None:
    rows = np.array([[1.0], [2.0], [3.0], [2.0]])
    feedback = answer([5, 2, 5, 2], [1.0] * 4, sketches=rows)
    cleaned, report = clean(feedback, SELECTION, sketch_size=1)
    assert cleaned.answered.tolist() == [True, False, False, False]
    assert report.refused == {"duplicate": 1, "contradictory duplicates": 2}


def test_sketches_that_nobody_wants_are_not_looked_at() -> None:
    cleaned, report = clean(answer([2], [1.0], sketches="whatever"), SELECTION)
    assert cleaned.sketches is None
    assert report.accepted == 1


def test_a_policy_that_wants_sketches_may_get_none() -> None:
    assert clean(answer([2], [1.0]), SELECTION, sketch_size=3)[0].sketches is None


@pytest.mark.parametrize(
    "sketches",
    [np.ones((2, 4)), np.ones((1, 3)), np.ones(2), [["a"] * 3] * 2, [[1.0], [1.0, 2.0]], 1.0],
)
def test_sketches_of_another_shape_make_a_message_unreadable(sketches: Any) -> None:
    with pytest.raises(FeedbackError, match="sketches"):
        clean(answer([2, 5], [1.0, 1.0], sketches=sketches), SELECTION, sketch_size=3)


def test_what_is_no_feedback_is_refused() -> None:
    wrong: Any
    for wrong in (None, {}, [1]):
        with pytest.raises(FeedbackError, match="expected a Feedback"):
            clean(wrong, SELECTION)


def test_clients_that_were_not_selected_are_dropped_and_counted() -> None:
    cleaned, report = clean(answer([2, 3, -1, 10**9], [1.0] * 4), SELECTION)
    assert cleaned.answered.tolist() == [True, False, False, False]
    assert report.refused == {"not selected": 3}


def test_the_same_answer_twice_counts_once() -> None:
    cleaned, report = clean(answer([5, 2, 5], [0.5, 0.2, 0.5]), SELECTION)
    assert cleaned.latency_seconds[:2].tolist() == [0.2, 0.5]
    assert report.refused == {"duplicate": 1}
    assert report.accepted == 2


def test_answers_that_contradict_each_other_count_not_at_all() -> None:
    cleaned, report = clean(answer([5, 2, 5], [0.5, 0.2, 0.1]), SELECTION)
    assert cleaned.answered.tolist() == [True, False, False, False]
    assert report.refused == {"contradictory duplicates": 2}


def test_rows_not_completed_need_no_latency() -> None:
    completed = np.array([True, False])
    cleaned, report = clean(answer([2, 5], [1.0, np.nan], completed=completed), SELECTION)
    assert report.refused == {}
    assert report.accepted == 2
    assert cleaned.latency_seconds[1] == np.inf


@pytest.mark.parametrize(
    ("feedback", "message"),
    [
        (answer([2], [1.0], round=3), "round 3, but round 4"),
        (answer([2, 5], [1.0]), r"shape \(1,\), expected one value for each of the 2"),
        (answer([2], [1.0], completed=np.array([1])), "expected booleans"),
        (answer([2], [1.0], signals={"loss": np.ones(3)}), "signals"),
        (answer([2], [1.0], signals=None), "expected a mapping"),
        (answer([2], [1.0], round=True), "round True"),
        (answer([2], [1.0], round=4.0), "round 4.0"),
        (Feedback(round=4, clients=np.array(["a"]), latency_seconds=np.ones(1)), "indices"),
        (Feedback(round=4, clients=np.array([2.5]), latency_seconds=np.ones(1)), "client indices"),
        (Feedback(round=4, clients=np.ones((1, 1), int), latency_seconds=np.ones(1)), "indices"),
    ],
)
def test_unreadable_messages_are_refused_whole(feedback: Feedback, message: str) -> None:
    with pytest.raises(FeedbackError, match=message):
        clean(feedback, SELECTION)


@given(
    st.lists(
        st.tuples(
            st.integers(-2, 12),
            st.sampled_from([0.5, 1.0, 0.0, -1.0, float("nan"), float("inf")]),
            st.booleans(),
        ),
        max_size=12,
    ),
    st.randoms(use_true_random=False),
)
def test_any_rows_in_any_order_give_one_clean_answer(
    rows: list[tuple[int, float, bool]], random: Any
) -> None:
    def cleaned(order: list[tuple[int, float, bool]]) -> tuple[Feedback, Any]:
        clients, latency, completed = zip(*order, strict=True) if order else ((), (), ())
        return clean(answer(clients, latency, completed=np.array(completed, bool)), SELECTION)

    first, report = cleaned(rows)
    shuffled = list(rows)
    random.shuffle(shuffled)
    second, again = cleaned(shuffled)
    np.testing.assert_array_equal(first.latency_seconds, second.latency_seconds)
    np.testing.assert_array_equal(first.answered, second.answered)
    assert report.refused == again.refused
    assert np.isfinite(first.latency_seconds[first.answered]).all()
    assert report.accepted + sum(report.refused.values()) == len(rows)


def test_which_answers_were_used_and_how_long_the_round_took_reach_the_policy() -> None:
    selection = Selection(round=1, clients=np.array([2, 5, 7]))
    feedback = Feedback(
        round=1,
        clients=np.array([7, 2]),
        latency_seconds=np.array([1.0, 2.0]),
        used=np.array([True, False]),
        round_seconds=2.5,
    )
    cleaned, _ = clean(feedback, selection)
    assert cleaned.used is not None
    assert cleaned.used.tolist() == [False, False, True]
    assert cleaned.entered.tolist() == [False, False, True]
    assert cleaned.round_seconds == 2.5
    everybody = Feedback(
        round=1,
        clients=np.array([2, 5, 7]),
        latency_seconds=np.ones(3),
        used=np.array([True, False, True]),
    )
    cleaned, _ = clean(everybody, selection)
    assert cleaned.entered.tolist() == [True, False, True]
    assert cleaned.round_seconds is None


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), "2", True])
def test_a_round_that_took_no_possible_time_is_refused(seconds: Any) -> None:
    selection = Selection(round=1, clients=np.array([2]))
    feedback = Feedback(
        round=1, clients=np.array([2]), latency_seconds=np.ones(1), round_seconds=seconds
    )
    with pytest.raises(FeedbackError, match="round_seconds"):
        clean(feedback, selection)


def test_copies_that_disagree_on_being_used_count_not_at_all() -> None:
    selection = Selection(round=1, clients=np.array([2, 3]))
    feedback = Feedback(
        round=1,
        clients=np.array([2, 3, 2]),
        latency_seconds=np.ones(3),
        used=np.array([True, True, False]),
    )
    cleaned, report = clean(feedback, selection)
    assert cleaned.answered.tolist() == [False, True]
    assert report.refused == {"contradictory duplicates": 2}


def test_output_biases_are_kept_like_sketches() -> None:
    rows = np.array([[9.0, 0.9], [2.0, np.inf], [5.0, 0.5]])
    feedback = answer([9, 2, 5], [1.0] * 3, output_bias=rows)
    cleaned, report = clean(feedback, SELECTION, num_classes=2)
    assert cleaned.output_bias is not None
    assert cleaned.output_bias[[1, 3]].tolist() == [[5.0, 0.5], [9.0, 0.9]]
    assert np.isnan(cleaned.output_bias[[0, 2]]).all()
    assert report.refused == {"output bias not finite": 1}
    assert clean(feedback, SELECTION)[0].output_bias is None  # nobody wants it
    with pytest.raises(FeedbackError, match="output_bias"):
        clean(feedback, SELECTION, num_classes=3)


def test_copies_with_other_output_biases_contradict_each_other() -> None:
    rows = np.array([[1.0], [2.0], [3.0], [3.0]])
    feedback = answer([2, 2, 5, 5], [1.0] * 4, output_bias=rows)
    cleaned, report = clean(feedback, SELECTION, num_classes=1)
    assert cleaned.answered.tolist() == [False, True, False, False]
    assert report.refused == {"duplicate": 1, "contradictory duplicates": 2}
