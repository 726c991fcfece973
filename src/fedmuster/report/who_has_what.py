"""Who has what, in numbers."""

import numpy as np

from fedmuster.core.records import FloatArray, IntArray
from fedmuster.learning.records import Targets


def label_counts(targets: Targets, offsets: IntArray, num_classes: int) -> IntArray:
    """[K, C], how many samples of each label each client has.

    Example:
        >>> label_counts(np.array([0, 1, 1, 1]), np.array([0, 2, 4]), 2)
        array([[1, 1],
               [0, 2]])
    """
    sizes = np.diff(offsets)
    cell = np.repeat(np.arange(len(sizes)), sizes) * num_classes + targets
    counts = np.bincount(cell, minlength=len(sizes) * num_classes)
    return counts.reshape(len(sizes), num_classes)


def describe(
    targets: Targets, offsets: IntArray, num_classes: int, quality: FloatArray | None = None
) -> str:
    r"""One line: how many samples, labels and what quality clients have.

    Example:
        >>> describe(np.array([0, 1, 1, 1]), np.array([0, 2, 4]), 2)
        '4 samples among 2 clients: 2 each; 1–2 of 2 labels each, the main one 75\xa0% on average'
    """
    sizes = np.diff(offsets)
    clients = "1 client" if len(sizes) == 1 else f"{len(sizes):,} clients"
    text = f"{sizes.sum():,} samples among {clients}: {_span(sizes)} each"
    if num_classes:
        counts = label_counts(targets, offsets, num_classes)
        main = 100 * np.mean(counts.max(axis=1) / sizes)
        text += (
            f"; {_span(np.count_nonzero(counts, axis=1))} of {num_classes} labels each, "
            f"the main one {main:.0f}\u00a0% on average"
        )
    if quality is not None:
        text += f"; quality {quality.min():.2f}–{quality.max():.2f}"
    return text


def _span(numbers: IntArray) -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"
