"""A strategy and those that it wraps, as Flower's for differential privacy do."""

from collections.abc import Iterator
from typing import Any

from flwr.serverapp.strategy import Strategy


def named_layers(strategy: Strategy) -> Iterator[tuple[str, Strategy]]:
    """A strategy, those that it holds, and so on, each with the first of its dotted names."""
    seen: set[int] = set()
    waiting = [("", strategy)]
    while waiting:
        prefix, layer = waiting.pop(0)
        if id(layer) in seen:
            continue
        seen.add(id(layer))
        yield prefix, layer
        waiting += [
            (f"{prefix}.{name}".lstrip("."), value)
            for name, value in vars(layer).items()
            if isinstance(value, Strategy)
        ]


def layers(strategy: Strategy) -> Iterator[Strategy]:
    """A strategy, the one that it wraps, and so on."""
    for _, layer in named_layers(strategy):
        yield layer


def setting_of(strategy: Strategy, name: str, default: Any) -> Any:
    """An attribute of the innermost layer that has it."""
    found = [getattr(layer, name) for layer in layers(strategy) if hasattr(layer, name)]
    return found[-1] if found else default
