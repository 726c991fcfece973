"""What all files of measurements have in common: when they are read, and for how many clients."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.errors import ConfigError, DataError
from fedmuster.core.records import IntArray
from fedmuster.worlds.traces.columns import READERS

T = TypeVar("T")

FEDSCALE_ENDINGS: Final = ("", ".pkl", ".pickle")
"""FedScale's own names have none: ``client_device_capacity``, ``client_behave_trace``."""


class TraceError(DataError):
    """A file of measurements says what cannot be right.

    ``key`` is where a world's table names the file, for example ``("devices", "path")``.
    """

    def __init__(self, message: str, *, key: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.key = key


def trace_reader(
    what: str, *, key: tuple[str, ...], fedscale: bool = False
) -> Callable[[Callable[[Path], T]], Callable[[str], T]]:
    """Makes a reader not read a file again that has not changed since, and say where it is named.

    What it returns is shared and must not be written to.

    Args:
        what: the file is, for messages.
        key: where a world's table has its path.
        fedscale: whether it may be FedScale's own, and not only a table.
    """
    endings = (*READERS, *FEDSCALE_ENDINGS) if fedscale else tuple(READERS)
    tables = " or ".join(READERS)

    def decorate(read: Callable[[Path], T]) -> Callable[[str], T]:
        @lru_cache(maxsize=4)
        def read_once(path: str, _modified: int, _size: int) -> T:
            return read(Path(path))

        def read_again_if_changed(path: str) -> T:
            ending = Path(path).suffix.lower()
            if ending not in endings:
                own = " (FedScale's own: no ending, .pkl or .pickle)" if fedscale else ""
                raise ConfigError(
                    f"the {what} {path} ends in {ending!r}, expected {tables}{own}; convert or "
                    "rename it",
                    key=key,
                )
            try:
                status = Path(path).stat()
                return read_once(path, status.st_mtime_ns, status.st_size)
            except OSError as error:
                own = ", or of FedScale's own" if fedscale else ""
                raise ConfigError(
                    f"cannot read the {what} {path}: {error.strerror}; write the path of a "
                    f"{tables} file{own}, relative to the working directory or absolute",
                    key=key,
                ) from error
            except DataError as error:
                raise TraceError(str(error), key=key) from error

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
