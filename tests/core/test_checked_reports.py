"""A selector that checks reports: times, signals, losses asked for, updates; rounds and tickets."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedmuster import Problem, Selector
from fedmuster.core.errors import FeedbackError
from fedmuster.core.records import Feedback, FloatArray, Selection
from fedmuster.core.trust.update_check import SKETCH_SIZE
from fedmuster.policies.oort import Oort
from fedmuster.policies.power_of_choice import PowerOfChoice
from fedmuster.policies.random import Random

K, M = 40, 10
TRUE = np.linspace(1.0, 4.0, K)


@dataclass(frozen=True, kw_only=True, slots=True)
class Listening(Random):
    """Random choice that keeps what it hears."""

    name: ClassVar[str] = "listening"
    heard: ClassVar[list[Feedback]] = []

    def observe(self, state: Any, selection: Selection, feedback: Feedback) -> None:
        """Keep it."""
        self.heard.append(feedback)


def selector(policy: Any = None, *, check: bool = True) -> Selector[Any]:
    Listening.heard.clear()
    return Selector(
        Listening() if policy is None else policy,
        Problem(num_clients=K, cohort_size=M),
        seed=2,
        check_reports=check,
    )


def answers(asked: Selection, liars: Any, **more: Any) -> Feedback:
    """The liars report a tenth of their time and ten times their loss."""
    clients = asked.clients
    lying = np.isin(clients, liars)
    loss = 1.0 + 0.1 * np.sin(clients + asked.round)
    return Feedback(
        round=0 if asked.tickets is not None else asked.round,
        clients=clients,
        tickets=asked.tickets,
        latency_seconds=TRUE[clients] + 0.1,
        reported_seconds=TRUE[clients] * np.where(lying, 0.1, 1.0),
        signals={
            "loss": loss * np.where(lying, 10.0, 1.0),
            "compute_seconds": 0.5 * TRUE[clients] * np.where(lying, 0.1, 1.0),
            "staleness": np.full(len(clients), 50.0),
        },
        **more,
    )


def last_of(liars: Any, *, rounds: int = 20, check: bool = True) -> tuple[Feedback, Any]:
    asking = selector(check=check)
    for _ in range(rounds):
        asked = asking.select()
        asking.observe(answers(asked, liars))
    heard = Listening.heard[-1]
    return heard, np.isin(heard.clients, liars)


def test_a_tenth_of_the_time_and_ten_times_the_loss_are_not_believed() -> None:
    heard, lying = last_of(range(8))
    assert lying.any()
    true = TRUE[heard.clients]
    assert heard.latency_seconds == pytest.approx(true, abs=0.2)
    assert heard.signals["compute_seconds"] == pytest.approx(0.5 * true, abs=0.2)
    assert heard.signals["loss"].max() < 1.2
    assert (heard.signals["staleness"] == 50.0).all()  # which the server measures itself


def test_honest_reports_count_as_they_are() -> None:
    heard, _ = last_of(())
    assert_array_equal(heard.latency_seconds, TRUE[heard.clients])
    assert_array_equal(heard.signals["loss"], 1.0 + 0.1 * np.sin(heard.clients + heard.round))


def test_without_the_check_all_is_as_it_came() -> None:
    heard, lying = last_of(range(8), check=False)
    assert_array_equal(heard.latency_seconds, TRUE[heard.clients] + 0.1)
    assert heard.signals["loss"][lying].min() > 5.0


def test_who_reports_no_time_is_timed_by_the_server() -> None:
    asking = selector()
    asked = asking.select()
    asking.observe(Feedback(round=1, clients=asked.clients, latency_seconds=TRUE[asked.clients]))
    assert_array_equal(Listening.heard[-1].latency_seconds, TRUE[asked.clients])


def test_without_rounds_too() -> None:
    asking = selector()
    open_tickets = [asking.select(count=1) for _ in range(5)]
    for _ in range(200):
        asking.observe(answers(open_tickets.pop(0), range(8)))
        open_tickets.append(asking.select(count=1))
    late = Listening.heard[-100:]
    assert max(float(heard.signals["loss"][0]) for heard in late) < 1.2
    assert all(
        heard.latency_seconds[0] == pytest.approx(TRUE[heard.clients[0]], abs=0.3) for heard in late
    )


def test_losses_that_are_asked_for_are_checked() -> None:
    """Power-of-choice asks all 40, and would choose the 8 that claim ten times the loss."""

    def claimed(clients: Any, *, batch_size: int | None = None) -> FloatArray:
        return np.asarray(np.where(np.isin(clients, range(8)), 10.0, 1.0) * (1.0 + 0.01 * clients))

    policy = PowerOfChoice(variant="pow-d", num_candidates=K)
    for check, most in ((False, 8), (True, 2)):
        asked = selector(policy, check=check).select(ask_loss=claimed)
        assert np.count_nonzero(asked.clients < 8) <= most
        if not check:
            assert np.count_nonzero(asked.clients < 8) == 8


def flipping(asked: Selection, rng: np.random.Generator, liars: Any) -> FloatArray:
    rows = 1.0 + rng.standard_normal((len(asked.clients), SKETCH_SIZE))
    rows[np.isin(asked.clients, liars)] *= -1
    return np.asarray(rows)


def test_updates_against_all_others_are_distrusted_and_gain_nothing() -> None:
    asking, rng, liars = selector(), np.random.default_rng(0), np.arange(8)
    assert asking.wanted_sketch_size == SKETCH_SIZE
    for _ in range(20):
        asked = asking.select()
        report = asking.observe(answers(asked, (), sketches=flipping(asked, rng, liars)))
    lying = np.isin(asked.clients, liars)
    assert_array_equal(report.distrusted, asked.clients[lying])
    assert len(report.not_completed) == 0
    heard = Listening.heard[-1]
    assert heard.answered.all()
    assert_array_equal(heard.entered, ~lying)
    assert heard.signals["loss"][lying].max() <= np.median(heard.signals["loss"])
    assert heard.sketches is None  # the policy did not ask for them


def test_a_selector_that_checks_nothing_wants_no_sketches() -> None:
    assert selector(check=False).wanted_sketch_size == 0


def test_saved_and_restored_it_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    whole, liars = selector(Oort()), np.arange(8)

    def play(asking: Selector[Any], rounds: range) -> list[Any]:
        asked = []
        for number in rounds:
            cohort = asking.select()
            asked.append(cohort.clients)
            rng = np.random.default_rng(number)
            asking.observe(answers(cohort, liars, sketches=flipping(cohort, rng, liars)))
        return asked

    play(whole, range(10))
    whole.save(tmp_path / "selector.npz")
    restored = Selector.restore(tmp_path / "selector.npz", Oort())
    for one, other in zip(play(whole, range(10, 20)), play(restored, range(10, 20)), strict=True):
        assert_array_equal(one, other)
    assert whole.to_bytes() == restored.to_bytes()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0, "x"])
def test_a_report_that_is_no_time_counts_as_none(bad: Any) -> None:
    asking = selector()
    asked = asking.select()
    reported: Any = [1.0] * M
    reported[3] = bad
    report = asking.observe(
        Feedback(
            round=1,
            clients=asked.clients,
            latency_seconds=np.full(M, 1.0),
            reported_seconds=reported,
        )
    )
    assert report.accepted == M
    assert (Listening.heard[-1].latency_seconds == 1.0).all()


def test_a_column_of_another_length_is_refused_whole() -> None:
    asking = selector()
    asked = asking.select()
    with pytest.raises(FeedbackError):
        asking.observe(
            Feedback(
                round=1,
                clients=asked.clients,
                latency_seconds=np.ones(M),
                reported_seconds=np.ones(M - 1),
            )
        )
    assert asking.pending is not None
