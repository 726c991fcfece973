"""A selector without rounds: clients are asked while others are out, answers come in any order."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.random import Generator
from tests.core.recording import (
    POLICIES,
    answer,
    image_of,
    numbers_of,
    recorder,
    selector_of,
    state_of,
    told,
)

from fedmuster import SAFA, AllClients, Feedback, Problem, Random, Selector
from fedmuster.core.errors import CallOrderError, DataError, PolicyError
from fedmuster.core.records import RoundView, Selection
from fedmuster.core.tickets import LATE
from fedmuster.solvers.top_k import nobody


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawer(Random):
    """Chooses at random, and notes a number of the stream that it was given."""

    name: ClassVar[str] = "drawer"
    drawn: ClassVar[list[float]] = []

    def select(self, state: Any, view: RoundView, rng: Generator) -> Selection:
        self.drawn.append(float(rng.random()))
        return Random.select(self, state, view, rng)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shy(Drawer):
    """Chooses nobody in the first round."""

    name: ClassVar[str] = "shy"
    cohort_rule: ClassVar[Any] = "at most"

    def select(self, state: Any, view: RoundView, rng: Generator) -> Selection:
        chosen = Random.select(self, state, view, rng)
        return nobody(view) if view.round == 1 else chosen


class TestAsking:
    def test_a_choice_of_nobody_ends_its_round_unless_nobody_is_there(self) -> None:
        selector = Selector(Shy(), Problem(num_clients=6, cohort_size=3), seed=1)
        for _ in range(3):
            assert selector.select(count=1, available=np.zeros(6, dtype=np.bool_)).round == 1
        assert len(selector.select(count=1).clients) == 0
        chosen = selector.select(count=1)
        assert (chosen.round, len(chosen.clients)) == (2, 1)
        assert selector.select(count=1).round == 2

    def test_a_client_with_an_open_ticket_is_not_chosen(self) -> None:
        selector = recorder(12)
        chosen = [selector.select(count=5) for _ in range(4)]
        assert [len(selection.clients) for selection in chosen] == [5, 5, 2, 0]
        assert sorted(np.concatenate([s.clients for s in chosen]).tolist()) == list(range(12))
        assert selector.tickets.busy.all()
        assert np.concatenate([numbers_of(s) for s in chosen]).tolist() == list(range(12))
        selector.observe(answer(chosen[1]))
        np.testing.assert_array_equal(np.flatnonzero(~selector.tickets.busy), chosen[1].clients)
        again = selector.select(count=9)
        np.testing.assert_array_equal(again.clients, chosen[1].clients)
        assert numbers_of(again).tolist() == [12, 13, 14, 15, 16]

    def test_a_client_must_be_idle_and_available(self) -> None:
        selector = recorder(6)
        first = selector.select(count=2, available=np.arange(6) < 3)
        second = selector.select(count=6, available=np.arange(6) < 4)
        assert sorted([*first.clients.tolist(), *second.clients.tolist()]) == [0, 1, 2, 3]

    @pytest.mark.parametrize("policy", POLICIES)
    def test_no_policy_chooses_a_busy_client(self, policy: str) -> None:
        selector = selector_of(policy)
        opened = [selector.select(count=3) for _ in range(4)]
        for turn in range(12):
            selector.observe(told(opened.pop(turn % len(opened))))
            busy = selector.tickets.busy.copy()
            opened.append(selector.select(count=3))
            assert not busy[opened[-1].clients].any()
            assert selector.tickets.busy.sum() == len(selector.tickets) == 12

    @pytest.mark.parametrize("count", [0, -1, 1.0, 2.5, True, "2", np.array([1]), np.float64(2)])
    def test_a_count_that_is_no_number_of_clients(self, count: Any) -> None:
        selector = recorder()
        selector.select(count=1)
        before = image_of(selector)
        with pytest.raises(DataError):
            selector.select(count=count)
        assert image_of(selector) == before

    def test_a_count_is_the_cohort_size(self) -> None:
        with pytest.raises(DataError):
            recorder().select(count=2, cohort_size=2)
        three: Any = np.int64(3)
        assert len(recorder().select(count=three).clients) == 3

    @pytest.mark.parametrize("policy", [SAFA(), AllClients()])
    def test_policies_that_need_rounds_say_so(self, policy: Any) -> None:
        selector = Selector(policy, Problem(num_clients=6, cohort_size=2))
        with pytest.raises(PolicyError):
            selector.select(count=2)
        assert len(selector.select().clients) > 0

    def test_a_choice_that_fails_changes_nothing(self) -> None:
        selector = recorder(12, cohort_size=2)
        selector.select(count=2)  # the next choice begins another round
        before = image_of(selector)
        for _ in range(2):
            with pytest.raises(DataError):
                selector.select(count=1, available=np.ones(3, dtype=np.bool_))
        assert image_of(selector) == before
        assert selector.select(count=1).round == 2


class TestOrderOfCalls:
    def test_no_round_begins_while_tickets_are_open(self) -> None:
        selector = recorder()
        selection = selector.select(count=2)
        with pytest.raises(CallOrderError):
            selector.select()
        selector.observe(answer(selection, rows=[0]))
        with pytest.raises(CallOrderError):
            selector.select()
        selector.give_up(selector.tickets.numbers)
        assert selector.select().round == 2

    def test_no_ticket_is_given_out_while_a_round_is_open(self) -> None:
        selector = recorder()
        cohort = selector.select()
        with pytest.raises(CallOrderError):
            selector.select(count=1)
        selector.observe(
            Feedback(round=1, clients=cohort.clients, latency_seconds=np.ones(len(cohort.clients)))
        )
        assert selector.select(count=1).round == 2

    def test_answers_without_tickets_belong_to_a_round(self) -> None:
        selector = recorder()
        selection = selector.select(count=2)
        with pytest.raises(CallOrderError):
            selector.observe(
                Feedback(round=1, clients=selection.clients, latency_seconds=np.ones(2))
            )
        assert len(selector.tickets) == 2

    def test_answers_to_tickets_do_not_close_a_round(self) -> None:
        selector = recorder()
        selection = selector.select(count=2)
        selector.give_up(numbers_of(selection))
        cohort, before = selector.select(), state_of(selector)
        report = selector.observe(answer(selection))
        assert dict(report.refused) == {LATE: 2}
        assert (selector.pending, selector.round, state_of(selector)) == (cohort, 2, before)


class TestRounds:
    def test_a_round_is_as_many_choices_as_a_cohort_has(self) -> None:
        selector = recorder(30, cohort_size=4)
        rounds = [selector.select(count=count).round for count in (3, 3, 1, 2, 1, 9, 1)]
        # asked in the round so far:          0, 3, 6 -> new, 1, 3, 4 -> new, 9 -> new
        assert rounds == [1, 1, 2, 2, 2, 3, 4]
        assert selector.round == 4

    def test_a_round_ends_when_nothing_is_open(self) -> None:
        selector = recorder(30, cohort_size=4)
        one, two = selector.select(count=1), selector.select(count=1)
        assert selector.observe(answer(two)).round == 1
        assert selector.round == 1
        selector.give_up(numbers_of(one))
        assert selector.round == 2
        assert selector.select(count=3).round == 2
        assert selector.select(count=1).round == 2

    def test_answers_that_close_nothing_end_no_round(self) -> None:
        selector = recorder()
        selection = selector.select(count=1)
        selector.observe(answer(selection))
        selector.observe(answer(selection))
        selector.give_up(numbers_of(selection))
        selector.give_up([])
        assert selector.round == 2

    def test_a_choice_of_nobody_is_no_part_of_a_round(self) -> None:
        selector = recorder(12, cohort_size=2)
        nobody = np.zeros(12, dtype=np.bool_)
        for _ in range(3):
            selection = selector.select(count=2, available=nobody)
            assert (selection.round, len(selection.clients)) == (1, 0)
            assert numbers_of(selection).tolist() == []
        assert selector.select(count=2).round == 1

    def test_policies_hear_in_which_round_an_answer_came(self) -> None:
        selector = recorder(30, cohort_size=2)
        slow = selector.select(count=2)
        for _ in range(3):
            selector.observe(answer(selector.select(count=2)))
        selector.observe(answer(slow, rows=[0]))
        selector.give_up(numbers_of(slow)[1:])
        assert selector.state.last_round[slow.clients].tolist() == [4, 4]

    def test_each_choice_has_randomness_of_its_own(self) -> None:
        Drawer.drawn.clear()
        problem = Problem(num_clients=30, cohort_size=4)
        selector: Selector[Any] = Selector(Drawer(), problem, seed=3)
        for _ in range(6):
            selector.select(count=2)  # three rounds
        selector.give_up(selector.tickets.numbers)
        selector.select()
        assert len(set(Drawer.drawn)) == len(Drawer.drawn) == 7
        other: Selector[Any] = Selector(Drawer(), problem, seed=4)
        other.select(count=2)
        assert len(set(Drawer.drawn)) == 8

    def test_decisions_count_choices(self) -> None:
        selector = recorder(12, cohort_size=2)
        assert selector.decisions == 0
        opened = [selector.select(count=1) for _ in range(3)]
        assert selector.decisions == 3
        for selection in opened:
            selector.observe(answer(selection))
        assert selector.decisions == 3
        selector.select()
        assert selector.decisions == 4
        with pytest.raises(CallOrderError):
            selector.select()
        assert selector.decisions == 4

    @pytest.mark.parametrize("policy", [p for p in POLICIES if p not in ("oort", "refl", "tifl")])
    def test_a_cohort_that_is_waited_for_is_a_round(self, policy: str) -> None:
        """The same choices and the same state, bit for bit; rounds and tickets may alternate.

        Oort, REFL and TiFL read the length of a round and its end, which tickets do not have.
        """
        rounds, tickets, both = (selector_of(policy) for _ in range(3))
        for turn in range(1, 9):
            cohort = rounds.select()
            heard = told(tickets.select(count=4))
            tickets.observe(heard)
            either = both.select() if turn % 3 == 0 else both.select(count=4)
            for selector, selection in ((rounds, cohort), (both, either)):
                assert selection.clients.tolist() == heard.clients.tolist()
                selector.observe(
                    Feedback(
                        round=turn if selection.tickets is None else 0,
                        tickets=selection.tickets,
                        clients=heard.clients,
                        latency_seconds=heard.latency_seconds,
                        signals=heard.signals,
                    )
                )
                assert state_of(selector) == state_of(tickets)
        assert rounds.round == tickets.round == both.round == 9
