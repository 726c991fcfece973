"""What a person in charge may accept. Each leaves an entry in the chain, for the auditor."""

import getpass
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedmuster.core.errors import LedgerError
from fedmuster.privacy.ledger.anchor import Note
from fedmuster.privacy.ledger.guards import LARGEST_STEP_BACK_US, utc
from fedmuster.privacy.ledger.rows import last_entry
from fedmuster.privacy.ledger.verification import verify
from fedmuster.privacy.ledger.writer import Clock, Writer


def adopt(path: Path, *, clock: Clock = time.time_ns) -> str:
    """Accept a ledger whose head is not known here, as the newest copy; what was noted.

    Only what is missing is made: a head that is kept here and contradicts the ledger stays a
    reason to refuse it.
    """
    with _alone(path, "adopt", clock) as writer:
        missing = [anchor for anchor in writer.anchors if anchor.read() is None]
        known = [anchor for anchor in writer.anchors if anchor not in missing]
        if not missing:
            raise LedgerError(f"{writer.path}: nothing to adopt, its head is known here")
        if faults := verify(writer.path).faults:
            raise LedgerError(f"{writer.path} cannot be adopted: {faults[0]}")
        text = f"{_who()}: no {' nor '.join(str(anchor.path) for anchor in missing)}"
        with writer.transaction(anchors=known) as links:
            links.add("adopt", text=text)
        for anchor in missing:
            anchor.write(Note(writer.info.id, links.head, writer.path))
        return text


def accept_clock(path: Path, *, clock: Clock = time.time_ns) -> str:
    """Accept that the newest entries bear a time later than now; what was noted."""
    with _alone(path, "accept-clock", clock) as writer:
        last_us = last_entry(writer.database, writer.info).time_us
        now_us = clock() // 1000
        if now_us >= last_us - LARGEST_STEP_BACK_US:
            raise LedgerError(
                f"{writer.path}: nothing to accept, the clock ({utc(now_us)}) is not behind the "
                f"newest entry ({utc(last_us)})"
            )
        text = f"{_who()}: back from {utc(last_us)} to {utc(now_us)}"
        with writer.transaction(clock_may_go_back=True) as links:
            links.add("clock", text=text)
        return text


@contextmanager
def _alone(path: Path, purpose: str, clock: Clock) -> Iterator[Writer]:
    if not path.exists():
        raise LedgerError(f"{path} is not there")
    writer = Writer(path.resolve(), exclusive_for=purpose, clock=clock)
    try:
        yield writer
    finally:
        writer.close()


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        user = str(os.getuid())
    return f"{user} on {socket.gethostname()}"
