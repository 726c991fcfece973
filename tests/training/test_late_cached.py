"""SAFA's cache: who starts from which model, what enters when, what is refused."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.training.toy_federation import (
    CLIENTS,
    GOALS,
    SIZES,
    ToyEngine,
    answers,
    play_round,
    still_at_work,
    toy_trainer,
)

from fedmuster.core.errors import ConfigError, StateError
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.core.staleness import CachedModels
from fedmuster.training import stale_merging as cache
from fedmuster.training.aggregation import Aggregation, FedAdam, FedAvg
from fedmuster.training.data import Digits
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import Logistic
from fedmuster.training.training import Training
from fedmuster.training.training_records import Parameters, Updates


@dataclass
class Device:
    """A client of the plain implementation, with the model that lies on it."""

    local: FloatArray | None
    version: int = 0
    on_its_way: tuple[float, FloatArray] | None = None


@dataclass
class PlainSAFA:
    """SAFA as its authors describe it, with a clock: every client has a model of its own."""

    model: FloatArray
    tolerance: int
    weights: FloatArray
    devices: list[Device] = field(default_factory=list)
    cache: list[FloatArray] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.devices = [Device(local=None) for _ in range(CLIENTS)]
        self.cache = [self.model.copy() for _ in range(CLIENTS)]

    def play(
        self,
        t: int,
        asked: list[int],
        picked: list[int],
        undrafted: list[int],
        slow: dict[int, float],
        end: float,
    ) -> None:
        newest = self.model
        # Distribution. A model on its way is lost to a client that is forced to synchronise.
        for k, device in enumerate(self.devices):
            lag = (t - 1) - device.version
            if lag > self.tolerance:
                self.cache[k] = newest
                device.on_its_way = None
            if k in asked and (lag == 0 or lag > self.tolerance or device.local is None):
                device.local, device.version = newest, t - 1
        # Local training.
        trained = {}
        for k in [*picked, *undrafted, *slow]:
            local = self.devices[k].local
            assert local is not None
            trained[k] = local + 0.5 * (GOALS[k].astype(np.float64) + 0.1 * t - local)
        # Aggregation.
        for k, device in enumerate(self.devices):
            if device.on_its_way is not None and device.on_its_way[0] <= end:
                self.cache[k] = device.local = device.on_its_way[1]
                device.version, device.on_its_way = t, None
        for k in picked:
            self.cache[k] = trained[k]
        self.model = self.weights @ np.array(self.cache) / self.weights.sum()
        for k in undrafted:
            self.cache[k] = trained[k]
        for k in [*picked, *undrafted]:
            self.devices[k].local, self.devices[k].version = trained[k], t
        for k, arrives in slow.items():
            self.devices[k].on_its_way = (arrives, trained[k])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("tolerance", [1, 2, 5])
@pytest.mark.parametrize("server", [FedAvg(), FedAvg(weights="uniform")])
def test_the_model_is_that_of_a_plain_implementation(
    seed: int, tolerance: int, server: FedAvg
) -> None:
    rng = np.random.default_rng(seed)
    trainer = toy_trainer(CachedModels(lag_tolerance=tolerance), server=server)
    weights = SIZES.astype(np.float64) if server.weights == "data" else np.ones(CLIENTS)
    plain = PlainSAFA(trainer.parameters.astype(np.float64), tolerance, weights)
    for t in range(1, 41):
        busy = [k for k, device in enumerate(plain.devices) if device.on_its_way is not None]
        np.testing.assert_array_equal(np.sort(still_at_work(trainer)), busy)
        asked = [k for k in range(CLIENTS) if k not in busy and rng.random() < 0.6]
        # 0: crashes, 1: late, 2: undrafted, 3: picked; always somebody to pick, or nothing moves.
        fate = {k: int(rng.integers(4)) for k in asked}
        if 3 not in fate.values():
            chosen = int(rng.choice(asked)) if asked else None
            fate |= {} if chosen is None else {chosen: 3}
        slow = {k: t + float(rng.uniform(0.1, 4.0)) for k in asked if fate[k] == 1}
        undrafted = [k for k in asked if fate[k] == 2]
        picked = [k for k in asked if fate[k] == 3]
        if not picked:
            continue
        feedback = answers(t, asked, [*picked, *undrafted], used=picked)
        play_round(trainer, feedback, arrivals=slow, ends_at_seconds=float(t))
        plain.play(t, asked, picked, undrafted, slow, float(t))
        np.testing.assert_allclose(trainer.parameters, plain.model, atol=1e-5)


class WatchedEngine(ToyEngine):
    """Remembers from which model each client trained."""

    def __init__(self) -> None:
        super().__init__()
        self.start: dict[int, Parameters] = {}

    def train(
        self, parameters: Parameters, clients: IntArray, round_number: int, order: int | None = None
    ) -> Updates:
        self.start.update(dict.fromkeys(clients.tolist(), parameters.copy()))
        return super().train(parameters, clients, round_number)


def test_lag_tolerant_distribution_by_hand() -> None:
    """Client 0 answers every round, 1 answers once and is away, 2 is asked and crashes."""
    engine = WatchedEngine()
    trainer = toy_trainer(CachedModels(lag_tolerance=2), engine=engine)
    models = [trainer.parameters]
    rounds = [  # asked, answered
        ([0, 1, 2], [0, 1, 2]),
        ([0, 2], [0]),  # 2 is up to date, is sent W(1), and crashes
        ([0, 1, 2], [0, 1, 2]),  # both are tolerable: 1 has its own model, 2 has W(1)
        ([0], [0]),
        ([0], [0]),
        ([0], [0]),
        ([0, 1], [0, 1]),  # 1 is deprecated: 7 - 1 - 3 > 2
    ]
    starts = []
    for t, (asked, answered) in enumerate(rounds, start=1):
        engine.start.clear()
        play_round(trainer, answers(t, asked, answered), ends_at_seconds=float(t))
        models.append(trainer.parameters)
        starts.append(dict(engine.start))
    own = models[0] + 0.5 * (GOALS[1] + np.float32(0.1) - models[0])
    np.testing.assert_array_equal(starts[2][0], models[2])
    np.testing.assert_allclose(starts[2][1], own, atol=1e-6)
    np.testing.assert_array_equal(starts[2][2], models[1])
    np.testing.assert_array_equal(starts[6][1], models[6])


def test_three_steps_of_aggregation_by_hand() -> None:
    """Two of six are picked, one is undrafted: it counts from the next round on."""
    trainer = toy_trainer(CachedModels(), server=FedAvg(weights="uniform"))
    w0 = trainer.parameters
    play_round(trainer, answers(1, [0, 1, 2], [0, 1, 2], used=[0, 1]), ends_at_seconds=1.0)
    first = [w0 + 0.5 * (GOALS[k] + np.float32(0.1) - w0) for k in range(3)]
    w1 = (first[0] + first[1] + 4 * w0) / 6
    np.testing.assert_allclose(trainer.parameters, w1, atol=1e-6)
    play_round(trainer, answers(2, [0], [0]), ends_at_seconds=2.0)
    again = w1 + 0.5 * (GOALS[0] + np.float32(0.2) - w1)
    w2 = (again + first[1] + first[2] + 3 * w0) / 6
    np.testing.assert_allclose(trainer.parameters, w2, atol=1e-6)


def test_work_of_a_client_that_becomes_deprecated_on_the_way_is_lost() -> None:
    trainer = toy_trainer(CachedModels(lag_tolerance=1))
    play_round(trainer, answers(1, [0, 1], [0]), arrivals={1: 99.0}, ends_at_seconds=1.0)
    np.testing.assert_array_equal(still_at_work(trainer), [1])
    play_round(trainer, answers(2, [0], [0]), ends_at_seconds=2.0)
    np.testing.assert_array_equal(still_at_work(trainer), [1])
    play_round(trainer, answers(3, [0], [0]), ends_at_seconds=3.0)
    assert len(still_at_work(trainer)) == 0


def test_other_servers_take_the_change_for_a_gradient() -> None:
    adam, plain = toy_trainer(CachedModels(), server=FedAdam()), toy_trainer(CachedModels())
    before = adam.parameters.copy()
    for trainer in (adam, plain):
        play_round(trainer, answers(1, [0, 1], [0, 1]), ends_at_seconds=1.0)
    delta = plain.parameters - before
    second_moment = 0.99 * 1e-6 + 0.01 * delta.astype(np.float64) ** 2
    expected = before + 0.01 * 0.1 * delta / (np.sqrt(second_moment) + 1e-3)
    np.testing.assert_allclose(adam.parameters, expected, atol=1e-6)


def test_with_too_few_answers_the_model_stays_and_the_cache_learns() -> None:
    trainer = toy_trainer(CachedModels(), min_answers=2, server=FedAvg(weights="uniform"))
    w0 = trainer.parameters
    _, row = play_round(trainer, answers(1, [0], [0]), ends_at_seconds=1.0)
    assert row.num_aggregated == 0
    np.testing.assert_array_equal(trainer.parameters, w0)
    play_round(trainer, answers(2, [1, 2], [1, 2]), ends_at_seconds=2.0)
    trained: NDArray[np.float32] = np.array(
        [w0 + 0.5 * (GOALS[k] + np.float32(0.1 * t) - w0) for k, t in ((0, 1), (1, 2), (2, 2))]
    )
    np.testing.assert_allclose(trainer.parameters, (trained.sum(axis=0) + 3 * w0) / 6, atol=1e-6)


def test_a_round_in_which_nobody_answers_is_survived() -> None:
    trainer = toy_trainer(CachedModels())
    before = trainer.parameters.copy()
    sent, row = play_round(trainer, answers(1, [0, 1], []), ends_at_seconds=1.0)
    assert row.num_aggregated == 0
    assert sent.updates.signals["loss"].shape == (0,)
    np.testing.assert_array_equal(trainer.parameters, before)


def test_a_cache_that_would_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_MOST_BYTES", CLIENTS * 4 * 4)
    toy_trainer(CachedModels())
    monkeypatch.setattr(cache, "_MOST_BYTES", CLIENTS * 4 * 4 - 1)
    with pytest.raises(ConfigError, match=r"6 clients with 4 parameters .* fewer clients"):
        toy_trainer(CachedModels())


@pytest.mark.parametrize("server", [FedAvg(clip_norm=1.0), FedAdam(clip_norm=1.0)])
def test_clipping_is_refused(server: Aggregation) -> None:
    with pytest.raises(ConfigError, match="clip_norm") as caught:
        toy_trainer(CachedModels(), server=server)
    assert caught.value.key == ("server", "clip_norm")


def test_a_cache_of_other_clients_is_refused() -> None:
    training = Training(data=Digits(train_limit=200), model=Logistic(), local=LocalSGD())
    few, many = (training.start(num_clients=k, seed=1, staleness=CachedModels()) for k in (3, 4))
    with pytest.raises(StateError, match="other clients"):
        few.load(many.to_bytes(), source="there")
