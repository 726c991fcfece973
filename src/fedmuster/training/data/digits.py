"""Handwritten digits that come with this package."""

import io
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import ClassVar

import numpy as np

from fedmuster.training.data.assembly import Limits, RawData, assemble
from fedmuster.training.training_records import DataSet

_TEST_EVERY = 5
_DARKEST = 16.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Digits(Limits):
    """Handwritten digits, 8 × 8: 1,437 to train on, 360 to test. Needs no download.

    Every fifth image of the list that is sorted by label is for testing, whatever the seed, so
    both parts have the same share of each digit.

    Args:
        train_limit: at most so many training samples, chosen at random by the seed; None for all.
        test_limit: the same for test samples.

    References:
        E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning
        Repository, 1998, https://doi.org/10.24432/C50P49 (the test part, as in scikit-learn).

    Example:
        >>> data = Digits().load(seed=0)
        >>> data.train_inputs.shape, data.test_inputs.shape, float(data.train_inputs.max())
        ((1437, 1, 8, 8), (360, 1, 8, 8), 1.0)
    """

    name: ClassVar[str] = "digits"

    def load(self, seed: int) -> DataSet:
        """Unpack them."""
        return assemble(_raw(), num_classes=10, limits=self, seed=seed)


@cache
def _raw() -> RawData:
    image = resources.files(__package__).joinpath("digits.npz").read_bytes()
    with np.load(io.BytesIO(image), allow_pickle=False) as archive:
        images, labels = archive["images"][:, np.newaxis], archive["labels"]
    test = np.zeros(len(labels), dtype=np.bool_)
    test[np.argsort(labels, kind="stable")[::_TEST_EVERY]] = True
    return RawData(
        train_inputs=images[~test],
        train_targets=labels[~test],
        test_inputs=images[test],
        test_targets=labels[test],
        full_scale=_DARKEST,
    )
