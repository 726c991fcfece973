"""The user's strategy (its layers, its four methods, its round numbers) and Flower's log."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import FLOWER_LOGGER
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

_MOST_NAMES = 10


def say(text: str) -> None:
    """Tell an operator something that is useful to know."""
    FLOWER_LOGGER.info("fedmuster: %s", text)


def warn(text: str) -> None:
    """Tell an operator something that needs attention."""
    FLOWER_LOGGER.warning("fedmuster: %s", text)


def some(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    shown = ", ".join(names[:_MOST_NAMES])
    more = len(names) - _MOST_NAMES
    return shown if more <= 0 else f"{shown} and {more:,} more"


def named_layers(strategy: Strategy) -> Iterator[tuple[str, Strategy]]:
    """A strategy and every strategy that it holds, outermost first, with dotted attribute names."""
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
    """A strategy and every strategy that it holds, outermost first."""
    return (layer for _, layer in named_layers(strategy))


def setting_of(strategy: Strategy, name: str, default: Any) -> Any:
    """An attribute of the innermost layer that has it."""
    found = [getattr(layer, name) for layer in layers(strategy) if hasattr(layer, name)]
    return found[-1] if found else default


Configure = Callable[[int, ArrayRecord, ConfigRecord, Grid], Iterable[Message]]


class Methods(NamedTuple):
    """The four methods that the loop of ``Strategy.start`` calls."""

    configure_train: Configure
    aggregate_train: Callable[
        [int, Iterable[Message]], tuple[ArrayRecord | None, MetricRecord | None]
    ]
    configure_evaluate: Configure
    aggregate_evaluate: Callable[[int, Iterable[Message]], MetricRecord | None]

    @classmethod
    def of(cls, owner: object) -> "Methods":
        """The methods of a strategy, or of what stands in its place."""
        return cls(*(getattr(owner, name) for name in cls._fields))


def has_own_start(strategy: Strategy) -> bool:
    """Whether the user wrote the strategy's loop."""
    return type(strategy).start is not Strategy.start or "start" in vars(strategy)


@contextmanager
def in_place(strategy: Strategy, methods: Methods) -> Iterator[None]:
    """Let the strategy's own loop call ``methods`` instead of its own.

    An attribute of the object hides the method of its class, also for a ``start`` that users wrote.
    """
    own = {name: vars(strategy)[name] for name in methods._fields if name in vars(strategy)}
    vars(strategy).update(methods._asdict())
    try:
        yield
    finally:
        for name in methods._fields:
            del vars(strategy)[name]
        vars(strategy).update(own)


class LoopRounds:
    """Counts rounds as the strategy's own loop does, over several starts.

    Flower's loop trains once a round and counts from 1 at each start. A ``start`` written by the
    user may train several times a round, count from 0, or end early. Such a loop does not say which
    training is the last of a round. So where rounds have several trainings (seen at the second
    training of the first round), a round that a crash cuts short begins anew.
    """

    def __init__(self, plain: Sequence[int | bool] = (0, False, 0)) -> None:
        begun, several, ended_for = plain
        self.several = bool(several)
        """Whether a round was seen to train more than once."""
        self.done = int(begun) - (self.several and not ended_for)
        """Rounds begun so far, including the open one."""
        self._ended_for = int(ended_for)
        self._before = self.done
        self._latest: int | None = None

    def over(self, rounds_asked: int) -> bool:
        """Whether the rounds are done, or the loop ended by itself when asked for that many."""
        return self.done >= rounds_asked or self._ended_for >= rounds_asked

    def as_flower_counts(self, rounds_asked: int) -> bool:
        """Whether the loop trained exactly once in each of these rounds."""
        return not self.several and self.done == rounds_asked

    def number(self, server_round: int) -> int:
        """The loop's ``server_round``, counted since the first start."""
        return self._before + server_round

    def trains(self, server_round: int) -> None:
        """Note that the loop trains in its ``server_round``."""
        self._ended_for = 0
        if server_round != self._latest:
            self.done += 1
        elif not self.several:
            self.several = True
            warn(
                "start of the strategy trains more than once a round: each training counts as a "
                "round for fedmuster, and a round that a crash cuts short is begun anew"
            )
        self._latest = server_round

    def end(self, rounds_asked: int) -> None:
        """Note that the loop ended regularly when asked for ``rounds_asked`` rounds in all."""
        self._ended_for = rounds_asked

    def to_plain(self) -> tuple[int, bool, int]:
        """The state for the record."""
        return self.done, self.several, self._ended_for
