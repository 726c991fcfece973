"""Judges what a client sends: parameters that may be aggregated, and metrics that tell something.

Data come from another machine, so everything is checked: types, names, shapes, numbers that are not
finite.
"""

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import FloatArray
from fedmuster.nvflare.plain_values import is_tensor, to_numpy

_LOSSES: Final = ("loss", "train_loss", "eval_loss", "val_loss", "test_loss")
_ACCURACIES: Final = ("accuracy", "acc", "test_accuracy", "val_accuracy", "eval_accuracy")
_MOST_SIGNALS: Final = 64
_LONGEST_NAME: Final = 200


def numbers_of(value: Any) -> NDArray[Any] | None:
    """An array, tensor, or number as an array; None for anything else."""
    if callable(getattr(value, "materialize", None)):  # FLARE left it on disk
        value = value.materialize()
    try:
        array = to_numpy(value) if is_tensor(value) else np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        return None
    return array if array.dtype.kind in "biufc" else None


def parameters_fault(parameters: Any, model: Mapping[str, Any]) -> str | None:
    """Why parameters cannot be aggregated into a model; None if they can.

    A client may send some of the model's parameters only. Where the model is empty, because clients
    make the first one, any names and shapes are welcome.

    Example:
        >>> parameters_fault({"w": np.array([1.0, np.nan])}, {"w": np.zeros(2)})
        "parameter 'w' is not finite"
    """
    if not isinstance(parameters, Mapping) or len(parameters) == 0:
        return "no parameters"
    for name, value in parameters.items():
        array = numbers_of(value)
        if array is None:
            return f"parameter {_shown(name)} holds no numbers"
        if model:
            if name not in model:
                return f"parameter {_shown(name)} is not in the model"
            expected = numbers_of(model[name])
            if expected is not None and array.shape != expected.shape:
                return f"parameter {_shown(name)} has shape {array.shape}, not {expected.shape}"
        if not np.isfinite(array).all():
            return f"parameter {_shown(name)} is not finite"
    return None


def signals_of(metrics: Any) -> dict[str, float]:
    """Every metric that is a finite number; the loss also as "loss", the accuracy as "accuracy".

    Example:
        >>> signals_of({"val_loss": 0.5, "per_class": [0.1, 0.9], "broken": float("nan")})
        {'val_loss': 0.5, 'loss': 0.5}
    """
    if not isinstance(metrics, Mapping):
        return {}
    signals: dict[str, float] = {}
    for name, value in metrics.items():
        fits = isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME
        if fits and isinstance(value, Real) and math.isfinite(value):
            signals[name] = float(value)
        if len(signals) == _MOST_SIGNALS:
            break
    for usual, names in (("loss", _LOSSES), ("accuracy", _ACCURACIES)):
        found = next((signals[name] for name in names if name in signals), None)
        if found is not None:
            signals[usual] = found
    return signals


def steps_of(claimed: Any) -> float:
    """A number of steps, as FLARE reads it: 1 unless it is finite and positive."""
    is_number = isinstance(claimed, Real) and not isinstance(claimed, bool)
    return float(claimed) if is_number and 0 < claimed < math.inf else 1.0


def update_vector(
    parameters: Mapping[str, Any], model: Mapping[str, Any], *, is_difference: bool
) -> FloatArray:
    """What a client changed, as one vector of all floating-point parameters of the model."""
    changes = [np.zeros(0)]
    for name, value in model.items():
        before = numbers_of(value)
        if before is None or before.dtype.kind != "f":
            continue
        sent = numbers_of(parameters[name]) if name in parameters else None
        if sent is None:
            changes.append(np.zeros(before.size))
        else:
            changes.append((sent if is_difference else sent - before).astype(np.float64).ravel())
    return np.concatenate(changes)


def _shown(name: object) -> str:
    text = repr(name)
    return text if len(text) <= 60 else text[:57] + "…"


def like(parameter: Any, values: FloatArray) -> Any:
    """Values as an array or tensor of a parameter's type; whole numbers are rounded."""
    if is_tensor(parameter):
        return parameter.new_tensor(values)
    kind = np.asarray(parameter).dtype
    return (np.rint(values) if kind.kind in "iu" else values).astype(kind)
