"""What the assignment problem takes, and how it counts."""

from typing import Any

import numpy as np
import pytest

from fedmuster.core.edges import EdgeView
from fedmuster.core.errors import DataError
from fedmuster.core.records import RoundView
from fedmuster.solvers.assignment import AssignmentProblem

GOOD: dict[str, Any] = {
    "clients": np.array([0, 0, 1]),
    "edges": np.array([0, 1, 1]),
    "value": np.array([0.9, 0.8, 0.5]),
    "cost": np.array([0.1, 0.2, 0.1]),
    "budget": np.array([0.1, 0.3]),
    "size": 2,
}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"clients": np.array([0, 0, -1])}, "clients holds -1 at position 2"),
        ({"clients": np.array([0.0, 0.5, 1.0])}, "clients is float64"),
        ({"edges": np.array([0, 1, 2])}, r"edges holds 2 at position 2, expected 0 … 1"),
        ({"value": np.array([0.9, np.nan, 0.5])}, "value holds nan at position 1"),
        ({"value": np.array([0.9, 0.8, -0.5])}, "value holds -0.5"),
        ({"cost": np.array([0.1, np.inf, 0.1])}, "cost holds inf"),
        ({"cost": np.array([[0.1, 0.2, 0.1]])}, r"cost is float64\(1, 3\)"),
        ({"cost": np.array([0.1, 0.2])}, "same length"),
        ({"budget": np.array([0.1, -1.0])}, "budget holds -1.0"),
        ({"budget": np.array([0.1, np.nan])}, "budget holds nan"),
        ({"size": -1}, "size is -1"),
        ({"size": 1.5}, "size is 1.5"),
        ({"value": [[1.0], [1.0, 2.0], []]}, "value must hold numbers"),
    ],
)
def test_refusals(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        AssignmentProblem(**GOOD | change)


def test_sums_are_rounded_once() -> None:
    tenths = {name: np.zeros(10, dtype=np.int64) for name in ("clients", "edges")}
    problem = AssignmentProblem(
        **GOOD | tenths | {"value": np.full(10, 0.1), "cost": np.full(10, 0.1)}
    )
    everything = np.arange(10)
    assert sum(problem.cost.tolist()) < 1.0 == problem.total(everything)
    assert problem.spent(everything).tolist() == [1.0, 0.0]


def test_fits_is_exact() -> None:
    problem = AssignmentProblem(**GOOD)
    assert problem.fits(np.array([0, 2]))
    assert not problem.fits(np.array([0, 1]))  # the same client
    others = AssignmentProblem(**GOOD | {"clients": np.array([0, 1, 2])})
    assert not others.fits(np.array([1, 2]))  # 0.2 + 0.1 is more than 0.3
    assert AssignmentProblem(
        **GOOD | {"clients": np.array([0, 1, 2]), "budget": np.array([0.1, np.nextafter(0.3, 1)])}
    ).fits(np.array([1, 2]))
    assert not AssignmentProblem(**GOOD | {"size": 1}).fits(np.array([0, 2]))
    assert problem.fits(np.empty(0, dtype=np.int64))


def test_of_a_round() -> None:
    """Available, covered, affordable by itself, and among those asked for."""
    view = RoundView(
        round=1,
        cohort_size=3,
        available=np.array([True, True, False, True]),
        edges=EdgeView(
            coverage=np.array([[True, False], [True, True], [True, True], [True, True]]),
            cost=np.array([1.0, 2.0, 1.0, 3.0]),
            budget=np.array([2.0, np.inf]),
        ),
    )
    value = np.arange(8.0).reshape(4, 2)
    problem = AssignmentProblem.of(view, value)
    assert problem.clients.tolist() == [0, 1, 1, 3]
    assert problem.edges.tolist() == [0, 0, 1, 1]
    assert problem.value.tolist() == [0.0, 2.0, 3.0, 7.0]
    assert problem.cost.tolist() == [1.0, 2.0, 2.0, 3.0]
    assert problem.budget.tolist() == [2.0, np.inf]
    assert problem.size == 3
    assert AssignmentProblem.of(view, value, among=value > 2).value.tolist() == [3.0, 7.0]
    with pytest.raises(DataError, match="4"):
        AssignmentProblem.of(view, value[:, 0])


def test_of_flat_federated_learning() -> None:
    view = RoundView(round=1, cohort_size=2, available=np.array([True, False, True]))
    problem = AssignmentProblem.of(view, np.array([[0.5], [0.6], [0.7]]))
    assert problem.clients.tolist() == [0, 2]
    assert problem.num_edges == 1
    assert problem.fits(np.array([0, 1]))
