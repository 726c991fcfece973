"""The embedded digits against scikit-learn's."""

import numpy as np
from sklearn.datasets import load_digits

from fedmuster.core.config import named, to_table
from fedmuster.training.data import DATASETS, Digits


def test_bit_for_bit_those_of_scikit_learn() -> None:
    data, theirs = Digits().load(0), load_digits()
    assert data.train_inputs.shape == (1437, 1, 8, 8)
    assert data.test_inputs.shape == (360, 1, 8, 8)
    test = np.zeros(1797, dtype=bool)
    test[np.argsort(theirs.target, kind="stable")[::5]] = True
    for part, rows in (("train", ~test), ("test", test)):
        images = (16 * getattr(data, f"{part}_inputs")[:, 0]).astype(np.float64)
        assert np.array_equal(images, theirs.images[rows])
        assert np.array_equal(getattr(data, f"{part}_targets"), theirs.target[rows])


def test_the_split_is_stratified_and_the_same_for_every_seed() -> None:
    data, other = Digits().load(0), Digits().load(1)
    assert np.array_equal(data.train_inputs, other.train_inputs)
    assert np.array_equal(data.test_targets, other.test_targets)
    in_test = np.bincount(data.test_targets)
    in_all = in_test + np.bincount(data.train_targets)
    assert np.abs(in_test - in_all / 5).max() < 1
    assert data.mean == np.float64(data.train_inputs.mean(dtype=np.float64))
    assert np.isclose(data.sd, data.train_inputs.std(dtype=np.float64), rtol=1e-12)


def test_a_caller_cannot_harm_the_next() -> None:
    assert not Digits().load(0).train_inputs.flags.writeable
    assert not Digits().load(0).train_targets.flags.writeable


def test_limits() -> None:
    config = Digits(train_limit=100, test_limit=50)
    assert named(DATASETS, to_table(config), key=(), what="data") == config
    data = config.load(3)
    assert (len(data.train_targets), len(data.test_targets)) == (100, 50)
    assert not np.array_equal(data.train_targets, config.load(4).train_targets)
