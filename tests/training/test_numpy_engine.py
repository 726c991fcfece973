"""The NumPy engine against a plain PyTorch loop, form against form, signals by definition."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, log_loss, mean_squared_error

from fedmuster.core.errors import ConfigError, DataError
from fedmuster.core.records import FloatArray
from fedmuster.training.engines.first_layer import Form
from fedmuster.training.engines.numpy_engine import NumpyEngine
from fedmuster.training.engines.torch_engine import TorchEngine
from fedmuster.training.local_sgd import LocalSGD, StepDecay, batches
from fedmuster.training.models import MLP, DenseModel, Linear, Logistic
from fedmuster.training.training_records import SIGNALS, Engine, FederatedData, Parameters

SEED = 5
SIZES = (7, 0, 1, 40, 23, 20, 3, 64, 8, 31)
EVERYBODY = np.arange(len(SIZES))
MODELS: list[DenseModel] = [Linear(), Logistic(), MLP(hidden=(9,)), MLP(hidden=(8, 5))]
LOCALS = {
    "plain": LocalSGD(),
    "epochs": LocalSGD(epochs=3, batch_size=8),
    "steps": LocalSGD(steps=7, batch_size=6),
    "full batch": LocalSGD(batch_size=0, epochs=2),
    "full batches, steps": LocalSGD(batch_size=0, steps=3),
    "batches of one": LocalSGD(batch_size=1),
    "momentum": LocalSGD(momentum=0.9, epochs=2),
    "weight decay": LocalSGD(weight_decay=0.1, epochs=2),
    "proximal": LocalSGD(proximal=0.5, epochs=2),
    "all": LocalSGD(momentum=0.5, weight_decay=0.1, proximal=0.5, epochs=2, batch_size=9),
    "schedule": LocalSGD(schedule=StepDecay(every=2, gamma=0.1)),
}
FORMS: tuple[Form, ...] = ("stacked", "gram")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """PyTorch's threads wait for each other longer than these models take."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def federation(
    *, classes: int, sizes: tuple[int, ...] = SIZES, shape: tuple[int, ...] = (3, 4), seed: int = 0
) -> FederatedData:
    rng = np.random.default_rng(seed)
    number, tests = sum(sizes), 30
    inputs = rng.standard_normal((number + tests, *shape), dtype=np.float32)
    targets = (
        rng.integers(classes, size=number + tests)
        if classes
        else inputs.reshape(number + tests, -1).sum(axis=1) + 1
    )
    return FederatedData(
        inputs=inputs[:number],
        targets=targets[:number],
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        test_inputs=inputs[number:],
        test_targets=targets[number:],
        num_classes=classes,
    )


def classes_for(model: DenseModel) -> int:
    return 0 if isinstance(model, Linear) else 4


def start(engine: NumpyEngine, seed: int = 1) -> Parameters:
    """A model that is not the initial one, so that nothing is 0."""
    rng = np.random.default_rng(seed)
    return (0.4 * rng.standard_normal(engine.num_trainable)).astype(np.float32)


def network(model: DenseModel, data: FederatedData, parameters: Parameters) -> torch.nn.Sequential:
    num_inputs = int(np.prod(data.input_shape))
    hidden = model.hidden if isinstance(model, MLP) else ()
    widths = [num_inputs, *hidden, data.num_classes or 1]
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    module = torch.nn.Sequential(*layers[:-1])
    torch.nn.utils.vector_to_parameters(torch.from_numpy(parameters.copy()), module.parameters())
    return module


def sample_losses(
    module: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor, classes: int
) -> torch.Tensor:
    scores = module(inputs.flatten(1))
    if classes:
        return torch.nn.functional.cross_entropy(scores, targets, reduction="none")
    return torch.nn.functional.mse_loss(scores[:, 0], targets, reduction="none")


def own_samples(data: FederatedData, client: int) -> tuple[torch.Tensor, torch.Tensor]:
    own = slice(data.offsets[client], data.offsets[client + 1])
    return torch.from_numpy(data.inputs[own]), torch.from_numpy(data.targets[own])


