"""Oort's statistical utility and FedSUV's, by hand."""

import math

import numpy as np
import pytest

from fedmuster.bandits.utility import gained_utility, statistical_utility
from fedmuster.core.records import Feedback

NAN = math.nan


def told(completed: list[bool] | None = None, **signals: list[float]) -> Feedback:
    return Feedback(
        round=3,
        clients=np.array([5, 2, 9]),
        latency_seconds=np.ones(3),
        completed=None if completed is None else np.array(completed),
        signals={name: np.array(values) for name, values in signals.items()},
    )


def test_utility_is_the_root_mean_square_times_the_size() -> None:
    """|B| sqrt(1/|B| sum loss²) of losses that are written out."""
    losses = [[1.0, 2.0, 2.0], [0.5], [3.0, 0.0]]
    feedback = told(
        root_mean_square_loss=[math.sqrt(sum(x * x for x in own) / len(own)) for own in losses],
        loss=[sum(own) / len(own) for own in losses],
        trained_samples=[3.0, 1.0, 2.0],
    )
    expected = [3 * math.sqrt(9 / 3), 0.5, 2 * math.sqrt(9 / 2)]
    assert statistical_utility(feedback, np.array(100)) == pytest.approx(expected)


def test_the_mean_loss_and_the_known_sizes_stand_in() -> None:
    feedback = told(loss=[1.0, 2.0, 3.0])
    assert statistical_utility(feedback, np.array([10, 20, 30])).tolist() == [10.0, 40.0, 90.0]
    assert statistical_utility(feedback, np.array(7)).tolist() == [7.0, 14.0, 21.0]
    assert statistical_utility(feedback, np.array(0.5)).tolist() == [0.5, 1.0, 1.5]


def test_who_did_not_answer_or_tell_has_none() -> None:
    silent = told([True, False, True], loss=[1.0, NAN, 2.0], trained_samples=[4.0, NAN, 5.0])
    np.testing.assert_array_equal(statistical_utility(silent, np.array(1)), [4.0, NAN, 10.0])
    np.testing.assert_array_equal(gained_utility(silent, np.array(1)), [4.0, NAN, 10.0])
    # What stands in a row that was not completed means nothing, even if it is a number.
    liar = told([True, False, True], loss=[1.0, 8.0, 2.0], utility=[0.1, 0.9, 0.2])
    np.testing.assert_array_equal(statistical_utility(liar, np.array(1)), [1.0, NAN, 2.0])
    np.testing.assert_array_equal(gained_utility(liar, np.array(1)), [0.1, NAN, 0.2])
    assert np.isnan(statistical_utility(told(), np.array(3))).all()
    assert np.isnan(gained_utility(told(), np.array(3))).all()


def test_gained_utility_is_equation_3() -> None:
    feedback = told(
        root_mean_square_loss=[2.0, 2.0, 2.0],
        trained_samples=[10.0, 10.0, 10.0],
        accuracy_gain=[0.5, 0.0, -0.25],
    )
    assert gained_utility(feedback, np.array(1)).tolist() == [10.0, 0.0, -5.0]
    without = told(root_mean_square_loss=[2.0, 3.0, 4.0])
    assert gained_utility(without, np.array(2)).tolist() == [4.0, 6.0, 8.0]


def test_a_utility_that_is_sent_is_taken_as_it_is() -> None:
    feedback = told(loss=[9.0, 9.0, 9.0], accuracy_gain=[1.0, 1.0, 1.0], utility=[0.2, 0.0, 0.7])
    assert gained_utility(feedback, np.array(50)).tolist() == [0.2, 0.0, 0.7]


def test_nobody_was_asked() -> None:
    nobody = Feedback(round=1, clients=np.empty(0, dtype=np.int64), latency_seconds=np.empty(0))
    assert statistical_utility(nobody, np.array(1)).shape == (0,)
    assert gained_utility(nobody, np.empty(0)).shape == (0,)
