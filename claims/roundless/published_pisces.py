"""What Pisces' authors train on MNIST: their network, and their data of clients."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.config import check_types, require
from fedmuster.training.dealing import check_labels
from fedmuster.training.networks import Convolution, StackedNetwork
from fedmuster.training.partition import Partition
from fedmuster.training.training_records import DataSet, Shares


@dataclass(frozen=True, kw_only=True, slots=True)
class LeNet5(StackedNetwork):
    """LeNet-5 as in the authors' code: 5×5 convolutions of 6, 16 and 120 channels, then 84 units.

    References:
        Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, Gradient-based learning applied to document
        recognition, Proceedings of the IEEE 86, 1998.
    """

    name: ClassVar[str] = "lenet-5"
    convolutions: ClassVar[tuple[Convolution, ...]] = (
        Convolution(6, 5, "pool relu"),
        Convolution(16, 5, "pool relu", padded=False),
        Convolution(120, 5, "relu", padded=False),
    )
    hidden: ClassVar[tuple[int, ...]] = (84,)


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnMixtures(Partition):
    """Each client draws its samples by a mixture of labels of its own, Dirichlet(alpha).

    As in Plato's sampler: a client draws without replacement, a sample of label c with a weight of
    ``p_c``, but two clients may draw the same sample.

    Args:
        samples: how many each client has. Pisces: 500.
        alpha: of the mixtures. Plato: 1 unless a file says otherwise, and Pisces' do not.
    """

    name: ClassVar[str] = "own-mixtures"

    samples: int = 500
    alpha: float = 1.0

    def __post_init__(self) -> None:
        check_types(self)
        require(self.samples >= 1, self, "samples", "an integer >= 1")
        require(0 < self.alpha < np.inf, self, "alpha", "a number > 0")

    def split(self, data: DataSet, num_clients: int, rng: Generator) -> Shares:
        """Draw for each client."""
        check_labels(self, data, write="another partition")
        labels = np.asarray(data.train_targets)
        size = min(self.samples, len(labels))
        rows = []
        for _ in range(num_clients):
            with np.errstate(divide="ignore"):  # a label of weight 0 comes last
                weight = np.log(rng.dirichlet(np.full(data.num_classes, self.alpha)))
            # The largest of ln w + Gumbel are a draw by w without replacement.
            keys = weight[labels] + rng.gumbel(size=len(labels))
            rows.append(np.argpartition(-keys, size - 1)[:size])
        offsets = size * np.arange(num_clients + 1)
        return Shares(rows=np.concatenate(rows), offsets=offsets)
