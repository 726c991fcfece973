"""Processes of one thread each: faster side by side, and other thread counts round otherwise."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@contextmanager
def one_thread_for_children() -> Iterator[None]:
    """For processes that start meanwhile; our other children keep what they had."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
