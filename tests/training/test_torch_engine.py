"""The PyTorch engine against a plain PyTorch loop, and its promises."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedmuster.core.errors import ConfigError, DataError
from fedmuster.core.records import IntArray
from fedmuster.core.streams import stream
from fedmuster.training.engines.torch_engine import TorchEngine
from fedmuster.training.local_sgd import LocalSGD, StepDecay, batches
from fedmuster.training.networks import PAUSECNN3, PAUSEMLP, SmallCNN
from fedmuster.training.training_records import SIGNALS, FederatedData, Parameters

SEED = 5
CLIENTS: IntArray = np.array([4, 0, 2])
LOCAL = LocalSGD(learning_rate=0.05, batch_size=6, epochs=2)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def images(
    shape: tuple[int, ...] = (1, 12, 12),
    sizes: tuple[int, ...] = (13, 1, 20, 0, 7),
    classes: int = 4,
) -> FederatedData:
    rng = np.random.default_rng(3)
    total = sum(sizes)

    def targets(number: int) -> Any:
        if classes:
            return rng.integers(0, classes, number)
        return rng.normal(size=number).astype(np.float32)

    return FederatedData(
        inputs=rng.normal(size=(total, *shape)).astype(np.float32),
        targets=targets(total),
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        test_inputs=rng.normal(size=(301, *shape)).astype(np.float32),
        test_targets=targets(301),
        num_classes=classes,
    )


class Own(nn.Module):
    """What users write: batch normalisation, dropout, ``view``, a frozen and an unused layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 5, 3)
        self.norm = nn.BatchNorm2d(5)
        self.cumulative = nn.BatchNorm1d(5 * 5 * 5, momentum=None)
        self.dropout = nn.Dropout(0.3)
        self.last = nn.Linear(5 * 5 * 5, 4)
        self.unused = nn.Linear(3, 3)
        self.frozen = nn.Linear(4, 4)
        self.frozen.requires_grad_(False)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.max_pool2d(functional.relu(self.norm(self.first(inputs))), 2)
        hidden = self.dropout(self.cumulative(hidden.view(-1, 5 * 5 * 5)))
        outputs: Tensor = self.frozen(self.last(hidden))
        return outputs


def deep() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(32, 4),
    )  # fmt: skip


def fresh(build: Callable[[], nn.Module]) -> nn.Module:
    """The module as the engine makes it under its seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(SEED, "model").integers(2**63)))
        return build()


def flat(module: nn.Module) -> Parameters:
    trained = [p.detach() for p in module.parameters() if p.requires_grad]
    statistics = [b for b in module.buffers() if b.is_floating_point()]
    return torch.cat([t.reshape(-1) for t in [*trained, *statistics]]).numpy().copy()


def plain_client(
    module: nn.Module, data: FederatedData, local: LocalSGD, client: int, round_number: int
) -> tuple[nn.Module, list[float]]:
    """A client's round in plain PyTorch; its module and the losses of its samples."""
    model, start = copy.deepcopy(module), copy.deepcopy(module)
    first = int(data.offsets[client])
    count = int(data.sizes[client])
    rows, sizes = batches(
        local,
        seed=SEED,
        round_number=round_number,
        clients=np.array([client]),
        num_samples=np.array([count]),
    )
    optimiser = torch.optim.SGD(
        [p for p in model.parameters() if p.requires_grad],
        lr=local.rate(round_number),
        momentum=local.momentum,
        weight_decay=local.weight_decay,
    )
    torch.manual_seed(int(stream(SEED, "train", round_number, client).integers(2**63)))
    model.train()
    seen: list[float] = []
    for row, size in zip(rows[0], sizes[0], strict=True):
        inputs = torch.tensor(data.inputs[first + row[:size]])
        targets = torch.tensor(data.targets[first + row[:size]])
        optimiser.zero_grad()
        if isinstance(model, Own):
            model.cumulative.train(bool(size > 1))
        outputs = model(inputs)
        if data.num_classes:
            loss = functional.cross_entropy(outputs, targets)
            each = functional.cross_entropy(outputs, targets, reduction="none")
        else:
            loss = functional.mse_loss(outputs[:, 0], targets)
            each = functional.mse_loss(outputs[:, 0], targets, reduction="none")
        seen += each.tolist()
        for now, then in zip(model.parameters(), start.parameters(), strict=True):
            if local.proximal:
                loss = loss + local.proximal / 2 * (now - then.detach()).square().sum()
        torch.autograd.backward(loss)
        optimiser.step()
    return model, seen


