"""Which of an app's own metrics is the loss, and which the accuracy.

Flower leaves the names to the app. Exact names come first, then names that end in one of them
("eval_accuracy", "train-loss"), so that an app that sends several is read the same each time.
"""

import math
from functools import lru_cache
from numbers import Real
from typing import Final

from flwr.app import MetricRecord

_WHEN: Final = ("eval", "test", "val", "train")
ACCURACY_NAMES: Final = (
    "accuracy",
    "acc",
    *(f"{when}_{what}" for when in _WHEN for what in ("accuracy", "acc")),
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


def loss_names(metrics: MetricRecord) -> tuple[str, ...]:
    """The metrics that are losses, the likeliest first.

    Example:
        >>> loss_names(MetricRecord({"num-examples": 32, "final-train-loss": 0.7}))
        ('final-train-loss',)
    """
    return _in_order(tuple(metrics), LOSS_NAMES)


def signals_of(metrics: MetricRecord) -> dict[str, float]:
    """Every metric that is one finite number, and the loss also as "loss", where policies look.

    Example:
        >>> signals_of(MetricRecord({"train_loss": 0.7, "per-class": [0.1, 0.9]}))
        {'train_loss': 0.7, 'loss': 0.7}
    """
    signals = {
        name: float(value)
        for name, value in metrics.items()
        if not isinstance(value, list) and math.isfinite(value)
    }
    loss = loss_of(metrics)
    if loss is not None:
        signals["loss"] = loss
    return signals


def finite_metric(metrics: MetricRecord, name: str) -> float | None:
    """One metric as a number; None where it is a list or not finite."""
    value = metrics[name]
    if not isinstance(value, Real):  # a list, or what else a strategy puts into a dict of its own
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def _first_of(metrics: MetricRecord, wanted: tuple[str, ...]) -> float | None:
    values = (finite_metric(metrics, name) for name in _in_order(tuple(metrics), wanted))
    return next((value for value in values if value is not None), None)


@lru_cache(maxsize=256)  # replies of a federation bring the same names again and again
def _in_order(names: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[str, ...]:
    plain = {name: str(name).lower().replace("-", "_") for name in sorted(names, key=str)}
    exact = [name for ending in wanted for name in plain if plain[name] == ending]
    suffixed = [name for ending in wanted for name in plain if plain[name].endswith(f"_{ending}")]
    return tuple(dict.fromkeys(exact + suffixed))
