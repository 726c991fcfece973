"""The learning task: handwritten digits, split over the clients, and a logistic regression.

With numpy alone: in a deployment every message starts a process, which imports all this anew.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmuster.training.data import Digits

NUM_CLASSES = 10
NUM_FEATURES = 64
LEARNING_RATE = 0.5

Array = NDArray[Any]


def load_data(partition_id: int, num_partitions: int) -> tuple[Array, Array]:
    """Every num_partitions-th image is this client's, but none that the server tests with."""
    data = Digits().load(seed=0)
    mine = slice(partition_id, None, num_partitions)
    return data.train_inputs[mine].reshape(-1, NUM_FEATURES), data.train_targets[mine]


def load_test_data() -> tuple[Array, Array]:
    """What the server tests with."""
    data = Digits().load(seed=0)
    return data.test_inputs.reshape(-1, NUM_FEATURES), data.test_targets


def create_model() -> list[Array]:
    """Weights and biases, all zero."""
    return [np.zeros((NUM_FEATURES, NUM_CLASSES)), np.zeros(NUM_CLASSES)]


def predict(model: list[Array], images: Array) -> Array:
    """The probability of each digit for each image."""
    weights, biases = model
    scores = images @ weights + biases
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def fit(model: list[Array], images: Array, labels: Array, *, steps: int) -> list[Array]:
    """A few steps of gradient descent from where the model is."""
    weights, biases = model
    for _ in range(steps):
        errors = (predict([weights, biases], images) - np.eye(NUM_CLASSES)[labels]) / len(images)
        weights = weights - LEARNING_RATE * images.T @ errors
        biases = biases - LEARNING_RATE * errors.sum(axis=0)
    return [weights, biases]


def test(model: list[Array], images: Array, labels: Array) -> tuple[float, float]:
    """Mean loss, and the share of images that are read right."""
    probabilities = predict(model, images)
    loss = -np.log(probabilities[np.arange(len(labels)), labels]).mean()
    return float(loss), float((probabilities.argmax(axis=1) == labels).mean())
