"""X of Eq. 7: who answered, and in time."""

import numpy as np

from fedmuster.bandits.utility import participated
from fedmuster.core.feedback import clean
from fedmuster.core.records import Feedback, Selection

CLIENTS = np.array([2, 5, 7, 8])
SECONDS = np.array([1.0, 2.0, 9.0, 3.0])


def test_without_a_word_on_time_whoever_answered_took_part() -> None:
    everyone = Feedback(round=1, clients=CLIENTS, latency_seconds=SECONDS)
    assert participated(everyone).tolist() == [True] * 4
    done = np.array([True, False, True, False])
    some = Feedback(round=1, clients=CLIENTS, latency_seconds=SECONDS, completed=done)
    assert participated(some).tolist() == done.tolist()


def test_who_was_waited_for_beyond_the_deadline_did_not() -> None:
    """Client 7 was the Z-th fastest and late, client 8 never answered whatever its signal says."""
    feedback = Feedback(
        round=1,
        clients=CLIENTS,
        latency_seconds=SECONDS,
        completed=np.array([True, True, True, False]),
        signals={"in_time": np.array([1.0, 1.0, 0.0, 1.0])},
    )
    assert participated(feedback).tolist() == [True, True, False, False]


def test_after_the_selector_has_cleaned_it() -> None:
    """Of clients 5 and 8 nothing was heard: their signals are NaN, and they did not take part."""
    feedback = Feedback(
        round=3,
        clients=np.array([7, 2]),
        latency_seconds=np.array([9.0, 1.0]),
        signals={"in_time": np.array([0.0, 1.0])},
    )
    cleaned, _ = clean(feedback, Selection(round=3, clients=CLIENTS))
    assert participated(cleaned).tolist() == [True, False, False, False]
    assert participated(cleaned).dtype == np.bool_
