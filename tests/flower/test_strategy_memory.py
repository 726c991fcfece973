"""A strategy that is saved, made anew and restored goes on as if nothing had happened."""

import logging
import random
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedYogi,
    Krum,
    QFedAvg,
    Strategy,
)
from flwr.supercore.differential_privacy import KEY_NORM_BIT
from flwr.supercore.privacy_accounting import NeighboringRelation, PrivacyConfig, SamplingMethod
from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedmuster.core.errors import ConfigError, StateError
from fedmuster.flower import Muster
from fedmuster.flower.in_process import InProcessGrid, Node
from fedmuster.flower.plain_files import NotPlainError, Packed, pack, unpack
from fedmuster.flower.strategy_memory import StrategyMemory

Make = Callable[[], Strategy]
NODES = 5
FLOWERS_NOISE = import_module("numpy.random")
"""Flower draws from numpy's global generator."""


@pytest.fixture(autouse=True)
def uncollected(monkeypatch: pytest.MonkeyPatch) -> None:
    """QFedAvg collects garbage at every reply, which is slow in a process with so much in it."""
    monkeypatch.setattr("gc.collect", lambda *_: 0)


def accountant() -> RdpAccountant:
    return RdpAccountant(
        PrivacyConfig(
            target_delta=1e-5,
            population_size=NODES,
            sampling_method=SamplingMethod.NO_AMPLIFICATION,
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        )
    )


STRATEGIES: dict[str, Make] = {
    "FedAvg": FedAvg,
    "FedProx": lambda: FedProx(proximal_mu=0.1),
    "FedAvgM": lambda: FedAvgM(server_learning_rate=0.7, server_momentum=0.9),
    "FedAdam": FedAdam,
    "FedYogi": FedYogi,
    "FedAdagrad": FedAdagrad,
    "QFedAvg": lambda: QFedAvg(client_learning_rate=0.1),
    "FedMedian": FedMedian,
    "FedTrimmedAvg": FedTrimmedAvg,
    "Krum": lambda: Krum(num_malicious_nodes=1),
    "fixed clipping at the server": lambda: DifferentialPrivacyServerSideFixedClipping(
        FedAdam(), noise_multiplier=0.1, clipping_norm=0.5, num_sampled_clients=NODES
    ),
    "fixed clipping, accounted": lambda: DifferentialPrivacyServerSideFixedClipping(
        FedAvg(), 0.1, 0.5, NODES, accountant=accountant()
    ),
    "fixed clipping at clients": lambda: DifferentialPrivacyClientSideFixedClipping(
        FedAvgM(server_momentum=0.5), 0.1, 0.5, NODES
    ),
    "adaptive clipping at the server": lambda: DifferentialPrivacyServerSideAdaptiveClipping(
        FedYogi(), noise_multiplier=0.1, num_sampled_clients=NODES
    ),
    "adaptive clipping at clients": lambda: DifferentialPrivacyClientSideAdaptiveClipping(
        FedAvg(), noise_multiplier=0.1, num_sampled_clients=NODES
    ),
}
REMEMBERS = {"FedAvgM", "FedAdam", "FedYogi", "FedAdagrad"} | {
    name for name in STRATEGIES if "accounted" in name or "adaptive" in name
}
"""Those that a restart without memory would change (the other wrappers hold one of them)."""


def train(message: Message, context: Context) -> Message:
    """Weights and metrics that depend on the model, the node and the round."""
    (arrays,) = message.content.array_records.values()
    (config,) = message.content.config_records.values()
    rng = np.random.default_rng([int(context.node_id), int(str(config["server-round"]))])
    trained = {
        name: Array(array.numpy() * 0.9 + rng.normal(size=array.shape).astype(array.dtype))
        for name, array in arrays.items()
    }
    metrics = MetricRecord({"num-examples": 10, "train_loss": float(rng.random())})
    metrics[KEY_NORM_BIT] = float(rng.integers(2))
    return Message(
        RecordDict({"arrays": ArrayRecord(trained), "metrics": metrics}), reply_to=message
    )