def measured(module: nn.Module, inputs: Any, targets: Any) -> tuple[float, float]:
    module.eval()
    with torch.no_grad():
        outputs = module(torch.tensor(inputs))
        loss = functional.cross_entropy(outputs, torch.tensor(targets)).item()
    return loss, float((outputs.argmax(dim=1).numpy() == targets).mean())


@pytest.mark.parametrize(
    "local",
    [
        LOCAL,
        replace(LOCAL, momentum=0.9, weight_decay=0.01),
        replace(LOCAL, epochs=None, steps=7, schedule=StepDecay(every=2, gamma=0.1)),
        replace(LOCAL, batch_size=0, momentum=0.5),
    ],
)
@pytest.mark.parametrize("build", [deep, Own])
def test_a_round_equals_plain_pytorch(build: Callable[[], nn.Module], local: LocalSGD) -> None:
    data = images()
    local = replace(local, measure_gain=True)
    engine = TorchEngine(build, data, local, SEED)
    module = fresh(build)
    np.testing.assert_array_equal(engine.initial(), flat(module))
    updates = engine.train(engine.initial(), CLIENTS, 3)
    for i, client in enumerate(CLIENTS.tolist()):
        trained, losses = plain_client(module, data, local, client, 3)
        np.testing.assert_allclose(updates.deltas[i], flat(trained) - flat(module), atol=2e-6)
        own = slice(data.offsets[client], data.offsets[client + 1])
        before, hits_before = measured(copy.deepcopy(module), data.inputs[own], data.targets[own])
        after, hits_after = measured(trained, data.inputs[own], data.targets[own])
        expected = {
            "loss": np.mean(losses),
            "trained_samples": min(len(losses), data.sizes[client]),
            "root_mean_square_loss": np.sqrt(np.mean(np.square(losses))),
            "update_norm": np.linalg.norm(updates.deltas[i][: engine.num_trainable]),
            "loss_before": before,
            "loss_after": after,
            "accuracy_before": hits_before,
            "accuracy_gain": hits_after - hits_before,
        }
        assert set(expected) == set(SIGNALS)
        for name, value in expected.items():
            assert updates.signals[name][i] == pytest.approx(value, rel=1e-5, abs=1e-6), name


def test_fedprox_term_equals_its_penalty_in_the_loss() -> None:
    data, local = images(), replace(LOCAL, proximal=0.5, epochs=3, momentum=0.3)
    engine, module = TorchEngine(deep, data, local, SEED), fresh(deep)
    updates = engine.train(engine.initial(), CLIENTS, 1)
    without = TorchEngine(deep, data, replace(local, proximal=0.0), SEED)
    for i, client in enumerate(CLIENTS.tolist()):
        trained, _ = plain_client(module, data, local, client, 1)
        np.testing.assert_allclose(updates.deltas[i], flat(trained) - flat(module), atol=2e-6)
    assert (updates.deltas != without.train(engine.initial(), CLIENTS, 1).deltas).any()


