"""In which shape and form each client trains: by a rule of the configuration and the data.

Never by measured time: shapes and forms differ in rounding, and a run must repeat its bits.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from fedmuster.core.records import BoolArray, IntArray
from fedmuster.learning.local import LocalSGD
from fedmuster.learning.numpy_engine.gram import gram_sides
from fedmuster.learning.numpy_engine.padding import padded

Form = Literal["auto", "stacked", "gram"]

_MOVING = 12
"""What it costs to move one weight by one step, in multiply-adds."""

_COPYING = 16
"""What it costs to gather one number of a batch, in multiply-adds."""

_KEPT_BYTES = 2**28
"""The kept Gram matrices may take this, or a quarter of what the inputs take if that is more."""


class Stacking(NamedTuple):
    """How each client trains, [K] each.

    Args:
        widths: samples in a padded batch.
        sides: of its Gram matrix, 0 where the first layer keeps its weights instead.
        kept: whether the Gram matrix is kept between rounds.
    """

    widths: IntArray
    sides: IntArray
    kept: BoolArray


def stacking(form: Form, local: LocalSGD, sizes: IntArray, layers: Sequence[int]) -> Stacking:
    """The form of the first layer that takes less arithmetic, for each client.

    Args:
        form: "auto" for this rule, or one form for all.
        local: how a client trains.
        sizes: [K], samples of each client.
        layers: how many numbers enter each layer of the model.
    """
    inputs, outputs = layers[:2]
    widths = padded(np.maximum(sizes, 1))
    if local.batch_size:
        widths = np.minimum(widths, local.batch_size)
    steps = local.steps or -(-sizes // widths) * (local.epochs or 1)
    sides = gram_sides(sizes)
    by_weights = steps * inputs * ((2 * widths + _MOVING) * outputs + widths * _COPYING)
    by_gram = 2 * sizes * inputs * outputs + steps * widths * sides * (outputs + _COPYING)
    gram = by_gram < by_weights if form == "auto" else np.full(len(sizes), form == "gram")
    kept = gram & _fits(np.where(gram, sides, 0), max(_KEPT_BYTES, int(sizes.sum()) * inputs))
    if form == "auto":
        gram &= kept | (by_gram + sizes**2 * inputs < by_weights)
    return Stacking(widths, np.where(gram, sides, 0), kept)


def _fits(sides: IntArray, limit: int) -> BoolArray:
    """Whose matrices fit into ``limit`` bytes: smallest first, all of a side or none."""
    side, which, count = np.unique(sides, return_inverse=True, return_counts=True)
    fits: BoolArray = (np.cumsum(4 * side**2 * count) <= limit)[which]
    return fits
