"""Changes journals by hand: with new digests, or as they were before they had any."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fedmuster.experiments import sealing
from fedmuster.experiments.journal import FILE_NAME


@contextmanager
def changing(folder: Path) -> Iterator[sqlite3.Connection]:
    """A connection to the run's journal; what is changed has digests that fit afterwards."""
    with closing(sqlite3.connect(folder / FILE_NAME)) as database, database:
        yield database
        sealing.seal_everything(database)


def make_old(folder: Path) -> None:
    """As journals were before they had digests and origins: format 7."""
    with closing(sqlite3.connect(folder / FILE_NAME)) as database, database:
        for table in ("chain", "seals", "unlinked", "origin"):
            database.execute(f"DROP TABLE {table}")
        database.execute("PRAGMA user_version = 7")
