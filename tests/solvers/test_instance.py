from typing import Any

import numpy as np
import pytest

from fedmuster.core.errors import DataError
from fedmuster.solvers.bottleneck import Exact
from fedmuster.solvers.bottleneck_problem import BottleneckProblem


def instance(**changes: Any) -> BottleneckProblem:
    fields: dict[str, Any] = {
        "bottleneck": [1.0, 2.0, 3.0],
        "weight": [0, 1, 5],
        "size": 2,
        "clusters": [0, 0, 1],
        "penalty": 0.5,
    }
    return BottleneckProblem(**{**fields, **changes})


def test_energy_by_hand() -> None:
    """PAUSE Eq. 19 with 22: the slowest, the mean weight, a charge for the second of a cluster."""
    assert instance().energy(np.array([0, 1])) == 1.0 + 0.5 - 0.5
    assert instance().energy(np.array([1, 2])) == 2.0 + 3.0
    assert Exact().solve(instance(), np.random.default_rng(0)).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bottleneck": [1.0, 2.0]}, "two lists of the same length"),
        ({"bottleneck": "abc"}, "must hold numbers"),
        ({"weight": [[1.0], [2.0], [3.0]]}, "two lists"),
        ({"size": 0}, "size is 0, expected 1 … 3"),
        ({"size": 4}, "size is 4"),
        ({"size": 2.0}, "size is 2.0"),
        ({"penalty": -1.0}, "penalty is -1.0"),
        ({"penalty": np.nan}, "penalty is nan"),
        ({"clusters": None}, "needs clusters"),
        ({"clusters": [0, 1]}, "clusters is"),
        ({"clusters": [0.0, 1.0, 2.0]}, "clusters is float64"),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        instance(**changes)


@pytest.mark.parametrize("field", ["bottleneck", "weight"])
@pytest.mark.parametrize("position", [0, 50_000, 99_999])
def test_one_nan_among_many_is_found(field: str, position: int) -> None:
    values: dict[str, Any] = {"bottleneck": np.ones(100_000), "weight": np.ones(100_000)}
    values[field][position] = np.nan
    with pytest.raises(DataError, match=f"{field} holds nan at position {position}"):
        Exact().solve(BottleneckProblem(**values, size=10), np.random.default_rng(0))
