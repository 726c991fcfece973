"""The data sets that an experiment can name."""

from fedmuster.training.data.assembly import DATASETS, Data
from fedmuster.training.data.built_in import Digits, LinearRegression, OwnData, SyntheticLogistic
from fedmuster.training.data.public_sets import CIFAR10, MNIST, UCIHAR, AudioMNIST, FashionMNIST

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
