"""The data sets that an experiment can name."""

from typing import Final

from fedmuster.learning.sources.digits import Digits
from fedmuster.learning.sources.own_data import OwnData
from fedmuster.learning.sources.public_data import (
    CIFAR10,
    MNIST,
    UCIHAR,
    AudioMNIST,
    FashionMNIST,
)
from fedmuster.learning.sources.synthetic import LinearRegression, SyntheticLogistic

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