def test_five_rounds_of_fedavg_equal_plain_pytorch() -> None:
    # Full batches alone: two samples are normalised to ±1, whatever they are, and tiny differences
    # between two ways to add numbers would grow from round to round.
    data = images(sizes=(12, 6, 18, 24, 12))
    engine, module = TorchEngine(Own, data, LOCAL, SEED), fresh(Own)
    parameters = engine.initial()
    clients = np.arange(5)
    weights = (data.sizes / data.sizes.sum()).astype(np.float32)
    for round_number in range(1, 6):
        parameters = parameters + weights @ engine.train(parameters, clients, round_number).deltas
        trained = [
            flat(plain_client(module, data, LOCAL, client, round_number)[0]) for client in range(5)
        ]
        mean = torch.from_numpy(weights @ np.array(trained))
        tensors = [*(p.data for p in module.parameters() if p.requires_grad)]
        tensors += [b for b in module.buffers() if b.is_floating_point()]
        for tensor, part in zip(
            tensors, torch.split(mean, [t.numel() for t in tensors]), strict=True
        ):
            tensor.copy_(part.view(tensor.shape))
    np.testing.assert_allclose(parameters, flat(module), atol=3e-5)
    scores = engine.evaluate(parameters)
    loss, accuracy = measured(module, data.test_inputs, data.test_targets)
    assert scores.loss == pytest.approx(loss, rel=1e-4)
    assert scores.accuracy == pytest.approx(accuracy, abs=0.01)


def test_what_the_vector_holds() -> None:
    engine = TorchEngine(Own, images(), LOCAL, SEED)
    weights = 5 * 9 + 5 + 2 * 5 + 2 * 125 + (125 + 1) * 4 + (3 + 1) * 3
    assert engine.num_trainable == weights
    initial = engine.initial()
    assert initial.dtype == np.float32
    # Running means (0) and variances (1) of both normalisations; no counters, no frozen layer.
    means_and_variances = np.repeat([0, 1, 0, 1], [5, 5, 125, 125])
    np.testing.assert_array_equal(initial[weights:], means_and_variances)


def test_regression() -> None:
    data = images(shape=(6,), classes=0)

    def linear() -> nn.Module:
        return nn.Linear(6, 1)

    local = replace(LOCAL, measure_gain=True)
    engine, module = TorchEngine(linear, data, local, SEED), fresh(linear)
    updates = engine.train(engine.initial(), CLIENTS, 1)
    assert not {"accuracy_before", "accuracy_gain"} & set(updates.signals)
    for i, client in enumerate(CLIENTS.tolist()):
        trained, losses = plain_client(module, data, local, client, 1)
        np.testing.assert_allclose(updates.deltas[i], flat(trained) - flat(module), atol=1e-6)
        assert updates.signals["loss"][i] == pytest.approx(np.mean(losses))
    assert (updates.signals["loss_after"] < updates.signals["loss_before"]).all()
    scores = engine.evaluate(engine.initial())
    errors = module(torch.tensor(data.test_inputs))[:, 0].detach().numpy() - data.test_targets
    assert scores.loss == pytest.approx(np.square(errors).mean(), rel=1e-5)
    assert np.isnan(scores.accuracy)


def test_losses_of_all_and_of_some_samples() -> None:
    data = images()
    engine, module = TorchEngine(Own, data, LOCAL, SEED), fresh(Own).eval()
    clients = np.array([2, 3, 0])
    each = functional.cross_entropy(
        module(torch.tensor(data.inputs)), torch.tensor(data.targets), reduction="none"
    )
    parts = np.split(each.detach().numpy(), data.offsets[1:-1])
    found = engine.losses(engine.initial(), clients)
    np.testing.assert_allclose(found, [parts[2].mean(), 0.0, parts[0].mean()], rtol=1e-5)
    order = batches(
        LocalSGD(batch_size=4, steps=1),
        seed=SEED,
        round_number=0,
        clients=clients,
        num_samples=data.sizes[clients],
    ).rows[:, 0]
    some = engine.losses(engine.initial(), clients, batch_size=4)
    expected = [parts[2][order[0]].mean(), 0.0, parts[0][order[2]].mean()]
    np.testing.assert_allclose(some, expected, rtol=1e-5)
    assert engine.losses(engine.initial(), clients[:0]).shape == (0,)