def play(strategy: Strategy, model: ArrayRecord, first: int, last: int) -> ArrayRecord:
    """Rounds first … last, with replies in one order and the same noise every time."""
    grid = InProcessGrid(train, [Node(10 + place) for place in range(NODES)])
    for number in range(first, last + 1):
        messages = list(strategy.configure_train(number, model, ConfigRecord(), grid))
        replies = sorted(grid.send_and_receive(messages), key=lambda r: r.metadata.src_node_id)
        FLOWERS_NOISE.seed(number)
        arrays, _ = strategy.aggregate_train(number, replies)
        assert arrays is not None
        model = arrays
    return model


def initial() -> ArrayRecord:
    rng = np.random.default_rng(7)
    return ArrayRecord(
        {
            "weight": Array(rng.normal(size=(4, 3)).astype(np.float32)),
            "bias": Array(rng.normal(size=3)),
            "scale": Array(np.array([0.5])),
        }
    )


@pytest.mark.parametrize("name", STRATEGIES)
def test_goes_on_bit_for_bit(name: str) -> None:
    make = STRATEGIES[name]
    uninterrupted, killed = make(), make()
    expected = play(uninterrupted, initial(), 1, 4)

    memory = StrategyMemory(killed)
    model = play(killed, initial(), 1, 2)
    image = memory.capture()
    assert memory.not_kept() == []

    restarted = make()
    again = StrategyMemory(restarted)
    again.restore(image, source="here")
    assert again.capture() == image
    assert play(restarted, model, 3, 4) == expected
    assert again.capture() == _captured(make, uninterrupted)


def _captured(make: Make, strategy: Strategy) -> bytes:
    memory = StrategyMemory(make())
    memory.strategy = strategy
    return memory.capture()


@pytest.mark.parametrize("name", sorted(REMEMBERS))
def test_without_the_memory_they_would_go_elsewhere(name: str) -> None:
    make = STRATEGIES[name]
    uninterrupted, killed = make(), make()
    expected = play(uninterrupted, initial(), 1, 4)
    model = play(killed, initial(), 1, 2)
    forgetful = make()
    model = play(forgetful, model, 3, 4)
    assert model != expected or _captured(make, forgetful) != _captured(make, uninterrupted)


def test_spent_privacy_is_remembered() -> None:
    make = STRATEGIES["fixed clipping, accounted"]
    strategy = make()
    memory = StrategyMemory(strategy)
    play(strategy, initial(), 1, 3)
    restarted = make()
    StrategyMemory(restarted).restore(memory.capture(), source="here")
    assert isinstance(strategy, DifferentialPrivacyServerSideFixedClipping)
    assert isinstance(restarted, DifferentialPrivacyServerSideFixedClipping)
    spent = restarted.privacy_spent()
    assert spent == strategy.privacy_spent()
    assert spent is not None
    assert spent.num_releases == 3


def test_settings_that_the_user_changes_are_not_overruled() -> None:
    strategy = FedAdam(eta=0.1)
    memory = StrategyMemory(strategy)
    play(strategy, initial(), 1, 2)
    restarted = FedAdam(eta=0.01, min_train_nodes=4)
    StrategyMemory(restarted).restore(memory.capture(), source="here")
    assert (restarted.eta, restarted.min_train_nodes) == (0.01, 4)
    assert strategy.m_t is not None
    assert restarted.m_t is not None
    np.testing.assert_array_equal(restarted.m_t["weight"], strategy.m_t["weight"])


def test_another_strategy_is_refused() -> None:
    image = StrategyMemory(FedAdam()).capture()
    with pytest.raises(
        StateError, match="saved by the strategy FedAdam, this is FedYogi: continue"
    ):
        StrategyMemory(FedYogi()).restore(image, source="runs/mine")
    wrapped = STRATEGIES["fixed clipping at the server"]()
    with pytest.raises(StateError, match="ServerSideFixedClipping of FedAdam"):
        StrategyMemory(wrapped).restore(image, source="runs/mine")


