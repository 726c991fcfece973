"""The data sets that an experiment can name."""

from typing import Final

from fedmuster.training.data.digits import Digits
from fedmuster.training.data.public_sets import CIFAR10, MNIST, UCIHAR, AudioMNIST, FashionMNIST
from fedmuster.training.data.synthetic import LinearRegression, OwnData, SyntheticLogistic

# The data sets that an experiment can name.

Data = (
    Digits
    | MNIST
    | FashionMNIST
    | CIFAR10
    | UCIHAR
    | AudioMNIST
    | LinearRegression
    | SyntheticLogistic
    | OwnData
)

DATASETS: Final[dict[str, type[Data]]] = {
    "digits": Digits,
    "mnist": MNIST,
    "fashion-mnist": FashionMNIST,
    "cifar-10": CIFAR10,
    "uci-har": UCIHAR,
    "audiomnist": AudioMNIST,
    "linear-regression": LinearRegression,
    "synthetic-logistic": SyntheticLogistic,
    "own": OwnData,
}

__all__ = [
    "CIFAR10",
    "DATASETS",
    "MNIST",
    "UCIHAR",
    "AudioMNIST",
    "Data",
    "Digits",
    "FashionMNIST",
    "LinearRegression",
    "OwnData",
    "SyntheticLogistic",
]
