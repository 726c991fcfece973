"""Answers to tickets: in any order, of any quality, to tickets of any kind."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.core.recording import (
    POLICIES,
    Recorder,
    answer,
    image_of,
    joined,
    numbers_of,
    recorder,
    selector_of,
    state_of,
    told,
)

from fedmuster import Feedback, Problem, Selector
from fedmuster.core.errors import FeedbackError
from fedmuster.core.records import Selection
from fedmuster.core.tickets import AGAIN, LATE, OTHER, UNKNOWN


@dataclass(frozen=True, kw_only=True, slots=True)
class SketchReader(Recorder):
    """A recorder that wants sketches."""

    name: ClassVar[str] = "sketch-reader"

    @property
    def wanted_sketch_size(self) -> int:
        return 8


class TestAnswers:
    def test_they_come_in_any_order_and_each_is_learned_once(self) -> None:
        selector = recorder(12)
        one, two = selector.select(count=4), selector.select(count=3)
        report = selector.observe(answer(one, two, rows=[6, 0, 3]))
        assert (report.accepted, dict(report.refused), report.not_completed.tolist()) == (3, {}, [])
        assert selector.tickets.numbers.tolist() == [1, 2, 4, 5]
        selector.observe(answer(one, two, rows=[5, 2, 1, 4]))
        clients = np.concatenate([one.clients, two.clients])
        assert selector.state.times.sum() == 7
        np.testing.assert_array_equal(selector.state.times[clients], 1)
        np.testing.assert_array_equal(selector.state.seconds[clients], 0.5 + (clients % 7) / 8)
        assert not selector.tickets.busy.any()

    @pytest.mark.parametrize("policy", POLICIES)
    def test_one_message_is_the_same_as_one_for_each_selection(self, policy: str) -> None:
        """In the order in which the tickets were given out, whatever the order of the rows."""
        together, apart = selector_of(policy), selector_of(policy)
        rng = np.random.default_rng(3)
        for _ in range(6):
            opened = [together.select(count=n) for n in (3, 1, 4)]
            for selection in opened:
                np.testing.assert_array_equal(
                    apart.select(count=len(selection.clients)).clients, selection.clients
                )
            parts = [told(selection) for selection in opened]
            order = rng.permutation(8)
            together.observe(joined(parts, order))
            for part in parts:
                apart.observe(part)
            assert state_of(together) == state_of(apart)
            assert together.round == apart.round

    @pytest.mark.parametrize("policy", ["random", "bsfl", "pause", "cs-ucb", "cs-ucb-q", "rbcs-f"])
    def test_one_message_is_the_same_as_one_for_each_client(self, policy: str) -> None:
        """For policies whose statistics are each client's own."""
        together, apart = selector_of(policy), selector_of(policy)
        for _ in range(6):
            parts = []
            for count in (3, 1, 4):
                parts.append(told(together.select(count=count)))
                apart.select(count=count)
            whole = joined(parts, np.arange(8))
            together.observe(whole)
            for row in range(8):
                apart.observe(joined(parts, np.array([row])))
            assert state_of(together) == state_of(apart)

    def test_a_client_that_did_not_complete_is_told_of(self) -> None:
        selector = recorder()
        selection = selector.select(count=3)
        completed = np.array([True, False, True])
        report = selector.observe(answer(selection, completed=completed))
        assert report.accepted == 3
        assert report.not_completed.tolist() == [selection.clients[1]]
        assert selector.state.completed[selection.clients].tolist() == [1, 0, 1]
        assert selector.state.times[selection.clients].tolist() == [1, 1, 1]

    @pytest.mark.parametrize(
        ("more", "reason"),
        [
            ({"latency_seconds": [1.0, np.nan, 2.0]}, "latency not finite and positive"),
            ({"latency_seconds": [1.0, -1.0, 2.0]}, "latency not finite and positive"),
            ({"latency_seconds": [1.0, "soon", 2.0]}, "latency not finite and positive"),
            ({"signals": {"loss": [1.0, np.inf, 2.0]}}, "signal 'loss' not finite"),
        ],
    )
    def test_a_bad_row_closes_its_own_ticket(self, more: dict[str, Any], reason: str) -> None:
        selector = recorder()
        selection = selector.select(count=3)
        report = selector.observe(answer(selection, **more))
        assert dict(report.refused) == dict(selector.refused) == {reason: 1}
        assert report.accepted == 2
        assert report.not_completed.tolist() == [selection.clients[1]]
        assert selector.state.completed[selection.clients].tolist() == [1, 0, 1]
        assert selector.state.times[selection.clients].tolist() == [1, 1, 1]
        assert len(selector.tickets) == 0

    def test_copies_count_once_and_contradictions_not_at_all(self) -> None:
        selector = recorder()
        selection = selector.select(count=3)
        seconds = np.array([1.0, 1.0, 2.0, 3.0, 4.0])
        report = selector.observe(answer(selection, rows=[0, 0, 1, 2, 2], latency_seconds=seconds))
        assert dict(report.refused) == {"duplicate": 1, "contradictory duplicates": 2}
        assert report.accepted == 2
        assert report.not_completed.tolist() == [selection.clients[2]]
        assert selector.state.seconds[selection.clients].tolist() == [1.0, 2.0, 0.0]
        assert selector.state.times[selection.clients].tolist() == [1, 1, 1]

    def test_a_bad_row_of_one_selection_does_not_harm_another(self) -> None:
        selector = recorder()
        one, two = selector.select(count=2), selector.select(count=2)
        seconds = np.array([1.0, np.nan, 2.0, 3.0])
        report = selector.observe(answer(one, two, latency_seconds=seconds))
        assert report.not_completed.tolist() == [one.clients[1]]
        assert selector.state.completed[two.clients].tolist() == [1, 1]

    def test_only_sketches_that_are_wanted_must_fit(self) -> None:
        selector = recorder()
        selector.observe(answer(selector.select(count=2), sketches=np.ones((7, 1, 4))))
        wanting = Selector(SketchReader(), Problem(num_clients=12, cohort_size=4))
        size = wanting.policy.wanted_sketch_size
        one, two = wanting.select(count=2), wanting.select(count=1)
        with pytest.raises(FeedbackError):
            wanting.observe(answer(one, two, sketches=np.ones((3, size + 1))))
        sketches = np.ones((3, size))
        sketches[1, 0] = np.nan
        report = wanting.observe(answer(one, two, sketches=sketches))
        assert dict(report.refused) == {"sketch not finite": 1}
        assert report.not_completed.tolist() == [one.clients[1]]


