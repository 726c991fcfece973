"""Dense layers with ReLU between them, for one model or for a stack of them.

A model is a flat vector in the order of PyTorch: weight [outputs, inputs] and bias of the first
layer, then of the second, … Leading axes are a stack: [n, P] holds n models. The first weight
matrix has most of the numbers and is handled apart; what follows it is the *head*.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.training_records import Parameters, Targets

Floats = NDArray[np.float32]


class Layer(NamedTuple):
    """Views of a layer: weight [..., outputs, inputs] and bias [..., outputs]."""

    weight: Floats
    bias: Floats


class Head(NamedTuple):
    """Views of all that follows the first weight matrix."""

    bias: Floats
    layers: list[Layer]


def num_parameters(widths: Sequence[int]) -> int:
    """Of a model whose layers take ``widths[:-1]`` and give ``widths[1:]`` numbers."""
    return sum((a + 1) * b for a, b in pairwise(widths))


def unflatten(parameters: Floats, widths: Sequence[int]) -> list[Layer]:
    """Views of the layers in flat vectors [..., P].

    Example:
        >>> [layer.weight.shape for layer in unflatten(np.zeros(23, np.float32), (4, 3, 2))]
        [(3, 4), (2, 3)]
    """
    layers, begin = [], 0
    for inputs, outputs in pairwise(widths):
        middle = begin + inputs * outputs
        weight = parameters[..., begin:middle].reshape(*parameters.shape[:-1], outputs, inputs)
        layers.append(Layer(weight, parameters[..., middle : middle + outputs]))
        begin = middle + outputs
    return layers


def first_weight(parameters: Floats, widths: Sequence[int]) -> Floats:
    """View of the first weight matrix [..., outputs, inputs] in flat vectors [..., P]."""
    inputs, outputs = widths[:2]
    flat = parameters[..., : inputs * outputs]
    return flat.reshape(*parameters.shape[:-1], outputs, inputs)


def head_of(parameters: Floats, widths: Sequence[int]) -> Floats:
    """View of what follows the first weight matrix, still flat."""
    return parameters[..., widths[0] * widths[1] :]


def head(flat: Floats, widths: Sequence[int]) -> Head:
    """Views of the parts of a flat head, see :func:`head_of`."""
    return Head(flat[..., : widths[1]], unflatten(flat[..., widths[1] :], widths[1:]))


def initial(widths: Sequence[int], rng: np.random.Generator) -> Parameters:
    """A model before training.

    Weights and biases are uniform within ±1/sqrt(inputs), as PyTorch's ``nn.Linear`` draws them.
    A model without hidden layers is convex, has no symmetry to break, and starts from 0.
    """
    parameters = np.zeros(num_parameters(widths), dtype=np.float32)
    if len(widths) > 2:
        for layer in unflatten(parameters, widths):
            bound = layer.weight.shape[-1] ** -0.5
            layer.weight[...] = rng.uniform(-bound, bound, layer.weight.shape)
            layer.bias[...] = rng.uniform(-bound, bound, layer.bias.shape)
    return parameters


def forward(model: Head, sums: Floats) -> list[Floats]:
    """The outputs of all layers; the last are the scores.

    ``sums`` [..., batch, outputs] are inputs times the first weight matrix; overwritten.
    """
    sums += model.bias[..., None, :]
    outputs = [sums]
    for layer in model.layers:
        np.maximum(outputs[-1], 0, out=outputs[-1])
        scores = outputs[-1] @ layer.weight.swapaxes(-1, -2)
        scores += layer.bias[..., None, :]
        outputs.append(scores)
    return outputs


def backward(model: Head, outputs: list[Floats], errors: Floats, gradient: Head) -> Floats:
    """Fill ``gradient``; the loss's derivative by the first layer's sums is returned.

    ``errors`` is its derivative by the scores, ``outputs`` what :func:`forward` returned.
    """
    below = zip(model.layers, gradient.layers, outputs[:-1], strict=True)
    for layer, slope, hidden in reversed(list(below)):
        np.matmul(errors.swapaxes(-1, -2), hidden, out=slope.weight)
        np.sum(errors, axis=-2, out=slope.bias)
        errors = errors @ layer.weight
        errors *= hidden > 0
    np.sum(errors, axis=-2, out=gradient.bias)
    return errors


Loss = Callable[[Floats, Targets], Floats]
"""(scores [..., outputs], targets [...]) -> losses [...]; scores become their derivatives."""


def cross_entropy(scores: Floats, targets: Targets) -> Floats:
    """Of softmax: ``log sum_j exp(s_j) - s_y``; its derivative is ``softmax(s) - onehot(y)``."""
    scores -= scores.max(axis=-1, keepdims=True)  # so that no exponential overflows
    flat = scores.reshape(-1)
    position = np.arange(targets.size) * scores.shape[-1] + targets.reshape(-1)
    chosen = flat[position].reshape(targets.shape)
    np.exp(scores, out=scores)
    total = scores.sum(axis=-1)
    scores /= total[..., None]
    flat[position] -= 1.0
    losses: Floats = np.log(total) - chosen
    return losses


def squared_error(scores: Floats, targets: Targets) -> Floats:
    """``(s - y)²``; its derivative is ``2 (s - y)``."""
    scores -= targets[..., None]
    losses: Floats = np.square(scores[..., 0])
    scores *= 2.0
    return losses


class Descent:
    """Weights [n, …] that move in place, by the rule of :class:`LocalSGD`.

    FedProx's term pulls to ``anchor``, one number for all or an array for each of n; ``rate`` is
    the learning rate of the round.
    """

    def __init__(
        self,
        weights: Floats,
        anchor: Sequence[Floats] | Floats | float,
        local: LocalSGD,
        rate: float,
    ) -> None:
        self.weights, self._local, self._rate = weights, local, rate
        self._anchor: Floats | None = None
        if local.proximal:
            self._anchor = np.broadcast_to(np.asarray(anchor, np.float32), weights.shape)
        self._velocity = np.zeros_like(weights) if local.momentum else None

    def step(self, gradient: Floats) -> None:
        """Move the first ``len(gradient)`` clients; ``gradient`` is overwritten."""
        weights = self.weights[: len(gradient)]
        if self._local.weight_decay:
            gradient += self._local.weight_decay * weights
        if self._anchor is not None:
            gradient += self._local.proximal * (weights - self._anchor[: len(gradient)])
        if self._velocity is not None:
            velocity = self._velocity[: len(gradient)]
            velocity *= self._local.momentum
            velocity += gradient
            np.multiply(velocity, self._rate, out=gradient)
        else:
            gradient *= self._rate
        weights -= gradient
