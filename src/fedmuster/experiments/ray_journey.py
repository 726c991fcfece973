"""Sends a cell to a worker of a Ray cluster and writes its progress into the cell's folder."""

import fcntl
import logging
import os
import shutil
import signal
import socket
import time
import traceback
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from types import ModuleType
from typing import Any, Final, NotRequired, TypedDict

from fedmuster.core.errors import FedmusterError, StateError
from fedmuster.core.files import write_file
from fedmuster.experiments.cell_images import Image, bits_here, differences, image_of, put
from fedmuster.experiments.journal import Journal, Standing, standing
from fedmuster.experiments.run import SPEC_NAME, execute
from fedmuster.experiments.sweep import ONE_THREAD
from fedmuster.training.data.data_files import DATA_FOLDER_VARIABLE

_POLL_SECONDS: Final = 0.2
"""After this time a worker notices that it was cancelled: Ray does not wake it up."""
_PREFIX: Final = "fedmuster-cell-"
_MARK_NAME: Final = "in-use"
_SWEPT_AFTER_SECONDS: Final = 3600.0


class News(TypedDict):
    """A worker's message: plain data, which any version can read.

    ``node`` is the worker's machine, ``image`` the cell's files, ``error`` why the worker cannot
    go on; ``done`` is there when the cell is over.
    """

    node: str
    image: NotRequired[Image]
    error: NotRequired[str]
    done: NotRequired[bool]


def play(
    spec: bytes, image: Image, bits: Mapping[str, str] | None, every_seconds: float
) -> Iterator[News]:
    """Play the rounds of a cell that ``image`` does not hold yet.

    Args:
        spec: the cell's ``spec.toml``.
        image: how far it is.
        bits: what the driver's :func:`bits_here` says; None not to mind.
        every_seconds: between images.
    """
    # How Ray cancels; ignored by what descends from a shell's background job.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    node = _name_of_this_node()
    if bits is not None and (others := differences(bits_here(networks="torch" in bits), bits)):
        yield {
            "node": node,
            "error": f"it has {others}, so that results may differ in their last bits: install "
            "the same there, take the node out of the cluster, or accept it with --mixed-versions",
        }
        return
    with _own_folder() as folder, ThreadPoolExecutor(1) as threads:
        write_file(folder / SPEC_NAME, spec)
        put(folder, image)
        outbox = _Outbox(folder, every_seconds)
        playing = threads.submit(execute, folder, wanted=outbox.wanted)
        try:
            while outbox.images or not wait([playing], timeout=_POLL_SECONDS).done:
                while outbox.images:
                    yield {"node": node, "image": outbox.images.popleft()}
        finally:
            outbox.closed = True
        yield {"node": node, "image": image_of(folder)}
        if (error := playing.exception()) is None:
            yield {"node": node, "done": True}
        else:
            yield {"node": node, "error": _message(error).replace(f"{folder}/", "")}


class _Outbox:
    """Takes images of a cell between its commits, at most one more than was sent."""

    def __init__(self, folder: Path, every_seconds: float) -> None:
        self.images: deque[Image] = deque()
        self.closed = False
        self._folder = folder
        self._every_seconds = every_seconds
        self._due = time.monotonic()

    def wanted(self) -> bool:
        """See :func:`execute`.

        The first image is of the moment before anybody is debited: a run cannot go on from a
        ledger with its debits and a journal that does not know what was there before them.
        """
        began = time.monotonic()
        if began >= self._due and not self.images:
            self.images.append(image_of(self._folder))
            ended = time.monotonic()
            # A long journal takes its time: at most a tenth of it for images.
            self._due = ended + max(self._every_seconds, 10 * (ended - began))
        return not self.closed


def _message(error: BaseException) -> str:
    if isinstance(error, FedmusterError | OSError | MemoryError):  # foreseen, as in cli
        return str(error) or "out of memory"
    return "".join(traceback.format_exception(error))