class TestStrayAnswers:
    """Each is counted, and none is learned from."""

    def test_to_a_ticket_that_nobody_gave_out(self) -> None:
        selector = recorder()
        selector.select(count=2)
        before = state_of(selector)
        for number in (2, 99, -1, -2, 10**15):
            stray = Feedback(
                tickets=np.array([number]), clients=np.array([0]), latency_seconds=np.ones(1)
            )
            assert dict(selector.observe(stray).refused) == {UNKNOWN: 1}
        assert selector.refused == {UNKNOWN: 5}
        assert (state_of(selector), len(selector.tickets)) == (before, 2)
        assert dict(selector.give_up([7]).refused) == {UNKNOWN: 1}

    @pytest.mark.parametrize("given_up", [False, True])
    def test_to_a_ticket_of_another_client(self, given_up: bool) -> None:
        selector = recorder()
        selection = selector.select(count=2)
        if given_up:
            selector.give_up(numbers_of(selection))
        before = state_of(selector)
        swapped = Feedback(
            tickets=selection.tickets, clients=selection.clients[::-1], latency_seconds=np.ones(2)
        )
        assert dict(selector.observe(swapped).refused) == {OTHER: 2}
        for client in (-1, 12, 10**12):
            wrong = answer(selection, rows=[0])
            wrong = Feedback(
                tickets=wrong.tickets, clients=np.array([client]), latency_seconds=np.ones(1)
            )
            assert dict(selector.observe(wrong).refused) == {OTHER: 1}
        assert state_of(selector) == before
        told_right = selector.observe(answer(selection))
        assert dict(told_right.refused) == ({LATE: 2} if given_up else {})

    def test_to_a_ticket_that_was_answered(self) -> None:
        selector = recorder()
        one, two = selector.select(count=2), selector.select(count=1)
        selector.observe(answer(one))
        before = state_of(selector)
        for _ in range(2):
            assert dict(selector.observe(answer(one)).refused) == {AGAIN: 2}
        assert dict(selector.give_up(numbers_of(one)).refused) == {AGAIN: 2}
        assert state_of(selector) == before
        np.testing.assert_array_equal(selector.tickets.numbers, numbers_of(two))

    def test_after_the_ticket_was_given_up(self) -> None:
        selector = recorder()
        selection = selector.select(count=2)
        report = selector.give_up(numbers_of(selection))
        assert report.not_completed.tolist() == selection.clients.tolist()
        assert (report.accepted, dict(report.refused)) == (0, {})
        assert selector.state.times[selection.clients].tolist() == [1, 1]
        before = state_of(selector)
        twice = selector.observe(answer(selection, rows=[0, 0, 1]))
        assert dict(twice.refused) == {LATE: 2, AGAIN: 1}
        assert dict(selector.observe(answer(selection)).refused) == {AGAIN: 2}
        assert state_of(selector) == before
        assert selector.refused == {LATE: 2, AGAIN: 3}

    def test_giving_up_twice_does_not_hide_that_an_answer_is_late(self) -> None:
        selector = recorder()
        selection = selector.select(count=2)
        selector.give_up(numbers_of(selection))
        assert dict(selector.give_up(numbers_of(selection)).refused) == {AGAIN: 2}
        assert dict(selector.observe(answer(selection)).refused) == {LATE: 2}

    def test_a_late_answer_does_not_close_the_client_s_next_ticket(self) -> None:
        selector = recorder(1, cohort_size=1)
        first = selector.select(count=1)
        selector.give_up(numbers_of(first))
        second = selector.select(count=1)
        before = state_of(selector)
        assert dict(selector.observe(answer(first)).refused) == {LATE: 1}
        assert (state_of(selector), len(selector.tickets)) == (before, 1)
        assert selector.observe(answer(second)).accepted == 1
        assert selector.state.completed.tolist() == [1]

    def test_late_answers_of_a_client_that_was_given_up_twice(self) -> None:
        selector = recorder(1, cohort_size=1)
        selections = [selector.select(count=1)]
        selector.give_up(numbers_of(selections[0]))
        selections.append(selector.select(count=1))
        selector.give_up(numbers_of(selections[1]))
        selector = Selector.from_bytes(selector.to_bytes(), selector.policy, source="s")
        for selection in selections:
            assert dict(selector.observe(answer(selection)).refused) == {LATE: 1}
            assert dict(selector.observe(answer(selection)).refused) == {AGAIN: 1}

    def test_strays_and_answers_in_one_message(self) -> None:
        selector = recorder(20)
        late, done, here = (selector.select(count=1) for _ in range(3))
        selector.give_up(numbers_of(late))
        selector.observe(answer(done))
        stray = Selection(round=1, clients=np.array([5]), tickets=np.array([50]))
        report = selector.observe(answer(stray, late, here, done))
        assert dict(report.refused) == {UNKNOWN: 1, LATE: 1, AGAIN: 1}
        assert (report.accepted, len(selector.tickets)) == (1, 0)
        assert selector.state.times.sum() == 3


