"""Consistent copies of a cell's files as bytes, also while a process writes to them."""

import hashlib
import platform
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np

import fedmuster
from fedmuster.core.files import write_file
from fedmuster.experiments.database import plain_errors
from fedmuster.experiments.journal import FILE_NAME
from fedmuster.experiments.run import versions
from fedmuster.experiments.spec import LEDGER_NAME
from fedmuster.privacy.ledger.chain import ChainHead, read_info
from fedmuster.privacy.ledger.guards import Note, beside

Image = dict[str, bytes]
"""The contents of files by name."""

_BUSY_SECONDS: Final = 30.0
_HEAD_NAME: Final = beside(Path(LEDGER_NAME)).path.name


def image_of(folder: Path) -> Image:
    """The journal of the run in ``folder``, the ledger's head and the ledger, if any.

    Read in this order: the ledger only grows, and must hold all that the other two know of it.
    """
    image = {}
    if (journal := folder / FILE_NAME).exists():
        image[FILE_NAME] = _snapshot(journal)
    if (head := folder / _HEAD_NAME).exists():
        image[_HEAD_NAME] = head.read_bytes()
    if (ledger := folder / LEDGER_NAME).exists():
        image[LEDGER_NAME] = _snapshot(ledger)
    return image


def put(folder: Path, image: Image) -> None:
    """Bring the run in ``folder`` to the state of ``image``, which continues it.

    Written in the opposite order, each file whole or not at all, so that the files fit together
    after a crash on the way.
    """
    if (ledger_image := image.get(LEDGER_NAME)) is not None:
        ledger = folder / LEDGER_NAME
        if not ledger.exists():
            # A ledger without its head could not be used, nor could one be made where a head tells
            # of entries; the head of a ledger without entries is nobody's loss.
            write_file(folder / _HEAD_NAME, _first_head(ledger.resolve(), ledger_image))
        _replace(ledger, ledger_image)
    if (head_image := image.get(_HEAD_NAME)) is not None:
        write_file(folder / _HEAD_NAME, head_image)
    if (journal_image := image.get(FILE_NAME)) is not None:
        _replace(folder / FILE_NAME, journal_image)


def _snapshot(path: Path) -> bytes:
    """One moment of an SQLite file, with what is in its write-ahead log."""
    with plain_errors(path), closing(_connect(path)) as database:
        database.execute("BEGIN")
        database.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the moment is now
        return database.serialize()


def _replace(path: Path, image: bytes) -> None:
    """Not by renaming: readers and a log that a killed process has left belong to the file."""
    if not path.exists():
        write_file(path, image)
        return
    with plain_errors(path), closing(_in_memory(image)) as new, closing(_connect(path)) as database:
        new.backup(database)  # one transaction
        database.execute("PRAGMA wal_checkpoint")  # else the log grows by an image each time


def _first_head(ledger: Path, image: bytes) -> bytes:
    with plain_errors(ledger), closing(_in_memory(image)) as database:
        info = read_info(ledger, database)
    return Note(info.id, ChainHead(0, info.digest().hex()), ledger).to_bytes()


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)


def _in_memory(image: bytes) -> sqlite3.Connection:
    database = sqlite3.connect(":memory:")
    # https://sqlite.org/fileformat.html, offsets 18 and 19: no write-ahead log, as memory has none.
    database.deserialize(image[:18] + b"\x01\x01" + image[20:])
    return database


_NOT_IN_RUNS: Final = ("cli", "flower", "report", "testing")
"""Subpackages that no run imports."""


def bits_here(*, networks: bool) -> dict[str, str]:
    """Everything on this machine that decides the last bits of a result.

    Args:
        networks: whether PyTorch is part of it.
    """
    config: Any = np.show_config(mode="dicts")
    instructions = config.get("SIMD Extensions", {})
    blas = config.get("Build Dependencies", {}).get("blas", {})
    found = {
        **versions(),
        "processor": " ".join((*instructions.get("baseline", ()), *instructions.get("found", ()))),
        "BLAS": f"{blas.get('name')} {blas.get('version')}",
        "C library": " ".join(platform.libc_ver()),
        "sources": _digest_of_sources(),
    }
    found.pop("torch", None)  # named only where it is loaded already
    if networks:
        found["torch"] = _torch_version()
    return found


def differences(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """What differs, for people; empty if nothing does.

    Example:
        >>> differences({"numpy": "2.3.0", "python": "3.11.2"}, {"numpy": "2.4.1"})
        'numpy 2.3.0 (here: 2.4.1)'
    """
    return ", ".join(
        f"{name} {there.get(name, 'unknown')} (here: {value})"
        for name, value in here.items()
        if there.get(name) != value
    )


@cache
def _digest_of_sources() -> str:
    """Of fedmuster itself, for two checkouts may bear the same version."""
    folder = Path(fedmuster.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        place = path.relative_to(folder)
        if place.parts[0] not in _NOT_IN_RUNS:
            digest.update(f"{place.as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def _torch_version() -> str:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "not installed"