def by_torch(
    model: DenseModel,
    data: FederatedData,
    local: LocalSGD,
    parameters: Parameters,
    client: int,
    round_number: int,
) -> tuple[Parameters, FloatArray]:
    """One client's update and the losses of its samples as it trained on them."""
    inputs, targets = own_samples(data, client)
    plan = batches(
        local,
        seed=SEED,
        round_number=round_number,
        clients=np.array([client]),
        num_samples=np.array([len(inputs)]),
    )
    module = network(model, data, parameters)
    anchor = [p.detach().clone() for p in module.parameters()]
    optimiser = torch.optim.SGD(
        module.parameters(),
        lr=local.rate(round_number),
        momentum=local.momentum,
        weight_decay=local.weight_decay,
    )
    seen = [torch.zeros(0)]
    for rows in plan.rows[0]:
        chosen = torch.from_numpy(rows[rows >= 0])
        losses = sample_losses(module, inputs[chosen], targets[chosen], data.num_classes)
        away = sum(((p - a) ** 2).sum() for p, a in zip(module.parameters(), anchor, strict=True))
        optimiser.zero_grad()
        torch.autograd.backward(losses.mean() + local.proximal / 2 * away)
        optimiser.step()
        seen.append(losses.detach())
    trained = torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    return trained - parameters, torch.cat(seen).double().numpy()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("local", LOCALS.values(), ids=LOCALS.keys())
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_equals_a_plain_pytorch_loop(model: DenseModel, local: LocalSGD, form: Form) -> None:
    data = federation(classes=classes_for(model))
    local = replace(local, learning_rate=0.02)
    engine = NumpyEngine(model, data, local, SEED, form=form)
    parameters, clients = start(engine), np.array([5, 3, 1, 0, 9, 2, 7, 4, 6, 8])
    updates = engine.train(parameters, clients, round_number=4)
    assert updates.clients.tolist() == clients.tolist()
    assert updates.deltas.dtype == np.float32
    assert set(updates.signals) == {
        "loss",
        "root_mean_square_loss",
        "trained_samples",
        "update_norm",
    }
    for row, client in enumerate(clients):
        delta, losses = by_torch(model, data, local, parameters, client, round_number=4)
        np.testing.assert_allclose(updates.deltas[row], delta, rtol=1e-4, atol=2e-6)
        losses = losses if len(losses) else np.zeros(1)
        mean, square = losses.mean(), (losses**2).mean()
        told = {name: values[row] for name, values in updates.signals.items()}
        assert told["loss"] == pytest.approx(mean, rel=1e-5)
        assert told["root_mean_square_loss"] == pytest.approx(np.sqrt(square), rel=1e-5)
        assert told["update_norm"] == pytest.approx(np.linalg.norm(delta), rel=1e-4)


LOCAL_STRATEGY = st.builds(
    lambda steps, **rest: LocalSGD(
        learning_rate=0.02, steps=steps, epochs=None if steps else 2, **rest
    ),
    steps=st.none() | st.integers(1, 9),
    batch_size=st.integers(0, 12),
    momentum=st.sampled_from([0.0, 0.9]),
    weight_decay=st.sampled_from([0.0, 0.05]),
    proximal=st.sampled_from([0.0, 0.5]),
)