@contextmanager
def _own_folder() -> Iterator[Path]:
    """A temporary folder, after removing those that killed workers have left."""
    for left in Path(gettempdir()).glob(f"{_PREFIX}*/{_MARK_NAME}"):
        with suppress(OSError), left.open("rb") as mark:
            if time.time() - left.stat().st_mtime > _SWEPT_AFTER_SECONDS:
                fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused while it is in use
                shutil.rmtree(left.parent, ignore_errors=True)
    with TemporaryDirectory(prefix=_PREFIX) as name, (Path(name) / _MARK_NAME).open("wb") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        folder = Path(name) / "cell"
        folder.mkdir()
        yield folder


def _name_of_this_node() -> str:
    import ray

    return f"{socket.gethostname()} ({ray.get_runtime_context().get_node_id()[:8]})"


_LOG: Final = logging.getLogger("fedmuster")
_MOST_DEATHS: Final = 3
"""Of a cell's workers in a row, none of which came a round further."""


class Journey:
    """A cell that a worker plays. Until it is closed, no other process can run the cell.

    Args:
        ray: the library, connected.
        cell: its folder.
        bits: see :func:`play`.
        every_seconds: see :func:`play`.
    """

    def __init__(
        self, ray: ModuleType, cell: Path, *, bits: Mapping[str, str] | None, every_seconds: float
    ) -> None:
        self.cell = cell
        self.standing: Standing = standing(cell)
        self.ended_on: str | None = None
        """The node where the cell was finished, when it is."""
        self._ray = ray
        self._bits = bits
        self._every_seconds = every_seconds
        self._deaths = 0
        self._journal = Journal(cell)
        try:
            self.stream = self._send()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others run the cell."""
        self._journal.close()

    def receive(self) -> None:
        """Write the worker's news into the folder; a worker that died is replaced."""
        errors = self._ray.exceptions
        try:
            news: News = self._ray.get(next(self.stream))
        except (errors.RayTaskError, errors.TaskCancelledError) as error:
            raise FedmusterError(
                f"{self.cell}: a worker could not play it. Is fedmuster installed on that node, "
                f"in the version of this one? Ray says: {error}"
            ) from error
        except (errors.RayError, StopIteration) as error:
            self._note_death(error)
            self.stream = self._send()
            return
        if "error" in news:
            raise FedmusterError(f"{self.cell}, on node {news['node']}: {news['error']}")
        if "image" in news:
            put(self.cell, news["image"])
            before, self.standing = self.standing, standing(self.cell)
            if self.standing != before:
                self._deaths = 0
        if "done" in news:
            self.ended_on = news["node"]

    def _send(self) -> Any:
        remote = self._ray.remote(play).options(
            name=f"fedmuster {self.cell}",
            num_cpus=1,
            num_returns="streaming",
            max_retries=0,  # Ray would begin again with this image, we with the newest
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": _environment()},
        )
        spec = (self.cell / SPEC_NAME).read_bytes()
        return remote.remote(spec, image_of(self.cell), self._bits, self._every_seconds)

    def _note_death(self, error: Exception) -> None:
        self._deaths += 1
        if self._deaths >= _MOST_DEATHS:
            raise StateError(
                f"{self.cell}: {self._deaths} workers died (killed, out of memory, or their nodes "
                f"are gone) without getting a round further, the last one so: {error}\nNothing is "
                "lost, continue with `fedmuster resume` on the same folder"
            ) from error
        _LOG.warning(
            "%s: its worker died (%s); another one continues after round %d",
            self.cell,
            str(error).partition("\n")[0],
            self.standing.rounds,
        )


def _environment() -> dict[str, str]:
    """What must be set before a worker loads numpy, and where the data are."""
    variables = dict(ONE_THREAD)
    if folder := os.environ.get(DATA_FOLDER_VARIABLE):
        variables[DATA_FOLDER_VARIABLE] = str(Path(folder).expanduser().resolve())
    return variables
