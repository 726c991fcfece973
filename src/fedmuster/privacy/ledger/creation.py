"""How a ledger comes into being: whole and with its anchors, or not at all."""

import glob
import os
from pathlib import Path
from uuid import uuid4

from fedmuster.core.errors import LedgerError
from fedmuster.privacy.ledger.anchor import Note, anchors_of, beside, once_at, state_folder
from fedmuster.privacy.ledger.chain import Head, Info, LedgerKind
from fedmuster.privacy.ledger.lock import folder_lock
from fedmuster.privacy.ledger.schema import lay_out, plain_errors
from fedmuster.privacy.units import Currency


def create_if_missing(path: Path, *, currency: Currency, kind: LedgerKind, now_us: int) -> None:
    """Make an empty ledger, unless there is one, or there must have been one.

    The anchors come first and the ledger's name last, all of it under a lock. A crash on the way
    leaves anchors of a ledger without entries, which are no loss: the next attempt goes over
    them. So a ledger with entries has had its anchors from the beginning.
    """
    with folder_lock(path.parent):
        if os.path.lexists(path):
            return
        _refuse_if_lost(path, kind)
        with plain_errors(path):
            for left in path.parent.glob(f".{glob.escape(path.name)}.*.new*"):
                left.unlink()  # of a process that died here; the lock says that nobody is at it
        info = Info(str(uuid4()), currency, kind, now_us)
        start = Head(0, info.digest().hex())
        unnamed = path.with_name(f".{path.name}.{info.id}.new")
        with plain_errors(path):
            try:
                lay_out(unnamed, info)
                for anchor in anchors_of(path, info):
                    if anchor.path.parent != path.parent:
                        anchor.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    anchor.write(Note(info.id, start, path))
                unnamed.rename(path)
            except BaseException:
                unnamed.unlink(missing_ok=True)
                raise
            _sync_folder(path.parent)


def _refuse_if_lost(path: Path, kind: LedgerKind) -> None:
    """A new ledger must not stand where the old one got lost: all budgets would be fresh."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size > 0:
        raise LedgerError(f"{path} is gone, but {log.name} is still there: restore the ledger")
    note = beside(path).read()
    if note is not None and note.head.sequence > 0:
        raise LedgerError(
            f"{path} is gone: {beside(path).path.name} says that it had {note.head.sequence:,} "
            "entries; restore it, or choose another place for a new ledger"
        )
    note = once_at(path) if kind == "real" else None
    if note is not None:
        raise LedgerError(
            f"{path} is gone: {state_folder() / note.ledger}.head says that a ledger with "
            f"{note.head.sequence:,} entries was here; restore it (if it was moved, open it once "
            "at its new place), or choose another place for a new ledger"
        )


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)  # the new name
    finally:
        os.close(handle)