@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=8).filter(any),
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    hidden=st.lists(st.integers(1, 6), max_size=3),
    classes=st.sampled_from([0, 1, 2, 5]),
    local=LOCAL_STRATEGY,
    seed=st.integers(0, 10**6),
)
def test_both_forms_agree_for_any_shape(
    sizes: list[int], shape: list[int], hidden: list[int], classes: int, local: LocalSGD, seed: int
) -> None:
    data = federation(classes=classes, sizes=tuple(sizes), shape=tuple(shape), seed=seed)
    convex: DenseModel = Logistic() if classes else Linear()
    model = MLP(hidden=tuple(hidden)) if hidden else convex
    clients = np.arange(len(sizes))
    by_form = {form: NumpyEngine(model, data, local, SEED, form=form) for form in FORMS}
    parameters = start(by_form["gram"])
    a, b = (by_form[form].train(parameters, clients, 1) for form in FORMS)
    # A unit whose sum is 0 but for rounding may be active in one form alone: allow for few.
    # And where training diverges, rounding grows with it.
    tame = a.signals["loss"] < 1e3
    close = np.isclose(a.deltas, b.deltas, rtol=1e-3, atol=1e-5).all(axis=1)
    assert np.count_nonzero(~close & tame) <= 1
    close &= tame
    np.testing.assert_allclose(
        a.signals["loss"][close], b.signals["loss"][close], rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("form", ["auto", *FORMS])
@pytest.mark.parametrize("local", ["plain", "steps", "full batch", "all"])
@pytest.mark.parametrize("model", [Linear(), MLP(hidden=(16,))], ids=repr)
def test_the_same_bits_in_any_company(model: DenseModel, local: str, form: Form) -> None:
    # Large enough for BLAS to cut long sums into pieces, which depend on their length.
    sizes = (*np.random.default_rng(2).integers(0, 20, 40).tolist(), 150, 410, 700)
    data = federation(classes=classes_for(model), sizes=sizes, shape=(30,))
    chosen = replace(LOCALS[local], learning_rate=0.01, measure_gain=True)
    engine = NumpyEngine(model, data, chosen, SEED, form=form)
    parameters = start(engine)
    together = engine.train(parameters, np.arange(len(sizes)), 3)
    again = NumpyEngine(model, data, chosen, SEED, form=form)
    for clients in (np.array([41]), np.array([41, 4, 40]), np.arange(41, 0, -2)):
        some = again.train(parameters, clients, 3)
        assert np.array_equal(some.deltas, together.deltas[clients])
        for name, values in some.signals.items():
            assert np.array_equal(values, together.signals[name][clients]), name


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_gains_are_measured_on_all_of_a_clients_samples(model: DenseModel, form: Form) -> None:
    data = federation(classes=classes_for(model))
    local = LocalSGD(learning_rate=0.02, measure_gain=True)
    engine = NumpyEngine(model, data, local, SEED, form=form)
    parameters = start(engine)
    updates = engine.train(parameters, EVERYBODY, 1)
    assert set(updates.signals) == (
        set(SIGNALS) if data.num_classes else set(SIGNALS) - {"accuracy_before", "accuracy_gain"}
    )
    for client, size in enumerate(SIZES):
        told = {name: values[client] for name, values in updates.signals.items()}
        if size == 0:
            assert not any(told.values())
            continue
        inputs, targets = own_samples(data, client)
        hits = []
        for name, vector in (
            ("loss_before", parameters),
            ("loss_after", parameters + updates.deltas[client]),
        ):
            module = network(model, data, vector)
            losses = sample_losses(module, inputs, targets, data.num_classes)
            assert told[name] == pytest.approx(losses.mean().item(), rel=1e-5)
            hits.append((module(inputs.flatten(1)).argmax(1) == targets).double().mean().item())
        if data.num_classes:
            assert told["accuracy_before"] == pytest.approx(hits[0])
            assert told["accuracy_gain"] == pytest.approx(hits[1] - hits[0])


@pytest.mark.parametrize("local", ["plain", "steps", "full batch", "all"])
def test_both_engines_tell_the_same(local: str) -> None:
    data = federation(classes=4)
    model = MLP(hidden=(6,))
    chosen = replace(LOCALS[local], learning_rate=0.02, measure_gain=True)
    ours = NumpyEngine(model, data, chosen, SEED)
    parameters = start(ours)
    module = torch.nn.Sequential(torch.nn.Flatten(), *network(model, data, parameters))
    theirs = TorchEngine(lambda: module, data, chosen, SEED)
    one, other = (engine.train(parameters, EVERYBODY, 2).signals for engine in (ours, theirs))
    assert set(one) == set(other) == set(SIGNALS)
    for name in SIGNALS:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-4, atol=1e-6, err_msg=name)
    assert one["trained_samples"].dtype == other["trained_samples"].dtype == np.float64


