"""What all files of measurements have in common: when they are read, and for how many clients."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.errors import ConfigError
from fedmuster.core.records import IntArray

T = TypeVar("T")


def remembered(what: str, kinds: str) -> Callable[[Callable[[Path], T]], Callable[[str], T]]:
    """Makes a reader not read a file again that has not changed since.

    What it returns is shared and must not be written to.

    Args:
        what: the file is, for messages.
        kinds: of files that can be read, for messages.
    """

    def decorate(read: Callable[[Path], T]) -> Callable[[str], T]:
        @lru_cache(maxsize=4)
        def read_once(path: str, _modified: int, _size: int) -> T:
            return read(Path(path))

        def read_again_if_changed(path: str) -> T:
            try:
                status = Path(path).stat()
                return read_once(path, status.st_mtime_ns, status.st_size)
            except OSError as error:
                raise ConfigError(
                    f"cannot read the {what} {path}: {error.strerror}; write the path of a {kinds} "
                    "file, relative to the working directory or absolute",
                    key=("path",),
                ) from error

        read_again_if_changed.__doc__ = read.__doc__
        return read_again_if_changed

    return decorate


def rows_for(num_clients: int, num_rows: int, rng: Generator) -> IntArray:
    """[K], which of a file's clients each client is.

    The k-th, if there are as many; else at random, and nobody twice before all others once: a
    sorted file must not make low ids special.
    """
    if num_rows == num_clients:
        return np.arange(num_clients)
    times, rest = divmod(num_clients, num_rows)
    rows = np.concatenate(
        [np.tile(np.arange(num_rows), times), rng.choice(num_rows, rest, replace=False)]
    )
    return rng.permutation(rows)