def test_calls_repeat_and_leave_no_trace() -> None:
    data, local = images(), replace(LOCAL, measure_gain=True)
    engine = TorchEngine(Own, data, local, SEED)
    torch.manual_seed(77)
    state = torch.get_rng_state()
    first = engine.train(engine.initial(), CLIENTS, 2)
    assert torch.equal(torch.get_rng_state(), state)
    loss = engine.losses(engine.initial(), CLIENTS)
    scores = engine.evaluate(engine.initial())
    torch.manual_seed(78)
    engine.train(first.deltas[0], CLIENTS[::-1], 9)
    others = (engine, TorchEngine(Own, data, local, SEED))
    for other in others:
        again = other.train(engine.initial(), CLIENTS[::-1], 2)
        np.testing.assert_array_equal(again.deltas[::-1], first.deltas)
        for name, values in first.signals.items():
            np.testing.assert_array_equal(again.signals[name][::-1], values)
        np.testing.assert_array_equal(other.losses(engine.initial(), CLIENTS), loss)
        assert other.evaluate(engine.initial()) == scores
    elsewhere = engine.train(engine.initial(), CLIENTS, 3)
    assert (elsewhere.deltas != first.deltas).any(axis=1).all()
    seeded = TorchEngine(Own, data, local, SEED + 1)
    assert (seeded.initial() != engine.initial()).any()


def test_measuring_does_not_change_the_training() -> None:
    data = images()
    engine = TorchEngine(Own, data, LOCAL, SEED)
    curious = TorchEngine(Own, data, replace(LOCAL, measure_gain=True), SEED)
    np.testing.assert_array_equal(
        engine.train(engine.initial(), CLIENTS, 1).deltas,
        curious.train(engine.initial(), CLIENTS, 1).deltas,
    )


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    data = images((1, 28, 28), sizes=(40, 40), classes=10)
    deltas = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        engine = TorchEngine(SmallCNN(), data, LOCAL, SEED)
        deltas.append(engine.train(engine.initial(), np.array([0]), 1).deltas)
        assert torch.get_num_threads() == threads
    np.testing.assert_array_equal(deltas[0], deltas[1])


def test_the_users_module_is_copied() -> None:
    mine = Own()
    before = flat(mine)
    engine = TorchEngine(lambda: mine, images(), LOCAL, SEED)
    engine.train(engine.initial(), CLIENTS, 1)
    np.testing.assert_array_equal(flat(mine), before)
    np.testing.assert_array_equal(engine.initial(), before)


def test_read_only_data_and_parameters() -> None:
    data = images()
    for name in ("inputs", "targets", "test_inputs", "test_targets"):
        getattr(data, name).setflags(write=False)
    engine = TorchEngine(deep, data, LOCAL, SEED)
    parameters = engine.initial()
    parameters.setflags(write=False)
    assert np.isfinite(engine.train(parameters, CLIENTS, 1).deltas).all()


def test_divergence_gives_updates_that_are_not_finite() -> None:
    local = replace(LOCAL, learning_rate=1e30, epochs=4, measure_gain=True)
    engine = TorchEngine(Own, images(), local, SEED)
    updates = engine.train(engine.initial(), CLIENTS, 1)
    assert not np.isfinite(updates.deltas).all(axis=1).any()
    assert not np.isfinite(updates.signals["loss"]).any()
    assert np.isnan(engine.evaluate(np.full_like(engine.initial(), np.nan)).loss)


def test_a_client_without_samples_sends_nothing_new() -> None:
    engine = TorchEngine(Own, images(), replace(LOCAL, measure_gain=True), SEED)
    updates = engine.train(engine.initial(), np.array([3]), 1)
    assert not updates.deltas.any()
    assert all(values.tolist() == [0.0] for values in updates.signals.values())
    assert engine.train(engine.initial(), CLIENTS[:0], 1).deltas.shape == (0, len(engine.initial()))


