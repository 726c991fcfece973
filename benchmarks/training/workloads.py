"""What every contender trains: the same models, data, cohorts, batches and arithmetic.

All of it follows from a seed, so nothing is read from disk and every process makes its own copy.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.records import IntArray
from fedmuster.core.streams import LAYOUT, POLICY, stream
from fedmuster.training.local_sgd import LocalSGD, batches
from fedmuster.training.training_records import FederatedData, Inputs, Targets

if TYPE_CHECKING:
    from torch import Tensor, nn

Tensors = list[NDArray[np.float32]]
"""A model: its weights and biases in PyTorch's order and shapes."""

SEED = 7
CLASSES = 10
TEST_SAMPLES = 100  # nobody evaluates
_BLOCK = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """A model, clients with data of their own, and who trains in which round.

    Args:
        title: what it is, for the table.
        model: which network, see :meth:`network`.
        input_shape: of one sample.
        num_clients: K.
        cohort_size: m.
        samples: the fewest and the most that a client has; uniform in between.
        batch_size: of local SGD, for one epoch.
        rounds: in each turn, so that a turn is long enough to be timed.
        turns: that are timed, after one that is not.
        agreement: how far apart two models may be after a round, over how far it has moved them.
            Rounding alone gives 1e-5, but where it decides on which side of a ReLU's kink a unit
            is, a client's whole update turns by some per cent, and networks have many units.
            Other work is further off: from 0.04 if clients count alike, from 0.2 if their samples
            come in another order or in other batches.
    """

    title: str
    model: Literal["linear", "softmax", "mlp", "small-cnn", "cocs-cnn"]
    input_shape: tuple[int, ...]
    num_clients: int
    cohort_size: int
    samples: tuple[int, int]
    batch_size: int
    rounds: int
    turns: int
    agreement: float

    @property
    def local(self) -> LocalSGD:
        """Plain SGD, lr 0.1, one epoch."""
        return LocalSGD(learning_rate=0.1, batch_size=self.batch_size, epochs=1)

    @property
    def total_rounds(self) -> int:
        """With the warm-up."""
        return self.rounds * (self.turns + 1)

    def data(self) -> FederatedData:
        """Every client's samples."""
        rng = stream(SEED, LAYOUT)
        sizes = rng.integers(self.samples[0], self.samples[1] + 1, self.num_clients)
        inputs, targets = self._samples(rng, int(sizes.sum()))
        test_inputs, test_targets = self._samples(rng, TEST_SAMPLES)
        return FederatedData(
            inputs=inputs,
            targets=targets,
            offsets=np.concatenate([[0], np.cumsum(sizes)]),
            test_inputs=test_inputs,
            test_targets=test_targets,
            num_classes=0 if self.model == "linear" else CLASSES,
        )

    def cohort(self, round_number: int) -> IntArray:
        """Who trains in this round: [m], increasing."""
        rng = stream(SEED, POLICY, round_number)
        return np.sort(rng.choice(self.num_clients, self.cohort_size, replace=False))

    def orders(self, round_number: int, clients: IntArray, sizes: IntArray) -> list[IntArray]:
        """The order in which each client goes through its samples, ``batch_size`` at a time."""
        rows = batches(
            self.local, seed=SEED, round_number=round_number, clients=clients, num_samples=sizes
        ).rows.reshape(len(clients), -1)
        return [row[row >= 0] for row in rows]

    def network(self) -> "nn.Module":
        """The model in PyTorch, with its seeded initial parameters."""
        import torch
        from torch import nn

        torch.manual_seed(SEED)
        width = int(np.prod(self.input_shape))
        match self.model:
            case "linear":
                return nn.Sequential(nn.Linear(width, 1), nn.Flatten(0))
            case "softmax":
                return nn.Linear(width, CLASSES)
            case "mlp":
                return nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, CLASSES))
            case "small-cnn":
                return nn.Sequential(
                    *_convolution(1, 16), *_convolution(16, 32), nn.Flatten(),
                    nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, CLASSES),
                )  # fmt: skip
            case "cocs-cnn":
                return nn.Sequential(
                    *_convolution(3, 64), *_convolution(64, 64), nn.Flatten(),
                    nn.Linear(64 * 8 * 8, 384), nn.ReLU(),
                    nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, CLASSES),
                )  # fmt: skip

    def loss(self, outputs: "Tensor", targets: "Tensor") -> "Tensor":
        """Mean loss of a batch."""
        from torch.nn import functional

        if self.model == "linear":
            return functional.mse_loss(outputs, targets)
        return functional.cross_entropy(outputs, targets)

    def _samples(self, rng: np.random.Generator, count: int) -> tuple[Inputs, Targets]:
        """Noise around a mean per class, or around a plane."""
        width = int(np.prod(self.input_shape))
        inputs = rng.standard_normal((count, width), dtype=np.float32)
        if self.model == "linear":
            inputs /= np.float32(np.sqrt(width))
            truth = stream(SEED, LAYOUT, 1).standard_normal(width, dtype=np.float32)
            noise = 0.1 * rng.standard_normal(count, dtype=np.float32)
            return inputs, inputs @ truth + noise
        means = stream(SEED, LAYOUT, 1).standard_normal((CLASSES, width), dtype=np.float32)
        labels = rng.integers(0, CLASSES, count)
        for begin in range(0, count, _BLOCK):  # never all of it twice in memory
            block = slice(begin, begin + _BLOCK)
            inputs[block] *= 0.3
            inputs[block] += 0.1 * means[labels[block]]
        return inputs.reshape(count, *self.input_shape), labels


def _convolution(channels: int, filters: int) -> "Iterable[nn.Module]":
    from torch import nn

    return nn.Conv2d(channels, filters, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)


WORKLOADS = {
    "W1 linear": Workload(
        title="linear regression, 100 features, 20 clients", model="linear", input_shape=(100,),
        num_clients=20, cohort_size=20, samples=(80, 140), batch_size=20, rounds=10, turns=7,
        agreement=1e-4,
    ),
    "W1 softmax": Workload(
        title="softmax regression 784-10, 20 clients", model="softmax", input_shape=(784,),
        num_clients=20, cohort_size=20, samples=(80, 140), batch_size=20, rounds=10, turns=7,
        agreement=1e-4,
    ),
    "W2": Workload(
        title="MLP 784-64-10, 25 of 500 clients", model="mlp", input_shape=(784,),
        num_clients=500, cohort_size=25, samples=(80, 140), batch_size=20, rounds=6, turns=7,
        agreement=1e-4,
    ),
    "W3": Workload(
        title="CNN 5×5×16, 5×5×32, fc 64, 25 of 500 clients", model="small-cnn",
        input_shape=(1, 28, 28), num_clients=500, cohort_size=25, samples=(80, 140),
        batch_size=20, rounds=2, turns=5, agreement=0.05,
    ),
    "W4": Workload(
        title="CIFAR CNN 5×5×64 twice, fc 384, 192, 10 clients × 500 samples", model="cocs-cnn",
        input_shape=(3, 32, 32), num_clients=10, cohort_size=10, samples=(500, 500),
        batch_size=50, rounds=1, turns=3, agreement=0.05,
    ),
}  # fmt: skip
