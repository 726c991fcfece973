"""Training without rounds, against a plain loop by hand over the jobs that the journal has."""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.faults.watching import wrap
from tests.federation.row_values import all_jobs, assert_same_row, play
from tests.training.toy_federation import CLIENTS, GOALS, SIZES, ToyEngine
from tests.training.toy_training import ToyTraining

from fedmuster.core.records import Feedback, IntArray
from fedmuster.core.staleness import (
    AgeAndNovelty,
    ConstantWorth,
    Discard,
    HingeWorth,
    PolynomialWorth,
    Staleness,
)
from fedmuster.federation import Federation, JobRows, RoundRow, Simulation
from fedmuster.federation.triggers import Interval
from fedmuster.training.aggregation import (
    Aggregation,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedYogi,
    ModelMixing,
)
from fedmuster.training.data.built_in import Digits
from fedmuster.training.models import Logistic
from fedmuster.training.networks import OwnModel
from fedmuster.training.training import Training
from fedmuster.training.training_records import Parameters, Updates
from fedmuster.worlds import BSFLRates, LatencyWorld

Model = NDArray[np.float64]

WORLD = LatencyWorld(num_clients=CLIENTS, cohort_size=3)
BUFFER = Federation(concurrency=4, buffer=2)


def start(federation: Federation = BUFFER, **training: Any) -> Simulation[Any]:
    toy: Any = ToyTraining(**training)
    return Simulation("random", WORLD, seed=6, federation=federation, training=toy)


def model_of(simulation: Simulation[Any]) -> Parameters:
    assert simulation.trainer is not None
    return simulation.trainer.parameters


Mean = Callable[[Model, JobRows, Model], Model]
"""(updates [n, P], their jobs, the models that they were trained from) -> how the model moves."""


def delta_of(model: Model, client: int, version: int) -> Model:
    """What the toy engine does: half of the way to a goal that wanders from round to round."""
    return np.asarray(0.5 * (GOALS[client] + 0.1 * (version + 1) - model))


def play_by_hand(rows: list[RoundRow], move: Mean) -> list[Model]:
    """The model before the first aggregation and after each, from the journal's jobs alone."""
    models = [ToyEngine().initial().astype(np.float64)]
    for row in rows:
        assert row.jobs is not None
        jobs = JobRows(**{n: column[row.jobs.used] for n, column in row.jobs.arrays().items()})
        assert (jobs.version <= len(models) - 1).all()
        starts = np.array([models[version] for version in jobs.version.tolist()])
        deltas = np.array(
            [
                delta_of(start, client, version)
                for start, client, version in zip(
                    starts, jobs.client.tolist(), jobs.version.tolist(), strict=True
                )
            ]
        )
        step = move(deltas, jobs, starts) if len(deltas) > 0 else np.zeros_like(models[-1])
        models.append(models[-1] + step)
    return models


def by_data(worth: Callable[[IntArray], Any]) -> Mean:
    """``(1 / sum n) sum n_k worth(s_k) delta_k``."""

    def move(deltas: Model, jobs: JobRows, starts: Model) -> Model:
        sizes = SIZES[jobs.client]
        weights = sizes * worth(jobs.age) / sizes.sum()
        return np.asarray(weights @ deltas)

    return move


RULES: dict[str, tuple[Staleness, Callable[[IntArray], Any]]] = {
    "fedbuff": (PolynomialWorth(), lambda age: (1.0 + age) ** -0.5),
    "steeper": (PolynomialWorth(power=2.0), lambda age: (1.0 + age) ** -2.0),
    "constant": (ConstantWorth(), lambda age: np.ones(len(age))),
    "hinge": (
        HingeWorth(slope=2.0, grace=1),
        lambda age: np.where(age <= 1, 1.0, 1.0 / (2.0 * np.maximum(age - 1, 0) + 1.0)),
    ),
    "max_age": (ConstantWorth(max_age=1), lambda age: np.ones(len(age))),
    "discard": (Discard(), lambda age: np.ones(len(age))),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "federation",
    [
        BUFFER,
        Federation(concurrency=4, buffer=1),
        Federation(concurrency=5, refill=3, buffer=4),
        Federation(concurrency=4, trigger=Interval(seconds=1.0)),
    ],
    ids=["buffer", "every answer", "refill", "interval"],
)
def test_the_model_moves_by_the_mean_of_shortened_updates(
    rule: str, federation: Federation
) -> None:
    staleness, worth = RULES[rule]
    simulation = start(replace(federation, staleness=staleness))
    rows = play(simulation, 40)
    models = play_by_hand(rows, by_data(worth))
    np.testing.assert_allclose(model_of(simulation), models[-1], atol=1e-5)
    jobs = all_jobs(rows)
    assert jobs.answered.all()
    assert jobs.age.max() > 1
    oldest = {"max_age": 1, "discard": 0}.get(rule, 1000)
    np.testing.assert_array_equal(jobs.used, jobs.age <= oldest)
    for row in rows:
        assert row.jobs is not None
        assert row.learning.num_aggregated == np.count_nonzero(row.jobs.used)
        np.testing.assert_array_equal(row.jobs.age, row.round - 1 - row.jobs.version)


