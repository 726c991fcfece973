"""What an app's own metrics mean to a policy: which is the loss, which the accuracy.

Flower leaves the names to the app. Exact names come first, then names that end in one of them
("eval_accuracy", "train-loss"), so that an app which sends several is read the same each time.
"""

import math
from typing import Final

from flwr.app import MetricRecord

ACCURACY_NAMES: Final = (
    "accuracy",
    "acc",
    "eval_accuracy",
    "eval_acc",
    "test_accuracy",
    "test_acc",
    "val_accuracy",
    "val_acc",
    "train_accuracy",
    "train_acc",
)
LOSS_NAMES: Final = ("loss", "train_loss", "eval_loss", "val_loss", "test_loss")


def accuracy_of(metrics: MetricRecord) -> float | None:
    """The accuracy among an app's metrics, if there is one.

    Example:
        >>> accuracy_of(MetricRecord({"eval_loss": 0.7, "eval_acc": 0.9}))
        0.9
        >>> accuracy_of(MetricRecord({"num-examples": 32})) is None
        True
    """
    return _first_of(metrics, ACCURACY_NAMES)


def loss_of(metrics: MetricRecord) -> float | None:
    """The loss among an app's metrics, if there is one.

    Example:
        >>> loss_of(MetricRecord({"num-examples": 32, "final-train-loss": 0.7}))
        0.7
    """
    return _first_of(metrics, LOSS_NAMES)


def signals_of(metrics: MetricRecord) -> dict[str, float]:
    """Every metric that is one finite number, and the loss also as "loss", where policies look.

    Example:
        >>> signals_of(MetricRecord({"train_loss": 0.7, "per-class": [0.1, 0.9]}))
        {'train_loss': 0.7, 'loss': 0.7}
    """
    signals = {}
    for name in metrics:
        value = finite_metric(metrics, name)
        if value is not None:
            signals[name] = value
    loss = loss_of(metrics)
    if loss is not None:
        signals["loss"] = loss
    return signals


def finite_metric(metrics: MetricRecord, name: str) -> float | None:
    """One metric as a number; None where it is a list or not finite."""
    value = metrics[name]
    if isinstance(value, list):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def _first_of(metrics: MetricRecord, names: tuple[str, ...]) -> float | None:
    readable = {
        name.lower().replace("-", "_"): value
        for name in sorted(metrics)
        if (value := finite_metric(metrics, name)) is not None
    }
    for name in names:
        if name in readable:
            return readable[name]
    for ending in names:
        for name, value in readable.items():
            if name.endswith("_" + ending):
                return value
    return None