def test_single_samples_amid_others() -> None:
    """PyTorch refuses to normalise one value per channel; the running statistics stand in."""
    data = images(sizes=(13, 7, 1))
    engine, module = TorchEngine(Own, data, LOCAL, SEED), fresh(Own)
    updates = engine.train(engine.initial(), np.arange(3), 1)
    for client in range(3):
        trained, _ = plain_client(module, data, LOCAL, client, 1)
        np.testing.assert_allclose(updates.deltas[client], flat(trained) - flat(module), atol=2e-6)


def test_single_samples_in_a_network() -> None:
    data = images((1, 28, 28), sizes=(1, 7), classes=10)
    engine = TorchEngine(PAUSECNN3(), data, LOCAL, SEED)
    updates = engine.train(engine.initial(), np.array([0, 1]), 1)
    assert np.isfinite(updates.deltas).all()
    assert updates.deltas.any(axis=1).all()
    # The first normalisation of the single sample has many pixels and must learn from them.
    statistics = updates.deltas[0, engine.num_trainable :]
    assert statistics[:32].any()
    assert not statistics[-64:].any()


def test_lazy_modules_take_their_shape_from_the_data() -> None:
    def lazy() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(4))

    engine = TorchEngine(lazy, images(), LOCAL, SEED)
    assert engine.num_trainable == 145 * 4
    assert engine.train(engine.initial(), CLIENTS, 1).deltas.any()


def test_networks_are_fitted_to_the_data() -> None:
    engine = TorchEngine(PAUSEMLP(), images(shape=(9,), classes=3), LOCAL, SEED)
    assert engine.num_trainable == 10 * 32 + 33 * 16 + 17 * 3


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: nn.Linear(7, 4), r"Linear does not take samples of shape \(1, 12, 12\)"),
        (lambda: nn.Flatten(), "expected parameters .* got none"),
        (
            lambda: nn.Sequential(nn.Flatten(), nn.Linear(144, 5)),
            r"into \(2, 5\), expected a tensor of shape \(2, 4\)",
        ),
        (lambda: nn.LSTM(12, 4), "does not take samples|into tuple"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(144, 4)).double(), "torch.float64"),
        (
            lambda: nn.Sequential(nn.Flatten(), nn.Linear(144, 4).requires_grad_(False)),
            "at least one of them trainable",
        ),
    ],
)
def test_modules_that_do_not_fit(build: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TorchEngine(build, images(), LOCAL, SEED)


def test_wrong_arguments() -> None:
    engine = TorchEngine(deep, images(), LOCAL, SEED)
    wide: Any = engine.initial().astype(np.float64)
    with pytest.raises(DataError):
        engine.train(engine.initial()[:-1], CLIENTS, 1)
    with pytest.raises(DataError, match="float64"):
        engine.evaluate(wide)
    with pytest.raises(DataError, match=r"0.*4"):
        engine.losses(engine.initial(), np.array([5]))
    with pytest.raises(ConfigError, match="workers = 0"):
        TorchEngine(deep, images(), LOCAL, SEED, workers=0)


def test_output_biases_are_those_of_the_layer_that_makes_the_scores() -> None:
    """Not those of the last layer in the order of parameters."""

    class Reversed(nn.Module):
        def __init__(self, biased: bool = True) -> None:
            super().__init__()
            self.scores = nn.Linear(6, 4, bias=biased)
            self.hidden = nn.Linear(144, 6)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = self.scores(torch.relu(self.hidden(inputs.flatten(1))))
            return scores

    engine = TorchEngine(Reversed, images(), LOCAL, SEED)
    assert engine.output_bias == slice(24, 28)
    assert TorchEngine(lambda: Reversed(biased=False), images(), LOCAL, SEED).output_bias is None

    def frozen() -> nn.Module:
        module = Reversed()
        module.scores.bias.requires_grad = False
        return module

    assert TorchEngine(frozen, images(), LOCAL, SEED).output_bias is None
    network = TorchEngine(PAUSEMLP(), images(shape=(9,), classes=3), LOCAL, SEED)
    assert network.output_bias == slice(network.num_trainable - 3, network.num_trainable)
