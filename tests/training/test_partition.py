"""Who gets what: exactness, the papers' properties, laws, refusals."""

import itertools
import re
import sys
import tomllib
from collections import Counter
from typing import Any

import numpy as np
import pytest
import tomli_w
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from fedmuster.core.config import named, to_table
from fedmuster.core.errors import ConfigError, MissingExtraError
from fedmuster.core.records import IntArray
from fedmuster.report.figures.partition_figure import label_counts
from fedmuster.training.flwr_partition import FlowerDatasets
from fedmuster.training.partition import (
    IID,
    PARTITIONS,
    DirichletLabels,
    DirichletSizes,
    ExponentialQuality,
    Natural,
    Partition,
    Sampled,
    Shards,
    split,
)
from fedmuster.training.training_records import DataSet, Shares
from fedmuster.worlds import ExponentialSizes

CONFIGS: list[Partition] = [
    IID(),
    IID(stratified=False),
    DirichletLabels(),
    DirichletLabels(alpha=0.01, min_samples=2),
    DirichletSizes(),
    DirichletSizes(alpha=0.1, dominant_share=0.0, smallest=0.5),
    DirichletSizes(dominant_share=1.0),
    Shards(),
    Shards(labels_per_client=1),
    ExponentialQuality(),
    ExponentialQuality(decay=50.0, lowest_quality=0.0, noise=0.0, label_alpha=0.1),
    Natural(),
    FlowerDatasets(partitioner="ShardPartitioner", settings=("num_shards_per_partition = 2",)),
]
NEEDING_NO_LABELS: list[Partition] = [
    IID(),
    DirichletSizes(dominant_share=0.0),
    ExponentialQuality(),
]


def classes(labels: IntArray, num_classes: int, owners: IntArray | None = None) -> DataSet:
    return DataSet(
        train_inputs=np.zeros((len(labels), 1), dtype=np.float32),
        train_targets=labels,
        test_inputs=np.zeros((1, 1), dtype=np.float32),
        test_targets=np.zeros(1, dtype=np.int64),
        num_classes=num_classes,
        train_owners=owners,
    )


def balanced(num_samples: int, num_classes: int = 10) -> DataSet:
    return classes(np.arange(num_samples) % num_classes, num_classes)


def regression(num_samples: int) -> DataSet:
    values = np.linspace(-1, 1, num_samples, dtype=np.float32)
    return DataSet(
        train_inputs=values[:, None],
        train_targets=values,
        test_inputs=values[:1, None],
        test_targets=values[:1],
        num_classes=0,
    )


def counts_of(data: DataSet, shares: Shares) -> IntArray:
    return label_counts(data.train_targets[shares.rows], shares.offsets, data.num_classes)


def check_dealt(data: DataSet, shares: Shares, num_clients: int) -> None:
    """Every client has a sample, and every sample exactly one client."""
    assert shares.offsets.dtype == shares.rows.dtype == np.int64
    assert len(shares.sizes) == num_clients
    assert (shares.offsets[0], shares.offsets[-1]) == (0, len(shares.rows))
    assert shares.sizes.min() >= 1
    assert sorted(shares.rows) == list(range(len(data.train_targets)))


@pytest.mark.parametrize("config", CONFIGS, ids=repr)
def test_configs_go_to_toml_and_back(config: Partition) -> None:
    table = tomllib.loads(tomli_w.dumps(to_table(config)))
    assert named(PARTITIONS, table, key=(), what="partition") == config


def test_every_partition_is_registered_and_made_by_name() -> None:
    assert {Sampled, *(type(config) for config in CONFIGS)} == set(PARTITIONS.values())
    for name, kind in PARTITIONS.items():
        assert kind.name == name
        assert named(PARTITIONS, name, key=(), what="partition") == kind()


