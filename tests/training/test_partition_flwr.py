"""Flower's partitioners, and ours against theirs. Runs where flwr-datasets is installed."""

import importlib
import re
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedmuster.core.errors import ConfigError
from fedmuster.core.records import IntArray
from fedmuster.report.figures.partition_figure import label_counts
from fedmuster.training.flwr_partition import FlowerDatasets
from fedmuster.training.partition import DirichletLabels, DirichletSizes, Partition, Shards, split
from fedmuster.training.training_records import DataSet


@pytest.fixture(autouse=True)
def _library() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the library's own imports
        pytest.importorskip("flwr_datasets.partitioner")


def samples(num_samples: int, num_classes: int, owners: IntArray | None = None) -> DataSet:
    return DataSet(
        train_inputs=np.zeros((num_samples, 1), dtype=np.float32),
        train_targets=np.arange(num_samples) % num_classes,
        test_inputs=np.zeros((1, 1), dtype=np.float32),
        test_targets=np.zeros(1, dtype=np.int64),
        num_classes=num_classes,
        train_owners=owners,
    )


def counts(config: Partition, data: DataSet, num_clients: int, seed: int) -> IntArray:
    shares = split(config, data, num_clients, seed=seed)
    return label_counts(data.train_targets[shares.rows], shares.offsets, data.num_classes)


def flower(partitioner: str, *settings: str) -> FlowerDatasets:
    return FlowerDatasets(partitioner=partitioner, settings=settings)


@pytest.mark.parametrize(
    "config",
    [
        flower("DirichletPartitioner", "alpha = 1.0"),
        flower("DirichletPartitioner", "alpha = 1.0", "self_balancing = true"),
        flower("IidPartitioner"),
        flower("LinearPartitioner"),
        flower("SquarePartitioner"),
        flower("ShardPartitioner", "num_shards_per_partition = 2"),
        flower("PathologicalPartitioner", "num_classes_per_partition = 4"),
        flower("NaturalIdPartitioner", 'partition_by = "owner"'),
        flower("SizePartitioner", "partition_sizes = [500, 100, 100, 100, 100, 100]"),
    ],
    ids=repr,
)
def test_partitioners_deal_no_sample_twice(config: FlowerDatasets) -> None:
    data = samples(1_000, 5, owners=np.arange(1_000) % 6)
    shares = split(config, data, 6, seed=1)
    assert len(np.unique(shares.rows)) == len(shares.rows)
    assert len(shares.rows) == (996 if config.partitioner == "ShardPartitioner" else 1_000)
    assert shares.rows.dtype == shares.offsets.dtype == np.int64
    assert len(shares.sizes) == 6
    again = split(config, data, 6, seed=1)
    assert (again.rows == shares.rows).all()
    if config.partitioner == "SizePartitioner":
        assert shares.sizes.tolist() == [500, 100, 100, 100, 100, 100]
    if config.partitioner == "NaturalIdPartitioner":
        assert np.ptp(shares.rows[: shares.sizes[0]] % 6) == 0


def test_seeds_reach_the_library() -> None:
    data = samples(1_000, 5)
    one, other = (split(FlowerDatasets(), data, 6, seed=s).rows for s in (1, 2))
    assert one.tolist() != other.tolist()


REFUSED: list[tuple[FlowerDatasets, int, str]] = [
    (flower("DirichletPartitoner"), 5, "has no partitioner 'DirichletPartitoner'; expected one"),
    (flower("Partitioner"), 5, "has no partitioner 'Partitioner'"),
    (flower("DirichletPartitioner", "alpha = -1.0"), 5, "refuses"),
    (flower("DirichletPartitioner", "beta = 1.0"), 5, "refuses"),
    (flower("NaturalIdPartitioner", 'partition_by = "owner"'), 5, "write num_clients = 6"),
    (flower("VerticalEvenPartitioner"), 2, "divides features, not samples"),
]


@pytest.mark.parametrize(("config", "num_clients", "message"), REFUSED)
def test_what_the_library_cannot_do_is_a_config_error(
    config: FlowerDatasets, num_clients: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        split(config, samples(600, 5, owners=np.arange(600) % 6), num_clients, seed=1)


def their_counts(alpha: float, data: DataSet, num_clients: int, seed: int) -> IntArray:
    """The library on its own, without a least size, which it can only meet by drawing again."""
    partitioners: Any = importlib.import_module("flwr_datasets.partitioner")
    datasets: Any = importlib.import_module("datasets")
    partitioner = partitioners.DirichletPartitioner(
        num_partitions=num_clients,
        partition_by="label",
        alpha=alpha,
        min_partition_size=0,
        seed=seed,
    )
    partitioner.dataset = datasets.Dataset.from_dict({"label": data.train_targets})
    parts = [partitioner.load_partition(k).to_dict()["label"] for k in range(num_clients)]
    return np.stack(
        [np.bincount(np.array(part, dtype=int), minlength=data.num_classes) for part in parts]
    )


@pytest.mark.parametrize("alpha", [0.1, 0.5, 5.0])
def test_our_dirichlet_labels_are_theirs(alpha: float) -> None:
    """Two samples of one law: shares of a class, sizes, and the main label's share."""
    config, many, few = DirichletLabels(alpha=alpha), samples(20_000, 100), samples(400, 4)
    # Up to one sample: the library rounds down and leaves the rest to the last client, who so has
    # one of nearly every label; ours rounds nobody up or down on average.
    tables = [
        table.clip(1) for table in (counts(config, many, 5, 4), their_counts(alpha, many, 5, 3))
    ]
    pairs = list(zip(*tables, strict=True))
    # One client of each draw, so that they are independent.
    ours = np.stack([counts(config, few, 5, seed)[0] for seed in range(120)])
    theirs = np.stack([their_counts(alpha, few, 5, seed)[0] for seed in range(120)])
    sizes = [table.sum(axis=1).clip(1) for table in (ours, theirs)]  # ours is at least 1
    mains = [table.max(axis=1) / table.sum(axis=1).clip(1) for table in (ours, theirs)]
    pairs.append((sizes[0], sizes[1]))
    pairs.append((mains[0][sizes[0] > 1], mains[1][sizes[1] > 1]))
    for one, other in pairs:
        # Seven tests for each of three alphas, at 0.001 each.
        assert stats.ks_2samp(one, other).pvalue > 0.001


def test_theirs_may_straddle_labels_where_ours_do_not() -> None:
    """Equal shards of sorted samples, against shards cut within labels."""
    data = DataSet(
        train_inputs=np.zeros((1_000, 1), dtype=np.float32),
        train_targets=np.repeat(np.arange(4), [130, 210, 290, 370]),
        test_inputs=np.zeros((1, 1), dtype=np.float32),
        test_targets=np.zeros(1, dtype=np.int64),
        num_classes=4,
    )
    theirs = np.count_nonzero(
        counts(flower("ShardPartitioner", "num_shards_per_partition = 2"), data, 20, 1), axis=1
    )
    ours = np.count_nonzero(counts(Shards(), data, 20, 1), axis=1)
    assert (ours == 2).all()
    assert theirs.min() == 1 or theirs.max() > 2
    assert split(DirichletSizes(), data, 20, seed=1).sizes.sum() == 1_000
