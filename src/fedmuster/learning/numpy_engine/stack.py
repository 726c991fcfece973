"""Local SGD of a stack of clients, step by step, all of them in each step."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedmuster.core.records import BoolArray, FloatArray
from fedmuster.learning.numpy_engine.dense import Floats, backward, forward, head
from fedmuster.learning.numpy_engine.descent import Descent
from fedmuster.learning.numpy_engine.first_layer import FirstLayer, Work
from fedmuster.learning.numpy_engine.loss import Loss
from fedmuster.learning.records import Targets


class Part(NamedTuple):
    """Clients of a stack whose first layers have the same form and shape."""

    clients: slice
    layer: FirstLayer


def train_stack(
    work: Work,
    parts: Sequence[Part],
    heads: Floats,
    targets: Targets,
    *,
    widths: Sequence[int],
    loss: Loss,
) -> tuple[FloatArray, FloatArray]:
    """Train ``parts`` and ``heads`` [n, H] (all start from the same) in place.

    Returns:
        [n], mean loss and mean squared loss of each client's samples as they were trained on.
    """
    real = work.rows >= 0
    counts = np.count_nonzero(real, axis=2)
    # Every batch counts its mean loss: a sample weighs 1/size in the gradient, a padding nothing.
    weights = (real / np.maximum(counts, 1)[..., None]).astype(np.float32)
    targets = targets[work.starts[:, None, None] + np.maximum(work.rows, 0)]
    losses = np.zeros(work.rows.shape, dtype=np.float32)
    descent = Descent(heads, heads[:1].copy(), work.local, work.rate)
    gradients = np.empty_like(heads)
    for step, count in enumerate(np.count_nonzero(counts, axis=0).tolist()):
        models, gradient = head(heads[:count], widths), gradients[:count]
        sums = np.empty((count, work.rows.shape[2], widths[1]), dtype=np.float32)
        for part in parts:
            if part.clients.start < count:
                part.layer.forward(step, sums[part.clients])
        outputs = forward(models, sums)
        scores = outputs[-1]
        losses[:count, step] = loss(scores, targets[:count, step])
        scores *= weights[:count, step, :, None]
        errors = backward(models, outputs, scores, head(gradient, widths))
        for part in parts:
            if part.clients.start < count:
                part.layer.step(step, errors[part.clients])
        descent.step(gradient)
    return _means(losses, real)


def _means(losses: Floats, real: BoolArray) -> tuple[FloatArray, FloatArray]:
    client = np.nonzero(real)[0]
    size = np.bincount(client, minlength=len(losses))
    # bincount adds in order and in double precision, whatever the padding around.
    value = losses[real].astype(np.float64)
    total = np.bincount(client, weights=value, minlength=len(losses))
    squares = np.bincount(client, weights=value**2, minlength=len(losses))
    return total / size, squares / size
