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
from fedmuster.privacy.ledger.chain import Head

_FILE_NAME: Final = "journal.sqlite"


class RunJournal:
    """The run's id, its cohorts by round, and the ledger's head at its newest checkpoint."""

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
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            raise StateError(f"{path} cannot be read as a run's journal: {error}") from error
        if identity is None:
            raise StateError(f"{path} does not say which run it is of")
        self.run = str(identity[0])


def journals_in(folder: Path) -> Iterator[Path]:
    """The journals of a run, or of all runs below a folder."""
    found = sorted(folder.rglob(_FILE_NAME))
    if not found:
        raise StateError(f"{folder} is no run: it holds no {_FILE_NAME}")
    yield from found
