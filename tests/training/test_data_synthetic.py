"""Synthetic data against the laws they are drawn from, and users' own data."""

import sys
from pathlib import Path

import numpy as np
import pytest

from fedmuster.core.config import named, to_table
from fedmuster.core.errors import ConfigError
from fedmuster.core.streams import stream
from fedmuster.training.data import DATASETS, LinearRegression, OwnData, SyntheticLogistic
from fedmuster.training.training_records import DataSet


def test_registry_names_are_those_of_the_classes() -> None:
    assert {name: kind.name for name, kind in DATASETS.items()} == {n: n for n in DATASETS}


def test_linear_regression_is_linear_up_to_the_noise() -> None:
    config = LinearRegression(num_features=5, noise_sd=0.3, num_train=4000, num_test=2000)
    data = config.load(1)
    assert data.num_classes == 0
    assert data.train_targets.dtype == np.float32
    x = np.c_[data.train_inputs, np.ones(4000)].astype(np.float64)
    found, *_ = np.linalg.lstsq(x, data.train_targets.astype(np.float64))
    residuals = np.c_[data.test_inputs, np.ones(2000)] @ found - data.test_targets
    # Of 2,000 normal residuals the mean square lies within 4 sd, 4 · 0.3² · sqrt(2/2000), with
    # probability 0.9999; the fit adds 0.15 %.
    assert abs(np.mean(residuals**2) - 0.09) < 0.012
    assert LinearRegression(noise_sd=0.0).load(1).train_targets.std() > 0.5
    assert np.array_equal(data.train_inputs, config.load(1).train_inputs)
    assert not np.array_equal(data.train_inputs, config.load(2).train_inputs)


def test_synthetic_logistic_has_the_law_of_its_paper() -> None:
    data = SyntheticLogistic(num_owners=400, beta=2.0).load(0)
    owners = data.train_owners
    assert owners is not None
    sizes = np.bincount(owners)
    assert sizes.min() >= 45  # nine tenths of 50 or more
    # The median of 50 + lognormal(4, 2) is 50 + e⁴ = 104.6; 4 sd of the median of 400 is ± 28.
    assert 0.9 * 78 < np.median(sizes) < 0.9 * 140
    assert len(data.test_targets) == pytest.approx(len(owners) / 9, rel=0.02)
    big = np.argsort(sizes)[-1]
    inputs = data.train_inputs[owners == big].astype(np.float64)
    expected = np.arange(1, 61) ** -1.2
    # Relative sd of a variance of n normals is sqrt(2/n); 5 of them for 60 features.
    assert np.abs(inputs.var(axis=0) / expected - 1).max() < 5 * np.sqrt(2 / len(inputs))
    centres = np.array([data.train_inputs[owners == k].mean() for k in range(400)])
    # sd(B_k + mean of 60 N(0, 1)) = sqrt(4 + 1/60); 4 sd of the estimate is 4 · 2 / sqrt(800).
    assert abs(centres.std() - 2.004) < 0.3


def test_one_model_explains_iid_data_and_no_other() -> None:
    def spread(data: DataSet) -> float:
        """How far the owners' shares of labels are apart."""
        owners = data.train_owners
        assert owners is not None
        shares = [
            np.bincount(data.train_targets[owners == k], minlength=10) / np.sum(owners == k)
            for k in range(30)
        ]
        return float(np.std(shares, axis=0).mean())

    iid, apart = SyntheticLogistic(iid=True).load(0), SyntheticLogistic().load(0)
    assert spread(iid) < 0.06 < 0.15 < spread(apart)


def test_every_owner_labels_with_its_own_model() -> None:
    config = SyntheticLogistic(alpha=0.5, num_owners=4, num_features=3, num_classes=5)
    data, rng = config.load(3), stream(3, "data")
    sizes = 50 + rng.lognormal(4, 2, 4).astype(int)
    u = rng.normal(0, 0.5, 4)
    models = [rng.normal(u[k], 1, (3, 5)) for k in range(4)]
    biases = [rng.normal(u[k], 1, 5) for k in range(4)]
    for part in ("train", "test"):
        inputs, labels = getattr(data, f"{part}_inputs"), getattr(data, f"{part}_targets")
        numbers = [int(0.9 * n) if part == "train" else n - int(0.9 * n) for n in sizes]
        owners = [k for k in range(4) for _ in range(numbers[k])]
        assert len(labels) == len(owners)
        for x, label, owner in zip(inputs, labels, owners, strict=True):
            scores = [x @ models[owner][:, c] + biases[owner][c] for c in range(5)]
            assert scores[label] > max(scores) - 1e-4  # x has been rounded to single precision
        if part == "train":
            assert data.train_owners is not None
            assert data.train_owners.tolist() == owners


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ((LinearRegression, {"noise_sd": -1.0}), "noise_sd"),
        ((LinearRegression, {"num_test": 0}), "num_test"),
        ((SyntheticLogistic, {"alpha": float("nan")}), "alpha"),
        ((SyntheticLogistic, {"num_classes": 1}), "num_classes"),
        ((OwnData, {"factory": "no_colon"}), "factory"),
        ((OwnData, {"factory": "a b:c"}), "factory"),
        ((OwnData, {"factory": 3}), "factory"),
    ],
)
def test_bad_settings(config: tuple[type, dict[str, object]], field: str) -> None:
    kind, settings = config
    with pytest.raises(ConfigError, match=field):
        kind(**settings)


def test_round_trip() -> None:
    for config in (
        LinearRegression(noise_sd=0.5),
        SyntheticLogistic(iid=True),
        OwnData(factory="a:b"),
    ):
        assert named(DATASETS, to_table(config), key=(), what="data") == config


MODULE = """
import numpy as np
from fedmuster.training.training_records import DataSet

def load(seed):
    x = np.full((3, 2), seed, dtype=np.float32)
    y = np.zeros(3, dtype=np.int64)
    return DataSet(train_inputs=x, train_targets=y, test_inputs=x, test_targets=y, num_classes=2)

def wrong(seed):
    return [seed]

number = 3
"""


def test_own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_data.py").write_text(MODULE)
    with pytest.raises(ConfigError, match=r"my_own_data.*PYTHONPATH"):
        OwnData(factory="my_own_data:load").load(0)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert OwnData(factory="my_own_data:load").load(7).train_inputs[0, 0] == 7
    assert sys.path == before
    for factory, complaint in (
        ("my_own_data:nothing", "my_own_data has no nothing"),
        ("my_own_data:number", "is int, expected a function"),
        ("my_own_data:wrong", "returned list, expected a DataSet"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            OwnData(factory=factory).load(0)
    monkeypatch.delitem(sys.modules, "my_own_data")
