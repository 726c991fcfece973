"""Equal hypercubes, as many from the first round to the last."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmuster.core.config import check_types, require
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.estimators.hypercubes.control import Control, Demand


@dataclass(frozen=True, kw_only=True, slots=True)
class EqualCubes:
    """``[0, 1]^d`` cut into ``h^d`` equal hypercubes (COCS, initialization phase).

    A cube holds its lower faces, the last ones their upper ones as well. Numbers outside of [0, 1]
    belong to the cubes at the border. Without context there is one cube.

    Args:
        cubes_per_axis: h. Paper: 5; COCS Theorem 2 has ``T^(1 / (3 alpha + 2))`` rounded up, which
            is 4 for 1,000 rounds and 5 for 1,880.

    Example:
        >>> corners = np.array([[0.0, 0.19], [0.2, 0.0], [1.0, 1.0]])
        >>> EqualCubes(cubes_per_axis=5).cubes_of(corners)
        array([[ 0],
               [ 5],
               [24]])
    """

    name: ClassVar[str] = "uniform"
    cubes_per_axis: int = 5

    def __post_init__(self) -> None:
        check_types(self)
        require(self.cubes_per_axis >= 1, self, "cubes_per_axis", "an integer >= 1")

    def num_cubes(self, dimension: int) -> int:
        """How many cubes there are for contexts of ``dimension`` numbers."""
        return int(self.cubes_per_axis**dimension)

    def cubes_of(self, context: FloatArray) -> IntArray:
        """[n, 1], the cube that each context [n, d] is in."""
        return grid_cells(grid_steps(context, self.cubes_per_axis), self.cubes_per_axis)[:, None]

    def demand(self, control: Control, round_: int, dimension: int) -> Demand:
        """K(t), of every cube."""
        return Demand(least=np.zeros(1), level=0, needed=control.needed(round_))  # COCS Eq. 13


def grid_steps(context: FloatArray, per_axis: int) -> IntArray:
    """[n, d], how many of ``per_axis`` equal steps each number in [0, 1] has behind it.

    Numbers outside count as the nearest inside.
    """
    steps = (np.clip(context, 0.0, 1.0) * per_axis).astype(np.int64)
    return np.minimum(steps, per_axis - 1)  # 1.0 is in the last


def grid_cells(steps: IntArray, per_axis: int) -> IntArray:
    """[n], a number for each cell of the grid, ``0 … per_axis^d - 1``."""
    cells: IntArray = steps @ per_axis ** np.arange(steps.shape[1] - 1, -1, -1)
    return cells
