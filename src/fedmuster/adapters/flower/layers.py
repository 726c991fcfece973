"""A strategy and those that it wraps, as Flower's for differential privacy do."""

from collections.abc import Iterator
from typing import Any

from flwr.serverapp.strategy import Strategy


def layers(strategy: Strategy) -> Iterator[Strategy]:
    """A strategy, the one that it wraps (as Flower's for differential privacy do), and so on."""
    yield strategy
    inner = getattr(strategy, "strategy", None)
    if isinstance(inner, Strategy):
        yield from layers(inner)


def setting_of(strategy: Strategy, name: str, default: Any) -> Any:
    """An attribute of the innermost layer that has it."""
    found = [getattr(layer, name) for layer in layers(strategy) if hasattr(layer, name)]
    return found[-1] if found else default
