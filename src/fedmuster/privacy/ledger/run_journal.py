"""Whom a run says it has asked: read from its journal without the code that wrote it."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import numpy as np

from fedmuster.core.errors import StateError
from fedmuster.core.records import IntArray
from fedmuster.core.state import from_bytes
from fedmuster.privacy.ledger.chain import Head

_FILE_NAME: Final = "journal.sqlite"


class RunJournal:
    """What an auditor needs of a run.

    ``run`` is its id; ``cohorts`` whom it asked, by round; ``head`` the ledger's at its newest
    checkpoint; ``identities`` what its clients are called, where it says so, as federations do and
    simulations do not.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with closing(
                sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
            ) as journal:
                identity = journal.execute("SELECT run FROM identity").fetchone()
                rounds = journal.execute("SELECT round, clients FROM rounds ORDER BY round")
                self.cohorts: dict[int, IntArray] = {
                    number: np.frombuffer(image, dtype="<i4").astype(np.int64)
                    for number, image in rounds
                }
                checkpoint = journal.execute("SELECT budget FROM checkpoint").fetchone()
                self.head = None
                if checkpoint is not None and checkpoint[0] is not None:
                    noted = json.loads(checkpoint[0])
                    self.head = Head(noted["sequence"], noted["digest"])
                self.identities = _identities(journal, path)
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            raise StateError(f"{path} cannot be read as a run's journal: {error}") from error
        if identity is None:
            raise StateError(f"{path} does not say which run it is of")
        self.run = str(identity[0])


def _identities(journal: sqlite3.Connection, path: Path) -> list[str] | None:
    (has_clients,) = journal.execute(
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'clients'"
    ).fetchone()
    row = journal.execute("SELECT npz FROM clients").fetchone() if has_clients else None
    if row is None:
        return None
    arrays, _ = from_bytes(row[0], source=str(path))
    names = arrays.get("identity")
    if names is None:
        return None
    if names.ndim != 1 or names.dtype.kind != "U":
        raise StateError(
            f"{path}: identity is {names.dtype}{names.shape}, expected a list of names"
        )
    return [str(name) for name in names]


def journals_in(folder: Path) -> Iterator[Path]:
    """The journals of a run, or of all runs below a folder."""
    found = sorted(folder.rglob(_FILE_NAME))
    if not found:
        raise StateError(f"{folder} is no run: it holds no {_FILE_NAME}")
    yield from found