@pytest.mark.parametrize("rule", ["fedbuff", "constant", "hinge"])
def test_fedasync_mixes_each_client_s_model_by_its_age(rule: str) -> None:
    """``w <- (1 - alpha_s) w + alpha_s w_k``, where w_k has begun from an older model."""
    staleness, worth = RULES[rule]
    federation = Federation(concurrency=4, buffer=1, staleness=staleness)
    simulation = start(federation, server=ModelMixing(mixing=0.6))
    rows = play(simulation, 40)
    models = [ToyEngine().initial().astype(np.float64)]
    for row in rows:
        assert row.jobs is not None
        ((client, version, age),) = zip(
            row.jobs.client.tolist(), row.jobs.version.tolist(), row.jobs.age.tolist(), strict=True
        )
        trained = models[version] + delta_of(models[version], client, version)
        alpha = 0.6 * float(worth(np.array([age]))[0])
        models.append((1 - alpha) * models[-1] + alpha * trained)
    np.testing.assert_allclose(model_of(simulation), models[-1], atol=1e-5)
    assert all_jobs(rows).age.max() > 1


def test_refl_weighs_old_answers_by_age_and_novelty_against_the_youngest() -> None:
    def move(deltas: Model, jobs: JobRows, starts: Model) -> Model:
        fresh = jobs.age == jobs.age.min()
        mean = deltas[fresh].mean(axis=0)
        weights = np.ones(len(deltas))
        if not fresh.all():
            count = np.count_nonzero(fresh)
            change = np.square((deltas[~fresh] - mean) / (count + 1)).sum(axis=1)
            novelty = 1 - np.exp(-change / change.max())
            weights[~fresh] = 0.65 / (jobs.age[~fresh] + 1) + 0.35 * novelty
        return np.asarray(weights @ deltas / weights.sum())

    federation = Federation(concurrency=5, buffer=4, staleness=AgeAndNovelty())
    simulation = start(federation, server=FedAvg(weights="uniform"))
    rows = play(simulation, 30)
    models = play_by_hand(rows, move)
    np.testing.assert_allclose(model_of(simulation), models[-1], atol=1e-5)
    assert any(len(set(row.jobs.age.tolist())) > 1 for row in rows if row.jobs is not None)


def _median(deltas: Model, jobs: JobRows) -> Model:
    worth = (1.0 + jobs.age) ** -0.5
    return np.asarray(np.median(worth[:, np.newaxis] * deltas, axis=0))


def _mean(deltas: Model, jobs: JobRows) -> Model:
    return by_data(RULES["fedbuff"][1])(deltas, jobs, deltas)


@dataclass
class Moments:
    """Algorithm 2 of Reddi et al., and the momentum of Hsu et al., by hand."""

    momentum: Any = 0.0
    second: Any = 1e-6

    def fedavgm(self, delta: Model) -> Model:
        self.momentum = 0.9 * self.momentum + delta
        return np.asarray(self.momentum)

    def fedadagrad(self, delta: Model) -> Model:
        self.second = self.second + delta**2
        return np.asarray(0.1 * delta / (np.sqrt(self.second) + 1e-3))

    def fedadam(self, delta: Model) -> Model:
        self.second = 0.99 * self.second + 0.01 * delta**2
        return self._adaptive(delta)

    def fedyogi(self, delta: Model) -> Model:
        self.second = self.second - 0.01 * delta**2 * np.sign(self.second - delta**2)
        return self._adaptive(delta)

    def _adaptive(self, delta: Model) -> Model:
        self.momentum = 0.9 * self.momentum + 0.1 * delta
        return np.asarray(0.01 * self.momentum / (np.sqrt(self.second) + 1e-3))


@pytest.mark.parametrize(
    ("server", "combine", "step"),
    [
        (FedMedian(), _median, lambda moments: lambda delta: delta),
        (FedAvgM(), _mean, lambda moments: moments.fedavgm),
        (FedAdagrad(), _mean, lambda moments: moments.fedadagrad),
        (FedAdam(), _mean, lambda moments: moments.fedadam),
        (FedYogi(), _mean, lambda moments: moments.fedyogi),
    ],
    ids=["median", "fedavgm", "fedadagrad", "fedadam", "fedyogi"],
)
def test_a_server_rule_takes_a_buffer_for_a_cohort(
    server: Aggregation, combine: Any, step: Any
) -> None:
    apply = step(Moments())
    simulation = start(Federation(concurrency=5, buffer=3), server=server)
    rows = play(simulation, 25)
    models = play_by_hand(rows, lambda deltas, jobs, _: apply(combine(deltas, jobs)))
    np.testing.assert_allclose(model_of(simulation), models[-1], atol=2e-4)


