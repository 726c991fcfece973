"""What a Ray worker does: play one cell in a folder of its own and tell of it now and then."""

import fcntl
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
from typing import Final, NotRequired, TypedDict

from fedmuster.core.errors import FedmusterError
from fedmuster.core.files import write_file
from fedmuster.experiments.ray_cluster.images import Image, image_of, put
from fedmuster.experiments.ray_cluster.same_bits import bits_here, differences
from fedmuster.experiments.run import SPEC_NAME, execute

_POLL_SECONDS: Final = 0.2
"""So soon a worker notices that it was cancelled: Ray does not wake it up."""
_PREFIX: Final = "fedmuster-cell-"
_MARK_NAME: Final = "in-use"
_SWEPT_AFTER_SECONDS: Final = 3600.0


class News(TypedDict):
    """What a worker tells: plain data, which any version can read.

    ``node`` is where it is, ``image`` how far the cell is, ``error`` why it cannot go on, and
    ``done`` is there when the cell is over.
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
