"""The four methods by which Flower's loop works, of a strategy in whose place others stand."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

Configure = Callable[[int, ArrayRecord, ConfigRecord, Grid], Iterable[Message]]


class Methods(NamedTuple):
    """What the loop of ``Strategy.start`` calls, under the names by which it does."""

    configure_train: Configure
    aggregate_train: Callable[
        [int, Iterable[Message]], tuple[ArrayRecord | None, MetricRecord | None]
    ]
    configure_evaluate: Configure
    aggregate_evaluate: Callable[[int, Iterable[Message]], MetricRecord | None]

    @classmethod
    def of(cls, strategy: Strategy) -> "Methods":
        """The strategy's own."""
        return cls(*(getattr(strategy, name) for name in cls._fields))


def has_own_start(strategy: Strategy) -> bool:
    """Whether it has a loop that users wrote themselves."""
    return type(strategy).start is not Strategy.start or "start" in vars(strategy)


@contextmanager
def in_place(strategy: Strategy, methods: Methods) -> Iterator[None]:
    """Let the strategy's own loop call these instead.

    An attribute of the object hides the method of its class, and a loop that users wrote
    themselves (a ``start`` of their own) sees it as Flower's does.
    """
    own = {name: vars(strategy)[name] for name in methods._fields if name in vars(strategy)}
    vars(strategy).update(methods._asdict())
    try:
        yield
    finally:
        for name in methods._fields:
            del vars(strategy)[name]
        vars(strategy).update(own)
