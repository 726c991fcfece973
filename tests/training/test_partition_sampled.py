"""Clients that draw their own samples, as many as a world says that they have."""

import re

import numpy as np
import pytest
from scipy import stats

from fedmuster.core.config import named, to_table
from fedmuster.core.errors import ConfigError
from fedmuster.training.data import Digits
from fedmuster.training.models import Logistic
from fedmuster.training.partition import IID, PARTITIONS, Sampled, split
from fedmuster.training.training import Training
from fedmuster.training.training_records import DataSet


def data(num_samples: int) -> DataSet:
    return DataSet(
        train_inputs=np.arange(num_samples, dtype=np.float32)[:, np.newaxis],
        train_targets=np.arange(num_samples) % 3,
        test_inputs=np.zeros((1, 1), dtype=np.float32),
        test_targets=np.zeros(1, dtype=np.int64),
        num_classes=3,
    )


def test_each_client_draws_as_many_as_it_has_and_none_twice() -> None:
    sizes = np.array([3, 1, 20, 7, 25])
    shares = split(Sampled(), data(20), 5, seed=2, num_samples=sizes)
    np.testing.assert_array_equal(shares.sizes, [3, 1, 20, 7, 20])
    assert shares.rows.dtype == shares.offsets.dtype == np.int64
    for k in range(5):
        rows = shares.rows[shares.offsets[k] : shares.offsets[k + 1]]
        assert len(set(rows.tolist())) == len(rows)
        assert ((rows >= 0) & (rows < 20)).all()


def test_it_follows_from_the_seed() -> None:
    sizes = np.full(8, 10)
    one, two, other = (
        split(Sampled(), data(50), 8, seed=seed, num_samples=sizes).rows for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_every_sample_is_equally_likely_whoever_else_has_it() -> None:
    """4,000 clients draw 2 of 5: chi-squared over the 10 pairs, and order, at 1e-6."""
    shares = split(Sampled(), data(5), 4000, seed=3, num_samples=np.full(4000, 2))
    pairs = shares.rows.reshape(-1, 2)
    counts = np.bincount(5 * pairs[:, 0] + pairs[:, 1], minlength=25).reshape(5, 5)
    assert not counts.diagonal().any()
    ordered = counts[~np.eye(5, dtype=np.bool_)]
    assert stats.chisquare(ordered).pvalue > 1e-6


def test_sizes_are_needed_and_must_fit() -> None:
    with pytest.raises(ConfigError):
        split(Sampled(), data(20), 3, seed=1)
    for wrong in (np.array([1, 2]), np.array([1, 0, 2])):
        with pytest.raises(ConfigError, match=re.escape("an integer >= 1 for each of 3 clients")):
            split(Sampled(), data(20), 3, seed=1, num_samples=wrong)


def test_partitions_that_decide_by_themselves_refuse_sizes() -> None:
    with pytest.raises(ConfigError, match='"sampled"') as caught:
        split(IID(), data(20), 3, seed=1, num_samples=np.array([1, 2, 3]))
    assert caught.value.key == ("world", "data")


def test_it_goes_to_toml_and_back() -> None:
    assert to_table(Sampled()) == {"name": "sampled"}
    assert named(PARTITIONS, "sampled", key=(), what="partition") == Sampled()


def test_training_hands_the_sizes_on() -> None:
    training = Training(data=Digits(), partition=Sampled(), model=Logistic())
    sizes = np.array([100, 1000, 300])
    trainer = training.start(num_clients=3, seed=1, num_samples=sizes)
    np.testing.assert_array_equal(trainer.data.sizes, sizes)
    own = training.with_own(data=data(200)).start(num_clients=3, seed=1, num_samples=sizes)
    np.testing.assert_array_equal(own.data.sizes, [100, 200, 200])
