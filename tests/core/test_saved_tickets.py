"""Selectors with open tickets, while clients join and from file to file."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.random import Generator
from tests.core.recording import (
    POLICIES,
    Recorder,
    answer,
    image_of,
    joined,
    numbers_of,
    recorder,
    selector_of,
    told,
)

from fedmuster import Feedback, Problem, Selector
from fedmuster.core.policy import Stateless
from fedmuster.core.records import RoundView, Selection
from fedmuster.core.tickets import LATE


@dataclass(frozen=True, kw_only=True, slots=True)
class Teller(Stateless):
    """Says as much of each selection as a policy may, and notes what comes back of it."""

    name: ClassVar[str] = "teller"
    heard: ClassVar[list[dict[str, Any]]] = []

    def select(self, state: Any, view: RoundView, rng: Generator) -> Selection:
        there = np.flatnonzero(view.available)[: view.num_to_choose]
        assert view.features is not None
        size = len(there)
        return Selection(
            round=view.round,
            clients=there,
            inclusion=np.full(size, 0.5),
            features=view.features[there],
            order=np.arange(size),
            quota=1,
            preferred=np.ones(size, dtype=np.bool_),
            deadline_seconds=30.0,
        )

    def observe(self, state: Any, selection: Selection, feedback: Feedback) -> None:
        names = ("round", "clients", "tickets", "inclusion", "features", "order", "quota")
        noted = {name: getattr(selection, name) for name in (*names, "preferred")}
        noted = {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in noted.items()}
        self.heard.append({**noted, "deadline_seconds": selection.deadline_seconds})


class TestJoining:
    @pytest.mark.parametrize("policy", ["bsfl", "oort", "refl", "cs-ucb-q"])
    def test_while_tickets_are_open(self, policy: str) -> None:
        problem = Problem(num_clients=4, cohort_size=2)
        selector: Selector[Any] = Selector(policy, problem, seed=1)
        old, lost = selector.select(count=2), selector.select(count=1)
        selector.give_up(numbers_of(lost))
        assert selector.join(3).tolist() == [4, 5, 6]
        assert selector.tickets.busy.tolist() == np.isin(np.arange(7), old.clients).tolist()
        new = selector.select(count=7)
        assert sorted([*old.clients.tolist(), *new.clients.tolist()]) == list(range(7))
        assert selector.observe(told(old)).accepted == 2
        assert dict(selector.observe(told(lost)).refused) == {LATE: 1}
        assert selector.observe(told(new)).accepted == 5

    def test_those_who_join_owe_and_are_owed_nothing_of_earlier_rounds(self) -> None:
        selector = recorder(6, cohort_size=2)
        for _ in range(3):
            selector.select(count=2)
        assert selector.round == 3
        selector.join(1)
        assert selector.problem.first_round == 3


class TestSaveAndRestore:
    @pytest.mark.parametrize("policy", POLICIES)
    @pytest.mark.parametrize("moment", ["open", "given up", "mid-round", "nothing open", "joined"])
    def test_later_choices_are_the_same_bits(self, policy: str, moment: str) -> None:
        selector = selector_of(policy)
        for _ in range(4):
            selector.observe(told(selector.select(count=3)))
        opened = [selector.select(count=n) for n in (2, 1, 4)]
        if moment != "open":
            selector.observe(joined([told(opened[2])], np.array([1, 3])))
            selector.give_up(numbers_of(opened[2])[:1])
        if moment == "mid-round":
            opened.append(selector.select(count=1))
        if moment == "nothing open":
            selector.give_up(selector.tickets.numbers)
        if moment == "joined":
            selector.join(2, num_samples=np.array([2, 3]), expected_seconds=np.array([1.0, 2.0]))
        restored: Selector[Any] = Selector.from_bytes(selector.to_bytes(), policy, source="here")
        assert image_of(restored) == image_of(selector)
        np.testing.assert_array_equal(restored.tickets.busy, selector.tickets.busy)
        for turn in range(12):
            message = told(opened[turn % len(opened)])
            reports = [one.observe(message) for one in (selector, restored)]
            assert reports[0].refused == reports[1].refused
            assert reports[0].not_completed.tolist() == reports[1].not_completed.tolist()
            new = [one.select(count=1 + turn % 3) for one in (selector, restored)]
            assert new[0].clients.tolist() == new[1].clients.tolist()
            assert (new[0].round, numbers_of(new[0]).tolist()) == (
                new[1].round,
                numbers_of(new[1]).tolist(),
            )
            opened.append(new[0])
            assert image_of(restored) == image_of(selector)

    def test_what_each_selection_said_of_its_clients_is_kept(self) -> None:
        """The restored policy hears of the same contexts, inclusions and deadlines."""
        Teller.heard.clear()
        problem = Problem(num_clients=6, cohort_size=2, num_features=2)
        selector: Selector[Any] = Selector(Teller(), problem)
        features = np.arange(12.0).reshape(6, 2)
        selections = [selector.select(count=n, features=features + n) for n in (3, 1)]
        restored = Selector.from_bytes(selector.to_bytes(), Teller(), source="here")
        for one in (selector, restored):
            for selection in selections:
                one.observe(answer(selection, rows=[0]))
            one.observe(answer(selections[0], rows=[2, 1]))
        half = len(Teller.heard) // 2
        assert half == 3
        assert Teller.heard[:half] == Teller.heard[half:]
        first = Teller.heard[0]
        assert first["deadline_seconds"] == 30.0
        assert first["inclusion"] == [0.5]
        assert first["features"] == [(features[0] + 3).tolist()]
        assert first["quota"] is first["order"] is first["preferred"] is None

    def test_a_choice_of_nobody_before_the_first_ticket(self) -> None:
        selector = recorder(12, cohort_size=6)
        selector.select(count=1, available=np.zeros(12, dtype=np.bool_))
        restored = Selector.from_bytes(selector.to_bytes(), Recorder(), source="here")
        assert restored.decisions == selector.decisions == 1
        for _ in range(3):
            one, two = selector.select(count=2), restored.select(count=2)
            assert one.clients.tolist() == two.clients.tolist()

    def test_a_selector_that_gave_out_no_ticket_saves_nothing_of_them(self) -> None:
        selector = recorder()
        cohort = selector.select()
        restored = Selector.from_bytes(selector.to_bytes(), Recorder(), source="here")
        assert restored.decisions == 1
        assert len(restored.tickets) == 0
        seconds = np.ones(len(cohort.clients))
        restored.observe(Feedback(round=1, clients=cohort.clients, latency_seconds=seconds))
        again = Selector.from_bytes(restored.to_bytes(), Recorder(), source="here")
        assert (again.decisions, again.round) == (1, 2)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {
            "edges": np.array([1, 0]),
            "inclusion": np.array([0.5, 0.25]),
            "features": np.eye(2),
            "order": np.array([1, 0]),
            "quota": 1,
            "preferred": np.array([True, False]),
            "deadline_seconds": 30.5,
            "tickets": np.array([4, 5]),
        },
    ],
)
def test_a_selection_becomes_arrays_and_comes_back(more: dict[str, Any]) -> None:
    selection = Selection(round=3, clients=np.array([2, 7]), **more)
    assert selection.arrays().keys() == {"round", "clients", *more}
    again = Selection.of_arrays(selection.arrays())
    for item in fields(Selection):
        one, two = getattr(selection, item.name), getattr(again, item.name)
        assert type(one) is type(two)
        np.testing.assert_array_equal(one, two)
