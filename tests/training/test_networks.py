import dataclasses
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedmuster.core.config import from_table, named, to_table
from fedmuster.core.errors import ConfigError, MissingExtraError
from fedmuster.training.models import MODELS, Model, Network
from fedmuster.training.networks import (
    BSFLCNN,
    COCSCNN,
    MABCSCNN,
    PAUSECNN3,
    PAUSECNN5,
    PAUSEMLP,
    OwnModel,
    ResNet18,
    SmallCNN,
)

GREY_28, GREY_32, COLOUR = (1, 28, 28), (1, 32, 32), (3, 32, 32)

OURS: list[Network] = [
    SmallCNN(),
    BSFLCNN(),
    PAUSEMLP(),
    PAUSECNN3(),
    PAUSECNN5(),
    MABCSCNN(),
    COCSCNN(),
    ResNet18(),
]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Spec:
    model: Model


def make(network: Network, shape: tuple[int, ...], classes: int = 10) -> nn.Module:
    return network.build(shape, classes)


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def conv(inputs: int, outputs: int, kernel: int) -> int:
    return inputs * outputs * kernel**2 + outputs


def dense(*widths: int) -> int:
    return sum((a + 1) * b for a, b in itertools.pairwise(widths))


@pytest.mark.parametrize(
    ("network", "shape", "expected"),
    [
        (SmallCNN(), GREY_28, conv(1, 16, 5) + conv(16, 32, 5) + dense(7 * 7 * 32, 64, 10)),
        (
            BSFLCNN(),
            GREY_28,  # 28 -> 14 -> 7 -> 3, and scale and shift of batch normalisation
            conv(1, 32, 3) + conv(32, 64, 3) + conv(64, 128, 3) + conv(128, 128, 3)
            + 2 * (32 + 64 + 128 + 128) + dense(3 * 3 * 128, 256, 128, 10),
        ),
        (PAUSEMLP(), GREY_28, dense(784, 32, 16, 10)),
        (
            PAUSECNN3(),
            COLOUR,  # 32 -> 30 -> 15 -> 13 -> 6 -> 4 -> 2
            conv(3, 32, 3) + conv(32, 64, 3) + conv(64, 128, 3) + 2 * (32 + 64 + 128)
            + dense(2 * 2 * 128, 128, 64, 32, 10) + 2 * (128 + 64 + 32),
        ),
        (
            PAUSECNN5(),
            COLOUR,  # 32 -> 30 -> 28 -> 14 -> 12 -> 10 -> 5 -> 2 -> 1
            conv(3, 32, 3) + conv(32, 32, 3) + conv(32, 64, 3) + conv(64, 64, 3)
            + conv(64, 128, 4) + 2 * (32 + 64 + 64 + 128)
            + dense(128, 64, 32, 10) + 2 * (64 + 32),
        ),
        (MABCSCNN(), COLOUR, 4_583_146),
        (COCSCNN(), COLOUR, conv(3, 64, 5) + conv(64, 64, 5) + dense(8 * 8 * 64, 384, 192, 10)),
        (ResNet18(), COLOUR, 11_173_962),  # as everybody counts it for CIFAR-10
    ],
)  # fmt: skip
def test_parameter_counts(network: Network, shape: tuple[int, ...], expected: int) -> None:
    assert count(make(network, shape)) == expected


def test_mab_cs_network_has_the_size_that_the_paper_states() -> None:
    parameters = count(make(MABCSCNN(), COLOUR))
    assert round(parameters / 1e6, 1) == 4.6
    assert round(parameters * 4 / 1e6, 1) == 18.3


@pytest.mark.parametrize("shape", [GREY_28, GREY_32, COLOUR])
@pytest.mark.parametrize("network", OURS, ids=lambda network: network.name)
def test_every_network_takes_the_usual_images(network: Network, shape: tuple[int, ...]) -> None:
    module = make(network, shape, classes=7).train()
    outputs = module(torch.randn(2, *shape))
    assert outputs.shape == (2, 7)
    outputs.sum().backward()
    assert all(p.grad is not None for p in module.parameters())


@pytest.mark.parametrize("network", OURS, ids=lambda network: network.name)
def test_a_regression_has_one_output(network: Network) -> None:
    last = list(make(network, GREY_28, classes=0).modules())[-1]
    assert isinstance(last, nn.Linear)
    assert last.out_features == 1


def test_images_of_unequal_sides() -> None:
    assert make(SmallCNN(), (1, 20, 30))(torch.randn(2, 1, 20, 30)).shape == (2, 10)


@pytest.mark.parametrize("kind", [PAUSECNN3, PAUSECNN5])
def test_too_small_an_image(kind: type[PAUSECNN3 | PAUSECNN5]) -> None:
    with pytest.raises(ConfigError, match=r"\(1, 8, 8\), expected at least (18 × 18|28 × 28)"):
        make(kind(), (1, 8, 8))
    least = 18 if kind is PAUSECNN3 else 28
    make(kind(), (1, least, least)).eval()(torch.zeros(1, 1, least, least))
    with pytest.raises(ConfigError):
        make(kind(), (1, least, least - 1))


