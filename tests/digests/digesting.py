"""Digests of what a run leaves behind, without clock times, random names, versions and wording."""

import csv
import hashlib
import io
import json
import re
import sqlite3
import struct
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

Digests = dict[str, str]
"""By table."""

COHORTS = "cohorts"
"""The table of integers: who was chosen in each round, how many were there, how many answered."""
_COHORTS = (
    "SELECT round, num_available, num_completed, num_refused, num_aggregated, num_exhausted, "
    "clients, rejected FROM rounds ORDER BY round"
)
_NOT_DIGESTED = ("identity", "starts", "afterwards", "origin", "chain", "seals", "unlinked")
"""Tables of a journal: a random name, versions, what is kept between two commits, and what shows
that the other tables are whole."""
_STORAGE = ("format", "policy")
"""Of the metadata beside arrays: the file's format, and settings, to which some may be added."""
_NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e[-+]?\d+)?|∞|-∞")


def of_run(folder: Path) -> Digests:
    """Of the journal and the ledger in a run's folder."""
    with closing(sqlite3.connect(folder / "journal.sqlite")) as database:
        found = _of_journal(database)
    if (folder / "ledger.sqlite").exists():
        with closing(sqlite3.connect(folder / "ledger.sqlite")) as database:
            found["ledger"] = digest(_ledger(database))
    return found


def of_report(folder: Path) -> Digests:
    """Of the numbers in a report: its CSV files, and the data in its page."""
    found = {}
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            found[path.name] = digest([list(map(_value, row)) for row in csv.reader(file)])
    page = (folder / "report.html").read_text(encoding="utf-8")
    found["report.html"] = digest(
        [_numbers_in(json.loads(text)) for text in _SCRIPT_DATA.findall(page)]
    )
    return found


_SCRIPT_DATA = re.compile(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', re.DOTALL)


def of_explanation(text: str) -> str:
    """Of the numbers in the tables of ``fedmuster explain``, without those in sentences."""
    rows = [line.split("│") for line in text.splitlines() if line.startswith("│")]
    return digest(sorted([number for cell in row for number in _numbers_of(cell)] for row in rows))


def _numbers_of(cell: str) -> list[str]:
    words = _NUMBER.sub("", cell).split()
    return _NUMBER.findall(cell) if len(words) <= 2 else []


def digest(value: Any) -> str:
    """Of numbers, texts, bytes, arrays, sequences and mappings of them, bit for bit."""
    fingerprint = hashlib.sha256()
    _feed(fingerprint, value)
    return fingerprint.hexdigest()[:10]


def _of_journal(database: sqlite3.Connection) -> Digests:
    tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    contents: dict[str, Any] = {
        name: _rows(database, f"SELECT * FROM {name} ORDER BY 1, 2")
        for (name,) in tables
        if name not in _NOT_DIGESTED
    }
    contents[COHORTS] = _rows(database, _COHORTS)
    ended = bool(contents.pop("ending"))  # why is prose
    (checkpoint,) = contents.pop("checkpoint")
    parts = {name: checkpoint.pop(name) for name in ("selector", "judge", "trainer", "budget")}
    contents["rounds"] = [contents["rounds"], ended, checkpoint]
    parts |= without_liveness(parts.pop("selector"))
    return {name: digest(content) for name, content in (contents | parts).items() if content}


def without_liveness(selector: dict[str, Any]) -> dict[str, Any]:
    """A selector's image in two parts: what the policy knows, and who was silent or new."""
    apart = {name: value for name, value in selector.items() if name.startswith("liveness")}
    rest = {name: value for name, value in selector.items() if name not in apart}
    return {"selector": rest, "liveness": apart}


def _ledger(database: sqlite3.Connection) -> list[Any]:
    """Without times, and digests and names, which are random."""
    return [
        _rows(database, "SELECT currency, kind FROM ledger"),
        _rows(
            database,
            "SELECT sequence, kind, run, round, account, clients, units FROM entries "
            "ORDER BY sequence",
        ),
        _rows(database, "SELECT * FROM accounts ORDER BY account"),
    ]


def _rows(database: sqlite3.Connection, query: str) -> list[dict[str, Any]]:
    cursor = database.execute(query)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, map(opened, row), strict=True)) for row in cursor]


def opened(cell: Any) -> Any:
    """The arrays of an ``.npz`` image, or the values of a JSON text; anything else as it is."""
    if isinstance(cell, bytes) and zipfile.is_zipfile(io.BytesIO(cell)):
        with np.load(io.BytesIO(cell), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        meta = json.loads(str(arrays.pop("__meta__", "{}")))
        return {**arrays, **{name: meta[name] for name in meta if name not in _STORAGE}}
    if isinstance(cell, bytes | str) and cell[:1] in (b"{", "{"):
        table = json.loads(cell)  # of a budget: where the ledger stood, whose names are random
        return {name: table[name] for name in table if name not in ("ledger", "id", "digest")}
    return cell


def _value(cell: str) -> float | str:
    """A number or a name; what has several words is wording."""
    try:
        return float(cell)
    except ValueError:
        return "…" if " " in cell else cell


def _numbers_in(data: Any) -> Any:
    """Numbers, by key and in their order; texts are wording."""
    if isinstance(data, Mapping):
        return {key: _numbers_in(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_numbers_in(value) for value in data]
    return "…" if isinstance(data, str) else data


def _feed(fingerprint: Any, value: Any) -> None:
    match value:
        case np.ndarray():
            fingerprint.update(f"array {value.dtype.str} {value.shape}".encode())
            fingerprint.update(np.ascontiguousarray(value).tobytes())
        case Mapping():
            fingerprint.update(f"table {len(value)}".encode())
            for key in sorted(value):
                _feed(fingerprint, key)
                _feed(fingerprint, value[key])
        case float():
            fingerprint.update(b"float" + struct.pack("<d", value))
        case bytes():
            fingerprint.update(f"bytes {len(value)} ".encode() + value)
        case str() | int() | None:
            fingerprint.update(f"{type(value).__name__} {value!r} ".encode())
        case Iterable():
            values = list(value)
            fingerprint.update(f"list {len(values)}".encode())
            for item in values:
                _feed(fingerprint, item)
        case _:
            raise TypeError(f"cannot digest {type(value).__name__}")