class TestMessagesThatCannotBeRead:
    @pytest.mark.parametrize(
        "wrong",
        [
            {"tickets": np.array([0])},
            {"tickets": np.array([[0, 1]])},
            {"tickets": np.array([0.0, 1.0])},
            {"tickets": [True, False]},
            {"tickets": ["0", "1"]},
            {"tickets": [[0], [1, 2]]},
            {"tickets": 0},
            {"clients": np.array([0.0, 1.0])},
            {"clients": [["a"], ["b"]]},
            {"clients": ["a", "b"]},
            {"clients": [np.nan, np.nan]},
            {"clients": [[1], [2, 3]]},
            {"clients": np.array([[0, 1]])},
            {"clients": 3},
            {"latency_seconds": np.ones(3)},
            {"latency_seconds": 1.0},
            {"completed": np.array([1, 0])},
            {"completed": np.array([True])},
            {"signals": {"loss": np.ones(1)}},
            {"signals": [1.0, 2.0]},
            {"used": np.array([1.0, 0.0])},
            {"round_seconds": -1.0},
        ],
    )
    @pytest.mark.parametrize("beside", ["nothing", "an open ticket", "a late answer"])
    def test_change_nothing(self, wrong: dict[str, Any], beside: str) -> None:
        selector = recorder()
        selection = selector.select(count=2)
        if beside == "an open ticket":
            selector.select(count=1)
        if beside == "a late answer":
            selector.select(count=1)
            selector.give_up(numbers_of(selection)[:1])
        before, state = image_of(selector), state_of(selector)
        message = {"tickets": selection.tickets, "clients": selection.clients}
        columns: Any = {"latency_seconds": np.ones(2), **message, **wrong}
        with pytest.raises(FeedbackError):
            selector.observe(Feedback(**columns))
        assert (image_of(selector), state_of(selector)) == (before, state)
        assert len(selector.tickets) == (3 if beside == "an open ticket" else 2)

    @pytest.mark.parametrize("wrong", [{"latency_seconds": np.ones(2)}, {"completed": [3]}])
    def test_not_even_if_they_are_about_closed_tickets_alone(self, wrong: dict[str, Any]) -> None:
        selector = recorder()
        selection = selector.select(count=1)
        selector.give_up(numbers_of(selection))
        before = image_of(selector)
        with pytest.raises(FeedbackError):
            selector.observe(answer(selection, **wrong))
        assert image_of(selector) == before
        assert dict(selector.observe(answer(selection)).refused) == {LATE: 1}

    @pytest.mark.parametrize("tickets", [0, 1.5, [0.0], ["0"], [[0]], [[0], [1, 2]], None, [True]])
    def test_tickets_to_give_up_are_a_list_of_numbers(self, tickets: Any) -> None:
        selector = recorder()
        selector.select(count=2)
        before = image_of(selector)
        with pytest.raises(FeedbackError):
            selector.give_up(tickets)
        assert image_of(selector) == before

    def test_an_empty_message_is_no_fault(self) -> None:
        selector = recorder()
        selector.select(count=2)
        before = image_of(selector)
        nothing = Feedback(tickets=np.array([]), clients=np.array([]), latency_seconds=np.array([]))
        assert selector.observe(nothing).accepted == 0
        assert selector.give_up([]).not_completed.tolist() == []
        assert image_of(selector) == before


class TestGivingUp:
    def test_is_the_same_as_hearing_that_a_client_failed(self) -> None:
        for policy in POLICIES:
            one, two = selector_of(policy), selector_of(policy)
            for _ in range(5):
                selection = one.select(count=4)
                two.select(count=4)
                one.give_up(numbers_of(selection))
                nobody = np.zeros(4, dtype=np.bool_)
                two.observe(answer(selection, completed=nobody))
                assert state_of(one) == state_of(two), policy

    def test_part_of_a_selection(self) -> None:
        selector = recorder()
        selection = selector.select(count=3)
        report = selector.give_up([1, 1])
        assert report.not_completed.tolist() == [selection.clients[1]]
        assert selector.tickets.numbers.tolist() == [0, 2]
        selector.observe(answer(selection, rows=[2, 0]))
        assert selector.state.completed[selection.clients].tolist() == [1, 0, 1]
        assert selector.state.times.sum() == 3

    def test_a_client_may_be_asked_again_at_once(self) -> None:
        selector = recorder(2, cohort_size=2)
        selection = selector.select(count=2)
        selector.give_up(numbers_of(selection)[:1])
        assert selector.select(count=2).clients.tolist() == [selection.clients[0]]
