"""Runs in a process of their own to which something happens."""

import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.faults.watching import RELEASES, log_releases, wrap
from tests.forks import FORKS

from fedmuster.core.errors import FedmusterError
from fedmuster.core.selector import Selector
from fedmuster.experiments import journal, run
from fedmuster.experiments.spec import LEDGER_NAME
from fedmuster.privacy.budget import Budget
from fedmuster.privacy.ledger.guards import STATE_FOLDER_VARIABLE
from fedmuster.privacy.ledger.writer import Writer
from fedmuster.training.aggregation import Aggregation

Fault = Callable[[Path], None]
"""Called in the child before the run starts, with the run's folder."""

_DEADLINE_SECONDS: Final = 120.0
_DAY_NS: Final = 86_400 * 10**9


class Outcome(NamedTuple):
    """How a run ended: 0 if it is over, 2 if it complained as the command line does, -9 if killed.

    What has left its clients is in ``released``, as it is on disk.
    """

    code: int | None
    said: str
    released: bytes


class Child:
    """A run that goes on in another process."""

    def __init__(self, folder: Path, fault: Fault | None = None) -> None:
        self._folder = folder
        self._said = folder / "said.txt"
        self._said.unlink(missing_ok=True)
        self._process = FORKS.Process(target=_live, args=(folder, fault, self._said))
        self._process.start()

    def wait(self) -> Outcome:
        self._process.join(_DEADLINE_SECONDS)
        assert self._process.exitcode is not None, "the child hangs"
        said = self._said.read_text() if self._said.exists() else ""
        return Outcome(self._process.exitcode, said, released(self._folder))


def execute(folder: Path, commit_seconds: float) -> None:
    """Play a run with a checkpoint so often that there are several in a short one."""
    vars(run)["_COMMIT_SECONDS"] = commit_seconds
    run.execute(folder)


def released(folder: Path) -> bytes:
    log = folder / RELEASES
    return log.read_bytes() if log.exists() else b""


def _live(folder: Path, fault: Fault | None, said: Path) -> None:
    os.environ[STATE_FOLDER_VARIABLE] = str(folder.parent / "state")
    vars(run)["_COMMIT_SECONDS"] = 0.0  # a checkpoint as often as may be
    log_releases(folder / RELEASES)
    last_words = os.open(said, os.O_WRONLY | os.O_CREAT)  # the fault may forbid to do so later
    if fault is not None:
        fault(folder)
    try:
        run.execute(folder)
    except (FedmusterError, OSError) as error:  # as fedmuster.cli.main tells them
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        os.write(last_words, str(error).encode())
        os._exit(2)


def die(folder: Path, *, nth: int) -> None:
    """By ``kill -9`` in the n-th aggregation."""
    del folder
    _at_nth(Aggregation, "apply", nth, partial(os.kill, os.getpid(), signal.SIGKILL))


def die_when_asking(folder: Path, *, nth: int) -> None:
    """By ``kill -9`` when clients are chosen for the n-th time."""
    del folder
    _at_nth(Selector, "select", nth, partial(os.kill, os.getpid(), signal.SIGKILL))


def die_after_commit(folder: Path, *, nth: int) -> None:
    """By ``kill -9`` right after the n-th checkpoint."""
    del folder
    calls = count(1)

    def wrapper(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        original(*given, **named)
        if next(calls) == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    wrap(journal.Journal, "append", wrapper)


def hold(folder: Path, *, nth: int) -> None:
    """Stop in the n-th aggregation until there is a file ``go``."""

    def wait() -> None:
        (folder / "held").touch()
        while not (folder / "go").exists():
            time.sleep(0.005)

    _at_nth(Aggregation, "apply", nth, wait)


def fill_disk_of_ledger(folder: Path, *, nth: int) -> None:
    """No file can grow any more from the n-th debit on."""
    _at_nth(Budget, "debit", nth, partial(_let_nothing_grow, folder / f"{LEDGER_NAME}-wal"))


def fill_disk_of_journal(folder: Path, *, nth: int) -> None:
    """No file can grow any more from the n-th checkpoint on."""
    log = folder / f"{journal.FILE_NAME}-wal"
    _at_nth(journal.Journal, "append", nth, partial(_let_nothing_grow, log))


def step_clock_back(folder: Path, *, nth: int) -> None:
    """The ledger's clock goes back by a day when it is looked at for the n-th time."""
    del folder
    looks = count(1)

    def clock() -> int:
        return time.time_ns() - (_DAY_NS if next(looks) >= nth else 0)

    def start(original: Callable[..., Any], *given: Any, **named: Any) -> None:
        original(*given, **{**named, "clock": clock})

    wrap(Writer, "__init__", start)


def move_ledger_away(folder: Path, *, nth: int) -> None:
    """Under a run that is writing to it; its log stays."""
    ledger = folder / LEDGER_NAME
    _at_nth(Budget, "debit", nth, partial(ledger.rename, folder / "away"))


def give_up_privileges(folder: Path) -> None:
    """Permissions bind the superuser only without its capabilities."""
    del folder
    if os.getuid() == 0:
        header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        assert ctypes.CDLL(None).capset(header, none) == 0


def _at_nth(owner: object, name: str, nth: int, happen: Callable[[], object]) -> None:
    calls = count(1)

    def wrapper(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if next(calls) == nth:
            happen()
        return original(*given, **named)

    wrap(owner, name, wrapper)


def _let_nothing_grow(file: Path) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 100, most))
