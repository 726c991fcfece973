"""Convolutional and dense layers, one after the other. Needs PyTorch."""

import math
from collections.abc import Sequence

from torch import nn

from fedmuster.learning.networks import Convolution, side_after


def stacked(
    input_shape: tuple[int, ...],
    convolutions: Sequence[Convolution],
    hidden: Sequence[int],
    hidden_then: str,
    *,
    num_outputs: int,
) -> nn.Module:
    """Convolutions, then hidden dense layers (each followed by ``hidden_then``), then outputs."""
    layers: list[nn.Module] = []
    shape = input_shape
    for convolution in convolutions:
        shape = _convolve(layers, shape, convolution)
    layers.append(nn.Flatten())
    width = math.prod(shape)
    for units in hidden:
        layers.append(nn.Linear(width, units))
        layers += [
            nn.ReLU() if step == "relu" else nn.BatchNorm1d(units) for step in hidden_then.split()
        ]
        width = units
    layers.append(nn.Linear(width, num_outputs))
    return nn.Sequential(*layers)


def _convolve(
    layers: list[nn.Module], shape: tuple[int, ...], layer: Convolution
) -> tuple[int, ...]:
    """Append a convolution and what follows it; the shape of its output."""
    sides = [side_after(side, layer) for side in shape[1:]]
    padding = layer.kernel // 2 if layer.padded else 0
    layers.append(nn.Conv2d(shape[0], layer.channels, layer.kernel, padding=padding))
    for step in layer.then.split():
        if step == "norm":
            layers.append(nn.BatchNorm2d(layer.channels))
        elif step == "relu":
            layers.append(nn.ReLU())
        else:
            height, width = (2 if pooled else 1 for _, pooled in sides)
            layers.append(nn.MaxPool2d((height, width)))
    return layer.channels, *(side for side, _ in sides)
