"""Every entry of a ledger as a file for other programs: CSV, JSON or Parquet."""

import csv
import json
import sqlite3
from itertools import islice
from pathlib import Path

from fedmuster.core.errors import ConfigError, MissingExtraError
from fedmuster.privacy.ledger.chain import Info
from fedmuster.privacy.ledger.reading import EXPORTED, all_accounts, all_entries, reading

_CHUNK = 50_000
_TEXTS = {"kind", "text", "digest", "run_id", "identity"}


def export(path: Path, out: Path) -> int:
    """Write all entries with their digests to ``out``; how many they are.

    JSON holds the accounts, too, and so all that is needed to verify the chain.
    """
    writers = {".csv": _write_csv, ".json": _write_json, ".parquet": _write_parquet}
    if out.suffix not in writers:
        raise ConfigError(f"--out {out}: expected a name in {', '.join(writers)}")
    with reading(path) as (database, info):
        writers[out.suffix](database, info, out)
        (count,) = database.execute("SELECT count(*) FROM entries").fetchone()
    return int(count)


def _write_csv(database: sqlite3.Connection, _info: Info, out: Path) -> None:
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(EXPORTED)
        writer.writerows(all_entries(database))


def _write_json(database: sqlite3.Connection, info: Info, out: Path) -> None:
    parts = {
        "accounts": (each._asdict() for each in all_accounts(database)),
        "entries": (dict(zip(EXPORTED, row, strict=True)) for row in all_entries(database)),
    }
    with out.open("w", encoding="utf-8") as file:  # piece by piece: there may be millions
        file.write(f'{{"ledger": {json.dumps(info._asdict())}')
        for name, tables in parts.items():
            file.write(f',\n"{name}": [')
            for number, table in enumerate(tables):
                file.write(("," if number else "") + "\n" + json.dumps(table))
            file.write("]")
        file.write("}\n")


def _write_parquet(database: sqlite3.Connection, info: Info, out: Path) -> None:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", extra="parquet", purpose="writing Parquet") from error
    schema = arrow.schema(
        [(name, arrow.string() if name in _TEXTS else arrow.int64()) for name in EXPORTED],
        metadata={"fedmuster.ledger": json.dumps(info._asdict())},
    )
    entries = all_entries(database)
    with parquet.ParquetWriter(out, schema) as writer:
        while rows := list(islice(entries, _CHUNK)):
            columns = [list(column) for column in zip(*rows, strict=True)]
            writer.write_table(arrow.table(columns, schema=schema))