@pytest.mark.parametrize(("over_selection", "fits"), [(1.0, True), (1.2, False), (2.0, False)])
def test_flowers_accountant_and_over_selection_do_not_go_together(
    tmp_path: Path, over_selection: float, fits: bool
) -> None:
    """It accounts for the noise of exactly as many clients as are asked; fewer would count."""
    strategy = STRATEGIES["fixed clipping, accounted"]()
    settings: dict[str, Any] = {"folder": tmp_path, "policy": "random", "cohort_size": NODES}
    if fits:
        Muster(strategy, over_selection=over_selection, **settings)
        return
    with pytest.raises(ConfigError, match="over_selection"):
        Muster(strategy, over_selection=over_selection, **settings)


def test_an_accountant_that_is_gone_is_missed() -> None:
    strategy = STRATEGIES["fixed clipping, accounted"]()
    memory = StrategyMemory(strategy)
    play(strategy, initial(), 1, 1)
    without = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.1, 0.5, NODES)
    with pytest.raises(StateError, match="what accountant of the strategy had counted"):
        StrategyMemory(without).restore(memory.capture(), source="runs/mine")


class Own(FedAvg):
    """A strategy as users write them."""

    def __init__(self) -> None:
        super().__init__()
        self.step = 1.0
        self.seen: set[int] = set()
        self.rng = np.random.default_rng(3)
        self.coin = random.Random(3)
        self.logger = logging.getLogger("own")
        self.lock = threading.Lock()
        self.on_done: Callable[[], None] = lambda: None

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        self.step *= 0.9
        self.seen.add(server_round)
        self.rng.normal()
        self.coin.random()
        self.best = {"round": server_round, "metrics": MetricRecord({"loss": 0.5})}
        return super().aggregate_train(server_round, replies)


def test_a_strategy_of_ones_own() -> None:
    own = Own()
    memory = StrategyMemory(own)
    play(own, initial(), 1, 3)
    assert memory.not_kept() == ["lock"]
    restarted = Own()
    StrategyMemory(restarted).restore(memory.capture(), source="here")
    assert (restarted.step, restarted.seen, restarted.best) == (own.step, own.seen, own.best)
    assert restarted.rng.normal() == own.rng.normal()
    assert restarted.coin.random() == own.coin.random()


def test_methods_that_are_shadowed_are_code() -> None:
    strategy = FedAvg()

    def configure(
        server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return []

    memory = StrategyMemory(strategy)
    vars(strategy)["configure_train"] = configure
    assert memory.not_kept() == []
    assert memory.capture() == StrategyMemory(FedAvg()).capture()


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.integers() | st.text() | st.none(), inner)
    ),
    max_leaves=20,
)


@given(PLAIN)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_plain_values_come_back(value: Any) -> None:
    again = unpack(pack(value))
    assert repr(again) == repr(value)  # NaN is not equal to itself
    assert type(again) is type(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">i2").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.zeros((0, 4), dtype=np.float16),
        np.array(1 + 2j),
        np.array(["ä", "long"]),
        np.array([True, False]),
        np.arange(12.0)[::3],
    ],
)
def test_arrays_come_back_as_they_were_and_writable(array: np.ndarray[Any, Any]) -> None:
    again = unpack(pack([array]))[0]
    np.testing.assert_array_equal(again, array, strict=True)
    assert again.dtype == array.dtype
    assert again.flags.f_contiguous or not array.flags.f_contiguous
    assert again.flags.writeable


def test_what_is_nearly_plain_keeps_its_kind() -> None:
    values = [
        np.float32(0.1),
        np.float64(0.1),
        np.bool_(True),
        bytearray(b"ab"),
        frozenset({1}),
        OrderedDict(b=1, a=2),
        ConfigRecord({"a": b"x", "b": [True]}),
        ArrayRecord({"odd": Array("bfloat16", (2,), "my.own", b"\x00\x01")}),
    ]
    again = unpack(pack(values))
    assert again == values
    assert [type(value) for value in again] == [type(value) for value in values]