@pytest.mark.parametrize(
    ("local", "expected"),
    [
        (LocalSGD(batch_size=4), [0, 1, 10]),
        (LocalSGD(batch_size=4, epochs=3), [0, 1, 10]),
        (LocalSGD(batch_size=4, steps=2), [0, 1, 8]),
        (LocalSGD(batch_size=4, steps=4), [0, 1, 10]),
        (LocalSGD(batch_size=0), [0, 1, 10]),
    ],
)
def test_trained_samples_are_counted_once(local: LocalSGD, expected: list[int]) -> None:
    data = federation(classes=4, sizes=(0, 1, 10))
    clients = np.arange(3)
    updates = NumpyEngine(Logistic(), data, local, SEED).train(
        np.zeros(4 * int(np.prod(data.input_shape)) + 4, dtype=np.float32), clients, 1
    )
    assert updates.signals["trained_samples"].tolist() == expected
    rows, _ = batches(local, seed=SEED, round_number=1, clients=clients, num_samples=data.sizes)
    assert [len(np.unique(own[own >= 0])) for own in rows] == expected


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_evaluation_equals_scikit_learns(
    model: DenseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = federation(classes=classes_for(model))
    engine = NumpyEngine(model, data, LocalSGD(), SEED)
    parameters = start(engine)
    with torch.no_grad():
        module = network(model, data, parameters).double()
        scores = module(torch.from_numpy(data.test_inputs).double().flatten(1))
    for block in (4096, 7):
        monkeypatch.setattr("fedmuster.training.engines.numpy_engine._BLOCK", block)
        told = engine.evaluate(parameters)
        if data.num_classes:
            shares = torch.softmax(scores, dim=1).numpy()
            labels = range(data.num_classes)
            assert told.loss == pytest.approx(
                log_loss(data.test_targets, shares, labels=labels), rel=1e-5
            )
            assert told.accuracy == accuracy_score(data.test_targets, shares.argmax(axis=1))
        else:
            assert told.loss == pytest.approx(
                mean_squared_error(data.test_targets, scores[:, 0].numpy()), rel=1e-5
            )
            assert np.isnan(told.accuracy)


@pytest.mark.parametrize("block", [4096, 11])
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_losses_before_training(
    model: DenseModel, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedmuster.training.engines.numpy_engine._BLOCK", block)
    data = federation(classes=classes_for(model))
    engine = NumpyEngine(model, data, LocalSGD(), SEED)
    parameters, clients = start(engine), np.array([4, 1, 7, 2, 0])
    module = network(model, data, parameters)
    with torch.no_grad():
        own = [
            sample_losses(module, *own_samples(data, client), data.num_classes).double().numpy()
            for client in clients.tolist()
        ]
    expected = [losses.mean() if len(losses) else 0.0 for losses in own]
    np.testing.assert_allclose(engine.losses(parameters, clients), expected, rtol=1e-5)
    # Few samples: those that batches of "round 0" start with, so every client has its own.
    plan = batches(
        LocalSGD(batch_size=5, steps=1),
        seed=SEED,
        round_number=0,
        clients=clients,
        num_samples=data.sizes[clients],
    )
    few = [
        losses[rows[0][rows[0] >= 0]].mean() if len(losses) else 0.0
        for losses, rows in zip(own, plan.rows, strict=True)
    ]
    told = engine.losses(parameters, clients, batch_size=5)
    np.testing.assert_allclose(told, few, rtol=1e-5)
    alone = engine.losses(parameters, clients[:1], batch_size=5)
    np.testing.assert_allclose(alone, told[:1], rtol=1e-5)


def test_initial_models() -> None:
    data = federation(classes=4)
    engines = [NumpyEngine(MLP(hidden=(50,)), data, LocalSGD(), seed) for seed in (1, 1, 2)]
    first, again, other = (engine.initial() for engine in engines)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.dtype == np.float32
    assert len(first) == engines[0].num_trainable == 12 * 50 + 50 + 50 * 4 + 4
    assert not NumpyEngine(Logistic(), data, LocalSGD(), 1).initial().any()
    assert not NumpyEngine(Linear(), federation(classes=0), LocalSGD(), 1).initial().any()


def test_keeps_the_contract_of_engines() -> None:
    engine: Engine = NumpyEngine(MLP(), federation(classes=4), LocalSGD(), SEED)
    parameters = engine.initial()
    before = parameters.copy()
    updates = engine.train(parameters, EVERYBODY, 1)
    engine.losses(parameters, EVERYBODY)
    engine.evaluate(parameters)
    assert np.array_equal(parameters, before)
    nobody = engine.train(parameters, EVERYBODY[:0], 1)
    assert nobody.deltas.shape == (0, engine.num_trainable)
    assert nobody.signals.keys() == updates.signals.keys()
    assert len(engine.losses(parameters, EVERYBODY[:0])) == 0
    assert not engine.train(parameters, np.array([1]), 1).deltas.any()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("model", [Linear(), MLP(hidden=(9,))], ids=repr)
def test_who_diverges_spoils_nobody_else(model: DenseModel, form: Form) -> None:
    data = federation(classes=0)
    wild = data.inputs.copy()
    wild[data.offsets[3] : data.offsets[4]] *= 1e25
    engine = NumpyEngine(
        model, replace(data, inputs=wild), LocalSGD(learning_rate=0.02), SEED, form=form
    )
    calm = NumpyEngine(model, data, LocalSGD(learning_rate=0.02), SEED, form=form)
    parameters = start(engine)
    updates = engine.train(parameters, EVERYBODY, 1)
    finite = np.isfinite(updates.deltas).all(axis=1)
    assert np.flatnonzero(~finite).tolist() == [3]
    assert np.array_equal(
        updates.deltas[finite], calm.train(parameters, EVERYBODY, 1).deltas[finite]
    )


def test_learns_linear_regression() -> None:
    """The targets are the sum of the inputs plus 1: federated averaging must find that."""
    local = LocalSGD(learning_rate=0.05, batch_size=8)
    engine = NumpyEngine(Linear(), federation(classes=0), local, SEED)
    parameters = engine.initial()
    for round_number in range(1, 61):
        updates = engine.train(parameters, EVERYBODY, round_number)
        parameters = parameters + np.average(updates.deltas, axis=0, weights=SIZES).astype("f4")
    np.testing.assert_allclose(parameters, 1.0, atol=1e-4)
    assert engine.evaluate(parameters).loss < 1e-6


def test_refusals() -> None:
    data = federation(classes=4)
    with pytest.raises(ConfigError, match="4 classes"):
        NumpyEngine(Linear(), data, LocalSGD(), SEED)
    engine = NumpyEngine(Logistic(), data, LocalSGD(), SEED)
    wrong: list[Any] = [np.zeros(51, np.float32), np.zeros(52), np.zeros((1, 52), np.float32)]
    for parameters in wrong:
        with pytest.raises(
            DataError, match=r"NumpyEngine: parameters.*expected \(52,\) and float32"
        ):
            engine.train(parameters, EVERYBODY, 1)
        with pytest.raises(DataError, match="NumpyEngine: parameters"):
            engine.losses(parameters, EVERYBODY)
        with pytest.raises(DataError, match="NumpyEngine: parameters"):
            engine.evaluate(parameters)
    for client in (-1, len(SIZES)):
        with pytest.raises(DataError, match="among 0 … 9"):
            engine.train(engine.initial(), np.array([0, client]), 1)


def test_output_biases_are_the_last_numbers() -> None:
    """A client of one class raises its bias, and lowers the others."""
    data = federation(classes=4)
    for model in (Logistic(), MLP(hidden=(7, 5))):
        engine = NumpyEngine(model, data, LocalSGD(learning_rate=0.01, steps=1), SEED)
        assert engine.output_bias == slice(engine.num_trainable - 4, engine.num_trainable)
    assert NumpyEngine(Linear(), federation(classes=0), LocalSGD(), 1).output_bias is None
