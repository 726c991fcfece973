"""Data as clients own it: gathered, noisy, standardised; against a plain loop."""

import dataclasses
import re
import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedmuster.core.errors import DataError
from fedmuster.training import training as module
from fedmuster.training.training import federate
from fedmuster.training.training_records import DataSet, FederatedData, Shares

SHAPE = (2, 3, 3)


@pytest.fixture
def data() -> DataSet:
    rng = np.random.default_rng(0)
    return DataSet(
        train_inputs=rng.random((40, *SHAPE), dtype=np.float32),
        train_targets=rng.integers(0, 5, 40),
        test_inputs=rng.random((7, *SHAPE), dtype=np.float32),
        test_targets=rng.integers(0, 5, 7),
        num_classes=5,
        mean=0.4,
        sd=0.25,
    )


def shares(**changes: Any) -> Shares:
    # Sample 7 belongs to two clients, 30 to nobody.
    given = Shares(rows=np.array([7, 3, 39, 7, 0, 1, 2]), offsets=np.array([0, 2, 3, 7]))
    return dataclasses.replace(given, **changes)


def raw(federated: FederatedData, data: DataSet) -> np.ndarray[Any, np.dtype[np.float64]]:
    return federated.inputs.astype(np.float64) * data.sd + data.mean


def test_each_client_has_its_samples_standardised(data: DataSet) -> None:
    quality = np.array([0.5, 1.0, 0.75])
    federated = federate(data, shares(quality=quality), seed=1)
    for client, rows in enumerate(([7, 3], [39], [7, 0, 1, 2])):
        mine = slice(federated.offsets[client], federated.offsets[client + 1])
        for found, row in zip(federated.inputs[mine], rows, strict=True):
            expected = (data.train_inputs[row].astype(np.float64) - 0.4) / 0.25
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert federated.targets[mine].tolist() == data.train_targets[rows].tolist()
    np.testing.assert_allclose(
        federated.test_inputs, (data.test_inputs - 0.4) / 0.25, rtol=1e-5, atol=1e-6
    )
    assert federated.test_targets.tolist() == data.test_targets.tolist()
    assert federated.inputs.dtype == federated.test_inputs.dtype == np.float32
    assert federated.quality is quality
    assert federated.num_classes == 5
    assert federated.sizes.tolist() == [2, 1, 4]
    assert federated.input_shape == SHAPE


def test_the_data_set_stays_as_it_is(data: DataSet) -> None:
    before = data.train_inputs.copy(), data.test_inputs.copy()
    federate(data, shares(noise_sd=np.ones(3)), seed=1)
    assert (data.train_inputs == before[0]).all()
    assert (data.test_inputs == before[1]).all()


def test_a_regression(data: DataSet) -> None:
    values = data.train_inputs[:, 0, 0, 0].copy()
    numbers = dataclasses.replace(
        data, train_targets=values, test_targets=values[:7], num_classes=0
    )
    federated = federate(numbers, shares(), seed=1)
    assert federated.targets.dtype == np.float32
    assert federated.targets.tolist() == values[[7, 3, 39, 7, 0, 1, 2]].tolist()


def test_noise_has_each_clients_deviation_and_is_not_clipped() -> None:
    pixels = np.ones((3_000, 16), dtype=np.float32)
    data = DataSet(
        train_inputs=pixels,
        train_targets=np.zeros(3_000, dtype=np.int64),
        test_inputs=pixels[:5],
        test_targets=np.zeros(5, dtype=np.int64),
        num_classes=1,
        mean=0.5,
        sd=2.0,
    )
    sd = np.array([0.0, 0.125, 0.5])
    noisy = Shares(rows=np.arange(3_000), offsets=np.arange(4) * 1_000, noise_sd=sd)
    federated = federate(data, noisy, seed=4)
    noise = (raw(federated, data) - 1.0).reshape(3, -1)
    assert (noise[0] == 0).all()
    for client in (1, 2):
        assert stats.kstest(noise[client], stats.norm(0, sd[client]).cdf).pvalue > 0.001
    assert raw(federated, data).max() > 1.5
    assert (federated.test_inputs == 0.25).all()


def test_noise_is_the_same_bits_whatever_the_blocks(
    data: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy = shares(noise_sd=np.array([0.1, 0.2, 0.3]))
    whole = federate(data, noisy, seed=5).inputs
    for size in (1, 200, 300):
        monkeypatch.setattr(module, "_BLOCK_BYTES", size)
        assert federate(data, noisy, seed=5).inputs.tobytes() == whole.tobytes()
    assert federate(data, noisy, seed=6).inputs.tobytes() != whole.tobytes()


def test_little_more_memory_than_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", 2**18)
    inputs = np.zeros((4_000, 1_000), dtype=np.float32)  # 16 MB
    data = DataSet(
        train_inputs=inputs,
        train_targets=np.zeros(4_000, dtype=np.int64),
        test_inputs=inputs[:10],
        test_targets=np.zeros(10, dtype=np.int64),
        num_classes=1,
        mean=1.0,
        sd=3.0,
    )
    noisy = Shares(rows=np.arange(4_000), offsets=np.array([0, 4_000]), noise_sd=np.ones(1))
    tracemalloc.start()
    try:
        federate(data, noisy, seed=1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.1 * inputs.nbytes


BAD: list[tuple[dict[str, Any], str]] = [
    ({"rows": np.array([40, 3, 39, 7, 0, 1, 2])}, "rows must be samples 0 … 39"),
    ({"rows": np.array([-1, 3, 39, 7, 0, 1, 2])}, "rows must be samples 0 … 39"),
    ({"rows": np.zeros(7)}, "rows must be samples 0 … 39"),
    ({"rows": np.zeros((7, 1), dtype=np.int64)}, "rows has shape (7, 1)"),
    ({"offsets": np.array([7])}, "offsets (1,)"),
    ({"offsets": np.array([0, 2, 6])}, "offsets go from 0 to 6, expected 0 to 7"),
    ({"offsets": np.array([1, 2, 7])}, "offsets go from 1 to 7"),
    ({"offsets": np.array([0, 2, 2, 7])}, "client 1 has no samples"),
    ({"offsets": np.array([0, 5, 3, 7])}, "client 1 has no samples"),
    ({"quality": np.array([0.5, 1.0])}, "quality must hold a number from 0 to 1"),
    ({"quality": np.array([0.5, 1.0, 1.1])}, "quality must hold"),
    ({"noise_sd": np.array([0.5, 1.0, np.nan])}, "noise_sd must hold"),
    ({"noise_sd": np.array([0.5, 1.0, np.inf])}, "noise_sd must hold"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_bad_shares_are_refused(data: DataSet, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        federate(data, shares(**changes), seed=1)


@pytest.mark.parametrize("changes", [{"sd": 0.0}, {"sd": np.inf}, {"mean": np.nan}])
def test_what_cannot_be_standardised_is_refused(data: DataSet, changes: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="expected finite, and sd > 0"):
        federate(dataclasses.replace(data, **changes), shares(), seed=1)