@pytest.mark.parametrize("value", [object(), np.array([object()]), lambda: 0, {"a": [print]}])
def test_what_needs_pickle_is_refused(value: Any) -> None:
    with pytest.raises(NotPlainError):
        pack(value)


def test_what_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(NotPlainError, match="contains itself"):
        pack(loop)


@pytest.mark.parametrize("tree", [["Popen", []], ["ndarray"], [], ["dict", [1]], {"a": 1}])
def test_a_tree_of_something_else_is_a_state_error(tree: Any) -> None:
    with pytest.raises(StateError, match="cannot be read"):
        unpack(Packed(tree, b""))


class Growing(FedAvg):
    def __init__(self) -> None:
        super().__init__()
        self.best: Any = None
        self.folder = Path("results")
        self.count = 0


def test_what_can_no_longer_be_saved_is_told_of_once() -> None:
    strategy = Growing()
    memory = StrategyMemory(strategy)
    assert memory.not_kept() == []  # a path is a setting, which the app brings along again
    strategy.best = threading.Lock()
    memory.capture()
    assert memory.not_kept() == ["best"]
    memory.capture()
    assert memory.not_kept() == []


def test_changes_since_the_capture_and_back() -> None:
    strategy = Growing()
    memory = StrategyMemory(strategy)
    strategy.count = 1
    image = memory.capture()
    assert memory.changes() is None
    strategy.best = np.arange(3.0)
    later = memory.changes()
    assert later is not None
    strategy.best, strategy.count = None, 5
    memory.go_back([image, later], source="here")
    assert strategy.count == 1
    assert strategy.best.tolist() == [0.0, 1.0, 2.0]
    memory.go_back([], source="here")  # to the fresh one
    assert (strategy.best, strategy.count) == (None, 0)


def test_tensors_deques_and_counters_are_plain() -> None:
    import torch

    value: dict[Any, Any] = {
        "weights": torch.arange(6.0).reshape(2, 3).T,
        "recent": deque([1.0, 2.0], maxlen=2),
        "seen": Counter({"a": 2}),
        "by_round": defaultdict(list, {1: [0.5]}),
        0: torch.tensor(3),
    }
    back = unpack(pack(value))
    assert torch.equal(back["weights"], value["weights"])
    assert back["weights"].dtype == torch.float32
    assert back[0].item() == 3
    assert unpack(pack(torch.zeros(2, requires_grad=True))).requires_grad
    assert (back["recent"], back["recent"].maxlen) == (deque([1.0, 2.0]), 2)
    assert back["seen"] == Counter({"a": 2})
    back["by_round"][2].append(1)
    assert back["by_round"] == {1: [0.5], 2: [1]}
    with pytest.raises(NotPlainError, match="bfloat16"):
        pack(torch.zeros(1, dtype=torch.bfloat16))
    with pytest.raises(NotPlainError):
        pack(defaultdict(lambda: 0))


def test_an_optimiser_of_the_server_goes_on() -> None:
    import torch

    class Optimising(FedAvg):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.zeros(2)
            self.optimiser = torch.optim.Adam([torch.nn.Parameter(self.weight)], lr=0.1)

    strategy = Optimising()
    memory = StrategyMemory(strategy)
    (parameter,) = strategy.optimiser.param_groups[0]["params"]
    parameter.grad = torch.ones(2)
    strategy.optimiser.step()
    again = Optimising()
    StrategyMemory(again).restore(memory.capture(), source="here")
    assert again.weight.tolist() == strategy.weight.tolist() != [0.0, 0.0]
    (held,) = again.optimiser.param_groups[0]["params"]
    assert held.tolist() == again.weight.tolist()  # the optimiser's own, and not a copy of it
    (moments,) = again.optimiser.state_dict()["state"].values()
    assert moments["exp_avg"].tolist() == pytest.approx([0.1, 0.1])
    assert memory.not_kept() == []
