"""The learning task: scikit-learn's digits, split over the clients, and a logistic regression."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

NUM_CLASSES = 10
NUM_FEATURES = 64

Array = NDArray[Any]


def load_data(partition_id: int, num_partitions: int) -> tuple[Array, Array, Array, Array]:
    """Every num_partitions-th image is this client's: 80 % to train on, 20 % to test with."""
    images, labels = load_digits(return_X_y=True)
    images, labels = images[partition_id::num_partitions] / 16, labels[partition_id::num_partitions]
    cut = int(0.8 * len(images))
    return images[:cut], labels[:cut], images[cut:], labels[cut:]


def create_model(local_epochs: int) -> LogisticRegression:
    """A logistic regression with all its parameters at zero."""
    model = LogisticRegression(max_iter=local_epochs, warm_start=True)
    model.classes_ = np.arange(NUM_CLASSES)
    set_parameters(model, [np.zeros((NUM_CLASSES, NUM_FEATURES)), np.zeros(NUM_CLASSES)])
    return model


def get_parameters(model: LogisticRegression) -> list[Array]:
    """The model's weights, as Flower sends them."""
    return [model.coef_, model.intercept_]


def set_parameters(model: LogisticRegression, parameters: list[Array]) -> None:
    """Go on from these weights."""
    model.coef_, model.intercept_ = parameters


def fit(model: LogisticRegression, images: Array, labels: Array) -> None:
    """A few steps from where the model is; that they do not converge is meant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=ConvergenceWarning)
        model.fit(images, labels)