def test_updates_that_are_not_finite_are_rejected_counted_and_told() -> None:
    simulation = start(engine=ToyEngine(poisoned=[2, 4]))
    heard: defaultdict[int, list[bool]] = defaultdict(list)

    def observe(original: Callable[..., Any], feedback: Feedback) -> Any:
        for client, came in zip(feedback.clients.tolist(), feedback.answered.tolist(), strict=True):
            heard[client].append(came)
        return original(feedback)

    wrap(simulation.selector, "observe", observe)
    rows = play(simulation, 40)
    for row in rows:
        assert row.jobs is not None
        bad = np.isin(row.jobs.client, [2, 4])
        np.testing.assert_array_equal(row.learning.rejected, row.jobs.client[bad])
        np.testing.assert_array_equal(row.jobs.used, ~bad)
        assert row.jobs.answered.all()
        assert row.num_completed == row.learning.num_aggregated == np.count_nonzero(~bad)
    assert sum(len(row.learning.rejected) for row in rows) > 10
    for client, came in heard.items():
        assert came == [client not in (2, 4)] * len(came)
    np.testing.assert_allclose(
        model_of(simulation), play_by_hand(rows, by_data(RULES["fedbuff"][1]))[-1], atol=1e-5
    )


def test_too_few_answers_leave_the_model_and_are_not_used() -> None:
    federation = Federation(concurrency=5, buffer=4, staleness=ConstantWorth(max_age=1))
    simulation = start(federation, min_answers=4)
    rows, kept = [], 0
    for _ in range(40):
        before = model_of(simulation)
        row = simulation.step()
        assert row.jobs is not None
        young = np.count_nonzero(row.jobs.age <= 1)
        enough = young >= 4
        kept += not enough
        assert row.learning.num_aggregated == (young if enough else 0)
        np.testing.assert_array_equal(row.jobs.used, (row.jobs.age <= 1) & enough)
        assert np.array_equal(model_of(simulation), before) != enough
        rows.append(row)
    assert 0 < kept < 40
    models = play_by_hand(rows, by_data(lambda age: np.ones(len(age))))
    np.testing.assert_allclose(model_of(simulation), models[-1], atol=1e-5)


class Logged(ToyEngine):
    """Says who trained from which model in which order of samples."""

    def __init__(self) -> None:
        super().__init__()
        self.trained: list[tuple[int, bytes, int, int]] = []

    def train(
        self, parameters: Parameters, clients: IntArray, round_number: int, order: int | None = None
    ) -> Updates:
        assert order is not None
        self.trained += [
            (client, parameters.tobytes(), round_number, order) for client in clients.tolist()
        ]
        return super().train(parameters, clients, round_number, order)


def test_a_client_that_is_asked_twice_on_one_model_takes_its_samples_in_another_order() -> None:
    engine = Logged()
    play(start(Federation(concurrency=4, buffer=4, refill=1), engine=engine), 30)
    orders: defaultdict[tuple[int, bytes], list[int]] = defaultdict(list)
    for client, model, _, order in engine.trained:
        orders[client, model].append(order)
    assert sum(len(taken) > 1 for taken in orders.values()) > 10
    assert all(len(set(taken)) == len(taken) for taken in orders.values())
    of_client: defaultdict[int, list[int]] = defaultdict(list)
    for client, _, _, order in engine.trained:
        of_client[client].append(order)
    assert all(len(set(taken)) == len(taken) for taken in of_client.values())


def test_an_order_of_samples_makes_another_update() -> None:
    training = Training(data=Digits(train_limit=200), model=Logistic())
    trainer = training.start(num_clients=4, seed=1)
    clients, starts, rounds = np.array([1, 1]), [trainer.parameters] * 2, np.array([3, 3])
    same = trainer.send(clients, starts, rounds, orders=np.array([5, 5])).updates.deltas
    other = trainer.send(clients, starts, rounds, orders=np.array([5, 6])).updates.deltas
    np.testing.assert_array_equal(same[0], same[1])
    np.testing.assert_array_equal(same[0], other[0])
    assert not np.array_equal(other[0], other[1])


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_networks_go_on_from_a_checkpoint_bit_for_bit(workers: int) -> None:
    training = Training(
        data=Digits(train_limit=120, test_limit=40),
        model=OwnModel(factory="tests.experiments.tiny_network:make"),
        workers=workers,
        evaluate_every=2,
    )

    def begin() -> Simulation[Any]:
        world = BSFLRates(num_clients=8)
        return Simulation("random", world, seed=2, federation=BUFFER, training=training)

    whole, resumed = begin(), begin()
    for _ in range(6 // workers):
        assert_same_row(whole.step(), resumed.step())
        checkpoint = resumed.checkpoint()
        resumed.close()
        resumed = begin()
        resumed.load(checkpoint, source="here")
    np.testing.assert_array_equal(model_of(whole), model_of(resumed))
    whole.close()
    resumed.close()


def test_the_mean_training_loss_is_of_all_answers_of_a_row() -> None:
    simulation = start()
    rows = play(simulation, 10)
    models = play_by_hand(rows, by_data(RULES["fedbuff"][1]))
    for row in rows:
        assert row.jobs is not None
        losses = [
            delta_of(models[version], client, version)[0] ** 2 + 1.0
            for client, version in zip(
                row.jobs.client.tolist(), row.jobs.version.tolist(), strict=True
            )
        ]
        assert math.isclose(row.learning.train_loss, np.mean(losses), rel_tol=1e-4)
