"""Messages in Flower's own log, which ``flwr run --stream`` shows."""

from collections.abc import Sequence

from flwr.common.logger import FLOWER_LOGGER

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
