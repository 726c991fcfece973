"""Dense layers and losses: derivatives against finite differences, in double precision."""

from typing import Any

import numpy as np
import pytest

from fedmuster.training.engines.dense_layers import (
    Loss,
    backward,
    cross_entropy,
    first_weight,
    forward,
    head,
    head_of,
    initial,
    num_parameters,
    squared_error,
    unflatten,
)


@pytest.mark.parametrize("widths", [(4, 3), (4, 5, 3), (4, 6, 5, 3)])
@pytest.mark.parametrize("loss", [cross_entropy, squared_error])
def test_gradient(widths: tuple[int, ...], loss: Loss) -> None:
    widths = widths if loss is cross_entropy else (*widths[:-1], 1)
    rng = np.random.default_rng(8)
    stack, batch = 3, 7
    models: Any = rng.normal(size=(stack, num_parameters(widths)))
    inputs: Any = rng.normal(size=(stack, batch, widths[0]))
    targets: Any = (
        rng.integers(widths[-1], size=(stack, batch))
        if loss is cross_entropy
        else rng.normal(size=(stack, batch))
    )

    def total(flat: Any) -> Any:
        sums = inputs @ first_weight(flat, widths).swapaxes(1, 2)
        scores = forward(head(head_of(flat, widths), widths), sums)[-1]
        return loss(scores, targets).sum(axis=1)

    views = head(head_of(models, widths), widths)
    outputs = forward(views, inputs @ first_weight(models, widths).swapaxes(1, 2))
    loss(outputs[-1], targets)
    gradient = np.empty_like(models)
    errors = backward(views, outputs, outputs[-1], head(head_of(gradient, widths), widths))
    first_weight(gradient, widths)[...] = errors.swapaxes(1, 2) @ inputs
    for parameter in range(models.shape[1]):
        up, down = models.copy(), models.copy()
        up[:, parameter] += 1e-6
        down[:, parameter] -= 1e-6
        slope = (total(up) - total(down)) / 2e-6
        np.testing.assert_allclose(gradient[:, parameter], slope, rtol=1e-5, atol=1e-7)


def test_layers_are_views_in_the_order_of_pytorch() -> None:
    flat = np.arange(23, dtype=np.float32)
    first, second = unflatten(flat, (4, 3, 2))
    assert first.weight.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert first.bias.tolist() == [12, 13, 14]
    assert second.weight.tolist() == [[15, 16, 17], [18, 19, 20]]
    assert second.bias.tolist() == [21, 22]
    second.bias[0] = -1
    assert flat[21] == -1
    assert np.shares_memory(first_weight(flat, (4, 3, 2)), first.weight)
    assert head(head_of(flat, (4, 3, 2)), (4, 3, 2)).bias.tolist() == [12, 13, 14]


def test_large_scores_do_not_overflow() -> None:
    scores = np.array([[1e30, 0.0], [0.0, -1e30]], dtype=np.float32)
    losses = cross_entropy(scores, np.array([0, 1]))
    assert losses.tolist() == [0, np.float32(1e30)]
    assert scores.tolist() == [[0, 0], [1, -1]]


def test_initial_weights_are_as_pytorch_draws_them() -> None:
    """Uniform within ±1/sqrt(inputs), biases too; nothing to draw without hidden layers."""
    for layer in unflatten(initial((12, 80, 40), np.random.default_rng(0)), (12, 80, 40)):
        bound = layer.weight.shape[1] ** -0.5
        for values in layer:
            assert 0.9 * bound < np.abs(values).max() <= bound
            assert abs(values.std() - bound / 3**0.5) < 0.1 * bound
    assert not initial((12, 4), np.random.default_rng(0)).any()