@pytest.mark.parametrize(
    "config", [c for c in CONFIGS if not isinstance(c, Shards | Natural | FlowerDatasets)], ids=repr
)
@given(
    labels=st.lists(st.integers(0, 6), min_size=1, max_size=120).map(np.array),
    seed=st.integers(0, 10**6),
    ratio=st.floats(0, 1),
)
def test_every_sample_goes_to_exactly_one_client(
    config: Partition, labels: IntArray, seed: int, ratio: float
) -> None:
    least = getattr(config, "min_samples", 1)
    assume(len(labels) >= least)
    if isinstance(config, DirichletSizes) and config.dominant_share:
        assume(config.dominant_share * len(np.unique(labels)) >= 1)
    num_clients = max(1, int(ratio * (len(labels) // least)))
    data = classes(labels, 7)
    shares = split(config, data, num_clients, seed=seed)
    check_dealt(data, shares, num_clients)
    assert shares.sizes.min() >= least
    again = split(config, data, num_clients, seed=seed)
    assert (again.rows == shares.rows).all()
    assert (again.offsets == shares.offsets).all()


@pytest.mark.parametrize("config", CONFIGS[:-1], ids=repr)
def test_another_seed_deals_otherwise(config: Partition) -> None:
    data = classes(np.arange(400) % 10, 10, owners=np.arange(400) % 40)
    one, other = (split(config, data, 30, seed=seed).rows for seed in (1, 2))
    assert one.tolist() != other.tolist()


@pytest.mark.parametrize("config", NEEDING_NO_LABELS, ids=repr)
@pytest.mark.parametrize("num_clients", [1, 7, 50])
def test_a_regression_can_be_dealt_too(config: Partition, num_clients: int) -> None:
    data = regression(50)
    check_dealt(data, split(config, data, num_clients, seed=3), num_clients)


@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=80).map(np.array),
    seed=st.integers(0, 10**6),
    data=st.data(),
)
def test_iid_is_equal_up_to_one_in_size_and_in_every_class(
    labels: IntArray, seed: int, data: st.DataObject
) -> None:
    num_clients = data.draw(st.integers(1, len(labels)))
    samples = classes(labels, 5)
    shares = split(IID(), samples, num_clients, seed=seed)
    assert np.ptp(shares.sizes) <= 1
    assert (np.ptp(counts_of(samples, shares), axis=0) <= 1).all()


def test_iid_gives_exactly_equal_numbers_where_they_divide() -> None:
    """BSFL: "each client has an equal number of images from each class"."""
    data = balanced(60_000)
    assert (counts_of(data, split(IID(), data, 500, seed=0)) == 12).all()


def test_unstratified_iid_leaves_classes_to_chance() -> None:
    data = balanced(10_000)
    shares = split(IID(stratified=False), data, 100, seed=4)
    assert (shares.sizes == 100).all()
    # Each of 900 free cells has expectation 10; a chi-square at a significance of 0.002.
    assert 0.001 < stats.chi2_contingency(counts_of(data, shares)).pvalue < 0.999


def test_dirichlet_labels_follow_their_law() -> None:
    """A client's share of a class is Beta(alpha, (K-1) alpha), independently over classes."""
    num_classes, each, num_clients, alpha = 500, 400, 5, 0.5
    data = balanced(num_classes * each, num_classes)
    counts = counts_of(data, split(DirichletLabels(alpha=alpha), data, num_clients, seed=11))
    law = stats.beta(alpha, (num_clients - 1) * alpha)
    for client in range(num_clients):
        # Continuous again, as rounding is to whole samples; five tests at 0.001 each.
        blurred = counts[client] + np.random.default_rng(client).uniform(-0.5, 0.5, num_classes)
        assert stats.kstest(np.clip(blurred / each, 1e-9, 1), law.cdf).pvalue > 0.001


def test_dirichlet_labels_keep_what_was_drawn_where_nobody_is_short() -> None:
    """The repair moves no more than what is missing."""
    data = balanced(20_000)
    free = counts_of(data, split(DirichletLabels(alpha=0.3), data, 20, seed=8))
    tight = counts_of(data, split(DirichletLabels(alpha=0.3, min_samples=700), data, 20, seed=8))
    short = free.sum(axis=1) < 700
    missing = (700 - free.sum(axis=1))[short].sum()
    assert short.any()
    assert (tight.sum(axis=1)[short] == 700).all()
    assert abs(tight - free).sum() <= 2 * missing


@pytest.mark.parametrize("alpha", [0.1, 0.5, 3.0])
def test_dirichlet_labels_are_as_concentrated_as_alpha_says(alpha: float) -> None:
    """``E[sum p²] = (alpha + 1) / (K alpha + 1)`` over the clients of a class."""
    data, num_clients = balanced(200_000, 2_000), 5
    counts = counts_of(data, split(DirichletLabels(alpha=alpha), data, num_clients, seed=7))
    squares = np.square(counts / 100).sum(axis=0)
    exact = (alpha + 1) / (num_clients * alpha + 1)
    # Four standard errors, and what rounding to whole samples may add.
    error = 4 * squares.std() / np.sqrt(2_000) + num_clients / 4 / 100**2
    assert squares.mean() == pytest.approx(exact, abs=error)


@pytest.mark.parametrize("alpha", [1e-300, 1e-3, 1e6, 1e300])
def test_dirichlet_labels_at_the_extremes(alpha: float) -> None:
    data = balanced(1_000)
    shares = split(DirichletLabels(alpha=alpha), data, 40, seed=1)
    check_dealt(data, shares, 40)
    if alpha > 1:
        assert np.ptp(counts_of(data, shares)) <= 2


def test_dirichlet_sizes_follow_their_law() -> None:
    data, num_clients, alpha = balanced(5_000), 6, 3.0
    config = DirichletSizes(alpha=alpha)
    first = np.array([split(config, data, num_clients, seed=s).sizes[0] for s in range(300)])
    law = stats.beta(alpha, (num_clients - 1) * alpha)
    assert stats.kstest(first / 5_000, law.cdf).pvalue > 0.001


@pytest.mark.parametrize(("num_clients", "alpha"), [(30, 3.0), (300, 2.0), (300, 3.0)])
def test_pause_has_a_dominant_label_of_a_quarter(num_clients: int, alpha: float) -> None:
    data = balanced(50_000)
    shares = split(DirichletSizes(alpha=alpha), data, num_clients, seed=6)
    counts = counts_of(data, shares)
    share = counts / shares.sizes[:, None]
    large = shares.sizes >= 100
    dominated = np.bincount(counts.argmax(axis=1)[large], minlength=10)
    assert (dominated <= num_clients // 10).all()
    assert dominated.sum() == large.sum() > 0.5 * num_clients
    assert share.max(axis=1)[large].mean() == pytest.approx(0.25, abs=0.01)
    assert abs(share.max(axis=1)[large] - 0.25).max() < 0.06
    others = np.sort(share[large], axis=1)[:, :-1]
    assert others.mean() == pytest.approx(0.75 / 9, abs=0.003)
    assert others.max() < 0.15


def test_the_smallest_client_of_dirichlet_sizes() -> None:
    data = balanced(6_000)
    free = split(DirichletSizes(alpha=0.5), data, 30, seed=2).sizes
    floored = split(DirichletSizes(alpha=0.5, smallest=1 / 3), data, 30, seed=2).sizes
    assert free.min() < 66
    assert floored.min() == 66  # a third of the average 200


def test_exponential_quality_is_bsfls_case() -> None:
    data = balanced(60_000)
    shares = split(ExponentialQuality(), data, 500, seed=9)
    assert shares.quality is not None
    assert shares.noise_sd is not None
    exact = np.exp(-2 * np.arange(500) / 500)
    exact *= 60_000 / exact.sum()
    assert (abs(np.sort(shares.sizes)[::-1] - exact) < 1).all()
    assert stats.kstest(shares.quality, stats.uniform(0.5, 0.5).cdf).pvalue > 0.001
    np.testing.assert_allclose(shares.noise_sd, (1 - shares.quality) / 4)
    # The order is random: large clients are neither the first nor the better ones.
    assert abs(stats.spearmanr(shares.sizes, np.arange(500)).statistic) < 0.2
    assert abs(stats.spearmanr(shares.sizes, shares.quality).statistic) < 0.2


def test_worlds_and_training_mean_the_same_unequal_data() -> None:
    data = balanced(6_000)
    shares = ExponentialQuality().split(data, 60, np.random.default_rng(3))
    sizes, quality = ExponentialSizes(mean_samples=100).draw(60, np.random.default_rng(3))
    assert (abs(shares.sizes - sizes) <= 1).all()
    assert shares.quality is not None
    assert (shares.quality == quality).all()


def test_label_skew_leaves_sizes_and_follows_its_law() -> None:
    data, alpha = balanced(50_000), 0.5
    plain = split(ExponentialQuality(), data, 100, seed=5)
    skewed = split(ExponentialQuality(label_alpha=alpha, noise=0.0), data, 100, seed=5)
    assert (plain.sizes == skewed.sizes).all()
    assert skewed.noise_sd is None
    share = counts_of(data, skewed) / skewed.sizes[:, None]
    # E[sum p²] of Dirichlet(alpha) over C labels is (alpha + 1) / (C alpha + 1): 1/4 here, with a
    # standard error of 0.01 over 100 clients; an even mix has 1/10.
    assert np.square(share).sum(axis=1).mean() == pytest.approx(1.5 / 6, abs=0.04)


@given(
    labels=st.lists(st.integers(0, 5), min_size=1, max_size=90).map(np.array),
    num_clients=st.integers(1, 30),
    each=st.integers(1, 4),
    seed=st.integers(0, 10**6),
)
def test_shards_give_exactly_so_many_labels(
    labels: IntArray, num_clients: int, each: int, seed: int
) -> None:
    num_clients = min(num_clients, len(labels))
    data, config = classes(labels, 6), Shards(labels_per_client=each)
    totals = np.bincount(labels)[np.bincount(labels) > 0]
    # Gale and Ryser: there is such a deal if and only if there are places for every label, and
    # enough samples of different labels for every place.
    possible = len(totals) <= num_clients * each <= int(np.minimum(totals, num_clients).sum())
    if not possible:
        with pytest.raises(ConfigError, match="labels_per_client"):
            split(config, data, num_clients, seed=seed)
        return
    shares = split(config, data, num_clients, seed=seed)
    check_dealt(data, shares, num_clients)
    assert (np.count_nonzero(counts_of(data, shares), axis=1) == each).all()


def test_shards_of_cocs_are_nearly_equal() -> None:
    """COCS: 50 clients of CIFAR-10, two labels each; here 500 images of each of the two."""
    data = balanced(50_000)
    counts = counts_of(data, split(Shards(), data, 50, seed=1))
    assert set(np.unique(counts)) == {0, 500}
    uneven = classes(np.repeat(np.arange(4), [500, 1_000, 1_500, 3_000]), 4)
    sizes = split(Shards(), uneven, 60, seed=1).sizes
    assert 90 <= sizes.min() <= sizes.max() <= 110


def test_all_deals_of_shards_are_equally_likely() -> None:
    """Three clients, three labels of two shards: each lacks another label, in 3! ways."""
    data = balanced(6, 3)
    draws = Counter(
        tuple(counts_of(data, split(Shards(), data, 3, seed=s)).argmin(axis=1)) for s in range(400)
    )
    assert set(draws) == set(itertools.permutations(range(3)))
    assert stats.chisquare(list(draws.values())).pvalue > 0.001


def test_all_pairs_of_labels_are_equally_likely() -> None:
    data = balanced(20_000)
    counts = counts_of(data, split(Shards(), data, 1_000, seed=2)) > 0
    together = (counts.T.astype(int) @ counts)[np.triu_indices(10, 1)]
    assert together.sum() == 1_000
    # Negatively dependent, which makes the chi-square smaller than its law, not larger.
    assert stats.chisquare(together).pvalue > 0.001


def test_natural_clients_are_the_owners() -> None:
    owners = np.array([7, 3, 3, 9, 7, 7, 12])
    data = classes(np.zeros(7, dtype=np.int64), 1, owners)
    shares = split(Natural(), data, 4, seed=1)
    check_dealt(data, shares, 4)
    for client, owner in enumerate((3, 7, 9, 12)):
        rows = shares.rows[shares.offsets[client] : shares.offsets[client + 1]]
        assert sorted(rows) == np.flatnonzero(owners == owner).tolist()


def test_fewer_natural_clients_are_a_random_subset() -> None:
    owners = np.repeat(np.arange(5), 3)
    data = classes(np.zeros(15, dtype=np.int64), 1, owners)
    drawn: Counter[int] = Counter()
    for seed in range(500):
        shares = split(Natural(), data, 2, seed=seed)
        assert (shares.sizes == 3).all()
        pair = owners[shares.rows].reshape(2, 3)
        assert (pair == pair[:, :1]).all()
        drawn.update(pair[:, 0].tolist())
    assert all(abs(drawn[owner] - 200) < 4 * np.sqrt(500 * 0.4 * 0.6) for owner in range(5))


REFUSED: list[tuple[type[Any], dict[str, Any], str]] = [
    (IID, {"stratified": 1}, "stratified = 1, expected true or false"),
    (DirichletLabels, {"alpha": 0.0}, "alpha = 0.0, expected a number > 0"),
    (DirichletLabels, {"alpha": float("nan")}, "alpha"),
    (DirichletLabels, {"alpha": float("inf")}, "alpha"),
    (DirichletLabels, {"alpha": "1"}, "alpha"),
    (DirichletLabels, {"min_samples": 0}, "min_samples = 0, expected an integer >= 1"),
    (DirichletSizes, {"alpha": -1.0}, "alpha"),
    (DirichletSizes, {"dominant_share": 1.1}, "dominant_share"),
    (DirichletSizes, {"smallest": -0.1}, "smallest"),
    (Shards, {"labels_per_client": 0}, "labels_per_client"),
    (ExponentialQuality, {"decay": -1.0}, "decay"),
    (ExponentialQuality, {"lowest_quality": 1.5}, "lowest_quality"),
    (ExponentialQuality, {"noise": -0.1}, "noise"),
    (ExponentialQuality, {"label_alpha": 0.0}, "label_alpha"),
    (FlowerDatasets, {"partitioner": "os.system"}, "the name of a class"),
    (FlowerDatasets, {"settings": ("alpha 0.5",)}, "'key = value' as in TOML"),
]


@pytest.mark.parametrize(("kind", "values", "message"), REFUSED)
def test_bad_settings_are_refused(kind: type[Any], values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        kind(**values)


MISFITS: list[tuple[Partition, DataSet, int, str]] = [
    *((c, balanced(5), 6, "write num_clients <= 5") for c in CONFIGS if c != CONFIGS[3]),
    *((c, balanced(5), 0, "num_clients = 0, expected an integer >= 1") for c in CONFIGS),
    (DirichletLabels(min_samples=3), balanced(10), 4, "num_clients <= 3, or min_samples <= 2"),
    (DirichletLabels(), regression(9), 3, "no labels to divide by; write another partition"),
    (Shards(), regression(9), 3, "no labels to divide by; write another partition"),
    (DirichletSizes(), regression(9), 3, "write dominant_share = 0"),
    (ExponentialQuality(label_alpha=1.0), regression(9), 3, "write no label_alpha"),
    (DirichletSizes(dominant_share=0.05), balanced(99), 3, "more than 0.1, or 0 for none"),
    (Shards(), balanced(99), 4, "labels_per_client >= 3, or num_clients >= 5"),
    (Shards(labels_per_client=3), balanced(99, 2), 9, "labels_per_client <= 2"),
    (Natural(), balanced(9), 3, "who owns its samples"),
    (
        Natural(),
        classes(np.zeros(9, dtype=np.int64), 1, np.arange(9) // 2),
        6,
        "6 clients, but the data has 5 owners; write num_clients <= 5",
    ),
]


@pytest.mark.parametrize(("config", "data", "num_clients", "message"), MISFITS)
def test_what_does_not_fit_says_what_to_write(
    config: Partition, data: DataSet, num_clients: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        split(config, data, num_clients, seed=0)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)
    monkeypatch.delitem(sys.modules, "flwr_datasets.partitioner", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'fedmuster\[flwr-datasets\]'"):
        split(FlowerDatasets(), balanced(100), 5, seed=0)
