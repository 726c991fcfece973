"""Which seeds a claim runs: 0, 1, …, or from another first one on, to see whether it was luck."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_FIRST: ContextVar[int] = ContextVar("first seed", default=0)


def seeds(count: int) -> tuple[int, ...]:
    """So many seeds.

    Example:
        >>> with seeds_from(100):
        ...     seeds(3)
        (100, 101, 102)
        >>> seeds(2)
        (0, 1)
    """
    return tuple(range(_FIRST.get(), _FIRST.get() + count))


@contextmanager
def seeds_from(first: int) -> Iterator[None]:
    """Let :func:`seeds` begin with this one."""
    token = _FIRST.set(first)
    try:
        yield
    finally:
        _FIRST.reset(token)