@pytest.mark.parametrize(
    "network", [n for n in OURS if n != PAUSEMLP()], ids=lambda network: network.name
)
def test_data_that_are_no_images(network: Network) -> None:
    expected = rf"{type(network).__name__}: a sample has shape \(64,\)"
    with pytest.raises(ConfigError, match=expected):
        make(network, (64,))


def test_pooling_before_relu_changes_neither_values_nor_gradients() -> None:
    ours = make(SmallCNN(), GREY_28)
    layers = list(ours.children())
    usual = nn.Sequential(*(layers[i] for i in (0, 2, 1, 3, 5, 4, 6, 7, 8, 9)))
    assert isinstance(usual[1], nn.ReLU)
    images = torch.randn(4, *GREY_28)
    values, gradients = [], []
    for module in (ours, usual):
        values.append(module(images))
        values[-1].square().sum().backward()
        gradients.append([p.grad.clone() for p in ours.parameters() if p.grad is not None])
        ours.zero_grad()
    assert torch.equal(values[0], values[1])
    assert all(map(torch.equal, *gradients))


def test_resnet_shortcuts() -> None:
    """With the last normalisation of every block at 0 only the shortcuts are left."""
    module = make(ResNet18(), COLOUR).eval()
    blocks = [layer for layer in module.children() if hasattr(layer, "shortcut")]
    assert len(blocks) == 8
    images = torch.rand(2, 64, 8, 8)
    for block in blocks[:2]:  # of stage one, whose shortcut is the identity
        assert isinstance(block.second, nn.Sequential)
        norm = block.second[1]
        assert isinstance(norm, nn.BatchNorm2d)
        nn.init.zeros_(norm.weight)
        torch.testing.assert_close(block(images), images)
    assert blocks[2](images).shape == (2, 128, 4, 4)


@pytest.mark.parametrize("network", [*OURS, OwnModel(factory="a.b:c")])
def test_round_trip_through_a_table(network: Network) -> None:
    table = to_table(network)
    assert MODELS[table["name"]] is type(network)
    assert named(MODELS, table, key=("model",), what="model") == network
    assert from_table(Spec, {"model": table}).model == network


def test_the_module_needs_no_torch_to_be_read() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from fedmuster.core.errors import MissingExtraError\n"
        "from fedmuster.training.networks import ResNet18, SmallCNN, OwnModel\n"
        "for network in (SmallCNN(), ResNet18(), OwnModel(factory='a:b')):\n"
        "    try:\n"
        "        network.build((1, 28, 28), 10)\n"
        "    except MissingExtraError as error:\n"
        "        assert 'fedmuster[torch]' in str(error), error\n"
        "    else:\n"
        "        raise SystemExit('no error')\n"
        "try:\n"
        "    import fedmuster.training.engines.torch_engine\n"
        "except MissingExtraError as error:\n"
        "    print('good')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "good\n", done.stderr
    assert issubclass(MissingExtraError, ImportError)


OWN = """
from torch import nn

number = 3

def shaped(input_shape, num_classes):
    return nn.Linear(input_shape[0], num_classes)

def positional(shape, classes):
    return nn.Linear(shape[0], classes)

def by_classes(*, num_classes=5):
    return nn.Linear(4, num_classes)

def fixed():
    return nn.Linear(4, 3)

def optional(width=3, **rest):
    return nn.Linear(4, width)

class Net(nn.Linear):
    def __init__(self, input_shape, num_classes):
        super().__init__(input_shape[0], num_classes)

class Nested:
    net = Net

def wrong(input_shape, num_classes):
    return "a network"
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_nets.py").write_text(OWN)
    (tmp_path / "own_broken.py").write_text("import no_such_library")
    monkeypatch.syspath_prepend(tmp_path)
    return "own_nets"


@pytest.mark.parametrize(
    "function", ["shaped", "positional", "by_classes", "fixed", "optional", "Net", "Nested.net"]
)
def test_own_model(own: str, function: str) -> None:
    module = OwnModel(factory=f"{own}:{function}").build((4,), 3)
    assert isinstance(module, nn.Linear)
    assert tuple(module.weight.shape) == (3, 4)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("own_nets:wrong", "returned str, expected an nn.Module"),
        ("own_nets:number", "is int, expected a function"),
        ("own_nets:shapd", "is not there: own_nets has no shapd"),
        ("own_nest:shaped", "own_nest:shaped cannot be imported.*PYTHONPATH"),
        ("own_broken:shaped", "no_such_library"),
    ],
)
def test_own_model_that_cannot_be_made(own: str, factory: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        OwnModel(factory=factory).build((4,), 3)


@pytest.mark.parametrize("factory", ["", "package.module", "a:b:c", ":f", "m:", "m:f()", "a..b:c"])
def test_ill_formed_factory(factory: str) -> None:
    with pytest.raises(ConfigError, match="expected module:function"):
        OwnModel(factory=factory)


def test_networks_start_differently_from_different_seeds() -> None:
    torch.manual_seed(1)
    first = make(SmallCNN(), GREY_28).state_dict()["0.weight"].numpy()
    torch.manual_seed(2)
    assert not np.array_equal(first, make(SmallCNN(), GREY_28).state_dict()["0.weight"].numpy())
