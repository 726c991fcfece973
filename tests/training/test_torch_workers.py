"""Worker processes: the same bits, clear ends, nothing left behind."""

import gc
import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import active_children, get_context
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor, nn

from fedmuster.core.errors import ConfigError, StateError
from fedmuster.training.engines.torch_engine import TorchEngine
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.networks import SmallCNN
from fedmuster.training.training_records import FederatedData, Parameters, Updates

LOCAL = LocalSGD(learning_rate=0.05, batch_size=6, epochs=2, momentum=0.5, measure_gain=True)
CLIENTS = np.array([5, 0, 2, 3, 1])
FAILING = 11
"""So many samples end in a batch of five, which client 6 cannot take."""


def images(sizes: tuple[int, ...] = (13, 1, 20, 0, 7, 9, FAILING)) -> FederatedData:
    rng = np.random.default_rng(3)
    total = sum(sizes)
    return FederatedData(
        inputs=rng.normal(size=(total, 1, 8, 8)).astype(np.float32),
        targets=rng.integers(0, 4, total),
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        test_inputs=rng.normal(size=(901, 1, 8, 8)).astype(np.float32),
        test_targets=rng.integers(0, 4, 901),
        num_classes=4,
    )


class Own(nn.Module):
    """With all that could make a difference: statistics, dropout; and it may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.dropout = nn.Dropout(0.4)
        self.last = nn.Linear(4 * 6 * 6, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.dropout(self.norm(self.convolution(inputs)).relu())
        if self.training and len(inputs) == 5:
            raise FloatingPointError("no five")
        outputs: Tensor = self.last(hidden.flatten(1))
        return outputs


def assert_same_bits(one: TorchEngine, other: TorchEngine) -> None:
    start: Parameters = one.initial()
    np.testing.assert_array_equal(start, other.initial())
    for round_number in (1, 2):
        assert_same_updates(
            one.train(start, CLIENTS, round_number), other.train(start, CLIENTS, round_number)
        )
    np.testing.assert_array_equal(one.losses(start, CLIENTS), other.losses(start, CLIENTS))
    assert one.evaluate(start) == other.evaluate(start)


def assert_same_updates(one: Updates, other: Updates) -> None:
    assert one.deltas.any()
    np.testing.assert_array_equal(one.deltas, other.deltas)
    assert list(one.signals) == list(other.signals)
    for name, values in one.signals.items():
        np.testing.assert_array_equal(values, other.signals[name])


def workers() -> list[int]:
    """Their process ids, in order."""
    found = [p for p in active_children() if p.name.startswith("fedmuster-worker")]
    return [process.pid or 0 for process in sorted(found, key=lambda process: process.name)]


def gone(pid: int, *, within_seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + within_seconds
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_two_workers_give_the_bits_of_one_and_an_error_arrives_as_it_is() -> None:
    pair = TorchEngine(Own, images(), LOCAL, 5, workers=2)
    assert_same_bits(TorchEngine(Own, images(), LOCAL, 5), pair)
    nobody = pair.train(pair.initial(), CLIENTS[:0], 1)
    assert nobody.deltas.shape == (0, len(pair.initial()))
    with pytest.raises(FloatingPointError, match="no five") as caught:
        pair.train(pair.initial(), np.array([0, 6]), 1)
    assert "in a worker process" in caught.value.__notes__[0]
    assert not workers()
    with pytest.raises(StateError, match="closed; make a new engine"):
        pair.train(pair.initial(), CLIENTS, 1)


def test_three_workers_give_the_bits_of_one_and_a_killed_one_is_no_hang() -> None:
    engine = TorchEngine(SmallCNN(), images(), LOCAL, 5, workers=3)
    assert_same_bits(TorchEngine(SmallCNN(), images(), LOCAL, 5), engine)
    os.kill(workers()[1], signal.SIGKILL)
    with pytest.raises(StateError, match=r"worker process 1 died \(exit code -9"):
        engine.train(engine.initial(), CLIENTS, 1)
    assert not workers()
    with pytest.raises(StateError, match="closed; make a new engine"):
        engine.evaluate(engine.initial())


def test_closures_need_a_single_worker() -> None:
    layer = nn.Linear(64, 4)

    def closure() -> nn.Module:
        return nn.Sequential(nn.Flatten(), layer)

    TorchEngine(closure, images(), LOCAL, 5)
    with pytest.raises(ConfigError, match="1"):
        TorchEngine(closure, images(), LOCAL, 5, workers=2)


def train_elsewhere() -> tuple[Parameters, list[int]]:
    """In a process of a pool: an update, and the processes that stay when this is done."""
    engine = TorchEngine(Own, images(), LOCAL, 5, workers=2)
    KEPT.append(engine)
    return engine.train(engine.initial(), CLIENTS, 1).deltas, [os.getpid(), *workers()]


KEPT: list[TorchEngine] = []


def test_workers_of_a_process_that_is_killed_end_too() -> None:
    """A sweep runs experiments in processes of their own."""
    shared = Path("/dev/shm")
    before = set(shared.glob("pym-*"))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        deltas, pids = pool.submit(train_elsewhere).result()
        assert len(pids) == 3
        os.kill(pids[0], signal.SIGKILL)
    assert all(map(gone, pids))
    assert set(shared.glob("pym-*")) <= before
    engine = TorchEngine(Own, images(), LOCAL, 5)
    np.testing.assert_array_equal(deltas, engine.train(engine.initial(), CLIENTS, 1).deltas)


def test_workers_end_with_their_engine() -> None:
    engine = TorchEngine(Own, images(), LOCAL, 5, workers=2)
    pids = workers()
    assert len(pids) == 2
    del engine
    gc.collect()
    assert all(map(gone, pids))
