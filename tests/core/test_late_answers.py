"""Late answers: checked as strictly as fresh ones, and each invitation counts once."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from numpy.random import Generator
from tests.core.recording import answer, recorder

from fedmuster import Exploring, Feedback, Problem, Selector
from fedmuster.core.errors import FeedbackError
from fedmuster.core.feedback import NOT_AWAITED
from fedmuster.core.policy import PolicyTraits
from fedmuster.core.records import FloatArray, IntArray, RoundView, Selection

STRANGER = f"late: {NOT_AWAITED}"
TIME = "late: latency not finite and positive"


@dataclass
class Told:
    """How often each client was late, or given up, and its times."""

    late: IntArray
    given_up: IntArray
    seconds: FloatArray


@dataclass(frozen=True, kw_only=True)
class Hears(PolicyTraits):
    """Asks at random and counts late answers."""

    name: ClassVar[str] = "hears"
    hears_late: ClassVar[bool] = True
    last: ClassVar[list[Feedback]] = []

    def init(self, problem: Problem) -> Told:
        late, given_up = np.zeros((2, problem.num_clients), dtype=np.int64)
        return Told(late, given_up, np.zeros(problem.num_clients))

    def select(self, state: Told, view: RoundView, rng: Generator) -> Selection:
        there = np.flatnonzero(view.available)
        return Selection.of(view, there, rng.permutation(len(there))[: view.num_to_choose])

    def observe(self, state: Told, selection: Selection, feedback: Feedback) -> None:
        self.last[:] = [feedback]
        late = feedback.late
        if late is None:
            return
        came = late.answered
        state.late[late.clients[came]] += 1
        state.given_up[late.clients[~came]] += 1
        state.seconds[late.clients[came]] += late.latency_seconds[came]
        assert np.isinf(late.latency_seconds[~came]).all()
        for values in late.signals.values():
            np.testing.assert_array_equal(np.isfinite(values), came)


def hearing(num_clients: int = 6, cohort_size: int = 6) -> Selector[Told]:
    return Selector(Hears(), Problem(num_clients=num_clients, cohort_size=cohort_size))


def said(clients: Any, seconds: Any = None, **more: Any) -> Feedback:
    """Late answers of these clients."""
    seconds = np.full(len(clients), 4.0) if seconds is None else seconds
    return Feedback(clients=np.asarray(clients), latency_seconds=seconds, **more)


def close(selector: Selector[Any], answered: Any, late: Any = None) -> Any:
    """Ask a cohort of which these clients answer; the report."""
    cohort = selector.select()
    clients = np.intersect1d(cohort.clients, np.asarray(answered, dtype=np.int64))
    return selector.observe(
        Feedback(
            round=cohort.round, clients=clients, latency_seconds=np.ones(len(clients)), late=late
        )
    )


def test_a_late_answer_counts_once_for_an_invitation() -> None:
    selector = hearing()
    close(selector, [0, 1, 2])
    report = close(selector, range(6), said([5, 3], [7.0, 5.0], signals={"loss": [0.5, 0.3]}))
    (heard,) = Hears.last
    assert heard.late is not None
    assert heard.late.clients.tolist() == [3, 5]
    assert heard.late.latency_seconds.tolist() == [5.0, 7.0]
    assert heard.late.signals["loss"].tolist() == [0.3, 0.5]
    assert (heard.late.round, heard.round) == (2, 2)
    assert (report.accepted, report.accepted_late, report.refused) == (6, 2, {})
    report = close(selector, range(6), said([3, 4]))
    assert (report.accepted_late, report.refused) == (1, {STRANGER: 1})
    assert selector.state.late.tolist() == [0, 0, 0, 1, 1, 1]


def test_an_invitation_to_the_round_that_is_open_is_not_late() -> None:
    selector = hearing()
    report = close(selector, [0, 1], said([2]))
    assert (report.accepted_late, report.refused) == (0, {STRANGER: 1})
    report = close(selector, range(6), said([2]))
    assert report.accepted_late == 1


def test_a_client_that_was_given_up_is_heard_of_without_numbers() -> None:
    selector = hearing()
    close(selector, [0, 1, 2, 3])
    gone = said(
        [4, 5], [np.nan, 3.0], completed=np.array([False, True]), signals={"loss": [0.7, 1.0]}
    )
    assert close(selector, range(6), gone).accepted_late == 2
    assert selector.state.given_up.tolist() == [0, 0, 0, 0, 1, 0]
    assert selector.state.seconds.tolist() == [0, 0, 0, 0, 0, 3.0]


@pytest.mark.parametrize(
    ("late", "reason", "count"),
    [
        (said([2], [np.nan]), TIME, 1),
        (said([2], [-1.0]), TIME, 1),
        (said([2], [0.0]), TIME, 1),
        (said([2], [np.inf]), TIME, 1),
        (said([2], ["long"]), TIME, 1),
        (said([2], signals={"loss": [np.nan]}), "late: signal 'loss' not finite", 1),
        (said([0]), STRANGER, 1),
        (said([-1, 99]), STRANGER, 2),
        (said([2, 2], [1.0, 2.0]), "late: contradictory duplicates", 2),
    ],
)
def test_a_bad_row_is_dropped_and_counted_and_the_client_still_awaited(
    late: Feedback, reason: str, count: int
) -> None:
    selector = hearing()
    close(selector, [0, 1])
    report = close(selector, range(6), late)
    assert report.refused == {reason: count} == dict(selector.refused)
    assert (report.accepted, report.accepted_late) == (6, 0)
    assert selector.state.late.sum() == 0
    assert close(selector, range(6), said([2])).accepted_late == 1


def test_copies_of_one_late_answer_count_once() -> None:
    selector = hearing()
    close(selector, [0, 1])
    report = close(selector, range(6), said([2, 3, 2]))
    assert (report.accepted_late, report.refused) == (2, {"late: duplicate": 1})


@pytest.mark.parametrize(
    "late",
    [
        5,
        "late",
        [1, 2],
        {"clients": [2]},
        said([2.5]),
        said([[2]]),
        said([2], [1.0, 2.0]),
        said([2], completed=np.array([1.0])),
        said([2], completed=np.array([True, False])),
        said([2], signals=[1.0]),
        said([2], signals={"loss": [1.0, 2.0]}),
        said([2], used=np.array(["no"])),
        said([2], round_seconds=-1.0),
        said([2], tickets=np.array([1])),
        said([2], late=said([2])),
    ],
)
def test_a_message_that_cannot_be_read_is_refused_whole(late: Any) -> None:
    selector = hearing()
    close(selector, [0, 1])
    before, cohort = selector.to_bytes(), selector.select()
    good: Any = Feedback(round=2, clients=cohort.clients, latency_seconds=np.ones(6), late=late)
    opened = selector.to_bytes()
    with pytest.raises(FeedbackError):
        selector.observe(good)
    assert selector.to_bytes() == opened != before
    assert selector.pending is cohort


def test_tickets_have_no_late_answers() -> None:
    selector = hearing()
    cohort = selector.select(count=3)
    with pytest.raises(FeedbackError):
        selector.observe(answer(cohort, late=said([2])))
    assert selector.observe(answer(cohort)).accepted == 3


def test_a_policy_that_does_not_hear_is_told_nothing_and_nothing_is_saved() -> None:
    plain, told = recorder(), recorder()
    for late in (None, said([1]), "whatever"):
        close(plain, [0, 1])
        report = close(told, [0, 1], late)
        assert (report.accepted_late, report.refused) == (0, {})
    assert told.unanswered is None
    assert told.to_bytes() == plain.to_bytes()


def test_the_policy_keeps_no_hold_on_what_was_sent() -> None:
    selector = hearing()
    close(selector, [0, 1])
    seconds = np.array([4.0, 5.0])
    close(selector, range(6), said([2, 3], seconds))
    seconds[:] = -1.0
    (heard,) = Hears.last
    assert heard.late is not None
    assert heard.late.latency_seconds.tolist() == [4.0, 5.0]


def test_a_policy_around_another_hears_what_that_one_wants() -> None:
    problem = Problem(num_clients=6, cohort_size=6)
    selector = Selector(Exploring(policy=Hears(), explore=0.1), problem)
    close(selector, [0, 1])
    assert close(selector, range(6), said([2])).accepted_late == 1
    assert selector.state.late.sum() == 1


def test_a_file_of_before_the_policy_heard_late_answers_is_restored(tmp_path: Path) -> None:
    selector = hearing()
    close(selector, [0, 1])
    selector.unanswered = None  # as an older version saved it
    selector.save(tmp_path / "old.npz")
    restored = Selector.restore(tmp_path / "old.npz", Hears())
    assert restored.unanswered is not None
    assert restored.unanswered.tolist() == [0] * 6


COHORT, MOST_CLIENTS = 3, 8


class WhoIsLate(RuleBasedStateMachine):
    """The model: how many invitations each client has not answered, in plain Python."""

    def __init__(self) -> None:
        super().__init__()
        self.selector = hearing(5, COHORT)
        self.clients = 5
        self.cohort: list[int] | None = None
        self.out: Counter[int] = Counter()
        self.invited: Counter[int] = Counter()
        self.fresh: Counter[int] = Counter()
        self.late: Counter[int] = Counter()
        self.given_up: Counter[int] = Counter()

    @rule(there=st.sets(st.integers(0, MOST_CLIENTS - 1)))
    def ask(self, there: set[int]) -> None:
        if self.cohort is None:
            available = np.isin(np.arange(self.clients), list(there))
            self.cohort = self.selector.select(available=available).clients.tolist()
            self.invited.update(self.cohort)

    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        """Some answer in time; and late ones are told, replayed or invented."""
        if self.cohort is None:
            return
        done = sorted(data.draw(st.sets(st.sampled_from(self.cohort)))) if self.cohort else []
        row = st.tuples(st.integers(-1, MOST_CLIENTS), st.booleans(), st.sampled_from([2.0, -2.0]))
        rows = data.draw(st.lists(row, max_size=6), label="late")
        refused: Counter[str] = Counter()
        kept: dict[int, list[tuple[bool, float]]] = {}
        for client, came, seconds in rows:
            if self.out[client] == 0:
                refused[STRANGER] += 1
            elif came and seconds < 0:
                refused[TIME] += 1
            else:
                kept.setdefault(client, []).append((came, seconds if came else 0.0))
        counted = {}
        for client, told in kept.items():
            alike = len(set(told)) == 1
            copies = len(told) - alike
            refused["late: duplicate" if alike else "late: contradictory duplicates"] += copies
            if alike:
                counted[client] = told[0]
        report = self.selector.observe(
            Feedback(
                round=self.selector.round,
                clients=np.array(done, dtype=np.int64),
                latency_seconds=np.ones(len(done)),
                late=said(
                    np.array([client for client, *_ in rows], dtype=np.int64),
                    np.array([seconds for *_, seconds in rows]),
                    completed=np.array([came for _, came, _ in rows], dtype=np.bool_),
                ),
            )
        )
        assert Counter(report.refused) == +refused
        assert (report.accepted, report.accepted_late) == (len(done), len(counted))
        self.fresh.update(done)
        for client, (came, _) in counted.items():
            (self.late if came else self.given_up)[client] += 1
            self.out[client] -= 1
        self.out.update(set(self.cohort) - set(done))
        self.cohort = None

    @rule()
    def join(self) -> None:
        if self.clients < MOST_CLIENTS:
            assert self.selector.join(1).tolist() == [self.clients]
            self.clients += 1

    @rule()
    def save_and_restore(self) -> None:
        image = self.selector.to_bytes()
        self.selector = Selector.from_bytes(image, Hears(), source="here")
        assert self.selector.to_bytes() == image

    @invariant()
    def the_model_is_right(self) -> None:
        counts, state, everyone = self.selector.unanswered, self.selector.state, range(self.clients)
        assert counts is not None
        assert counts.tolist() == [self.out[client] for client in everyone]
        assert state.late.tolist() == [self.late[client] for client in everyone]
        assert state.given_up.tolist() == [self.given_up[client] for client in everyone]
        heard = self.fresh + self.late + self.given_up + +self.out
        assert heard == self.invited - Counter(self.cohort or [])


TestWhoIsLate = WhoIsLate.TestCase
