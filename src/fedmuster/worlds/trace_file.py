"""Read measured latencies from CSV or Parquet, and refuse what cannot be right."""

import csv
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.errors import ConfigError, DataError, MissingExtraError
from fedmuster.core.records import (
    LONGEST_SECONDS,
    SHORTEST_SECONDS,
    BoolArray,
    FloatArray,
    IntArray,
)

COLUMNS = ("client", "round", "latency_seconds")
_ALSO_KNOWN_AS = {"latency": "latency_seconds"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """Measurements, ordered by client and then by round; no (client, round) occurs twice.

    Args:
        client: int[n], 0 … K-1: the file's ids in sorted order (as numbers if all of them are).
        round: int[n], >= 1.
        latency_seconds: float[n], > 0.
    """

    client: IntArray
    round: IntArray
    latency_seconds: FloatArray


@dataclass(frozen=True, kw_only=True, slots=True)
class _Columns:
    """The columns of a file and, for messages, where each row stands in it."""

    source: str
    unit: str
    places: Sequence[int]
    client: Sequence[str]
    round: Sequence[Any]
    latency_seconds: Sequence[Any]

    def refuse(self, row: int, complaint: str) -> NoReturn:
        raise DataError(
            f"{self.source}, {self.unit} {self.places[row]}: {complaint}; "
            f"correct or remove the {self.unit}"
        )


def read_trace(path: str) -> Trace:
    """The trace in a ``.csv`` or ``.parquet`` file with a column for each of :data:`COLUMNS`.

    A file that has not changed since is not read again.
    """
    try:
        status = Path(path).stat()
        return _read(path, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise ConfigError(
            f"cannot read the trace {path}: {error.strerror}; write the path of a CSV or Parquet "
            "file, relative to the working directory or absolute",
            key=("path",),
        ) from error


@lru_cache(maxsize=4)
def _read(path: str, _modified: int, _size: int) -> Trace:
    readers = {".csv": _read_csv, ".parquet": _read_parquet}
    suffix = Path(path).suffix.lower()
    if suffix not in readers:
        raise ConfigError(
            f"trace {path} ends in {suffix!r}, expected .csv or .parquet", key=("path",)
        )
    columns = readers[suffix](Path(path))
    if not columns.places:
        raise DataError(f"{path} has no rows; expected one for each client and round")
    return _checked(columns)


def _checked(columns: _Columns) -> Trace:
    for row, name in enumerate(columns.client):
        if not name:
            columns.refuse(row, "client is empty")
    client = _indices(columns.client)
    rounds = _numbers(columns, "round", int, np.int64, "a whole number >= 1")
    _refuse_where(columns, rounds < 1, "round", "a whole number >= 1")
    latency = _numbers(columns, "latency_seconds", float, np.float64, "a number > 0")
    wrong = ~((latency >= SHORTEST_SECONDS) & (latency <= LONGEST_SECONDS))
    expected = f"a number in [{SHORTEST_SECONDS:g}, {LONGEST_SECONDS:g}]"
    _refuse_where(columns, wrong, "latency_seconds", expected)

    order = np.lexsort((rounds, client))
    client, rounds, latency = client[order], rounds[order], latency[order]
    again = np.flatnonzero((client[1:] == client[:-1]) & (rounds[1:] == rounds[:-1]))
    if len(again):
        first, second = order[again[0]], order[again[0] + 1]
        columns.refuse(
            int(second),
            f"client {columns.client[first]} and round {columns.round[first]} were there before, "
            f"in {columns.unit} {columns.places[first]}",
        )
    for array in (client, rounds, latency):
        array.setflags(write=False)  # shared by all who read the same file
    return Trace(client=client, round=rounds, latency_seconds=latency)


def _indices(names: Sequence[str]) -> IntArray:
    """0 … K-1 for the distinct names, in the order of their numbers or else of their text."""
    distinct = sorted(set(names))
    with suppress(ValueError):  # not all are numbers
        distinct = sorted(distinct, key=int)  # stable: "01" and "1" stay in the order of their text
    index = {name: number for number, name in enumerate(distinct)}
    return np.fromiter((index[name] for name in names), dtype=np.int64, count=len(names))


def _numbers(
    columns: _Columns,
    name: str,
    kind: Callable[[Any], Any],
    dtype: type[np.int64] | type[np.float64],
    expected: str,
) -> NDArray[Any]:
    values = getattr(columns, name)
    numbers, row = np.empty(len(values), dtype=dtype), 0
    try:
        for row, value in enumerate(values):
            numbers[row] = kind(value)
    except (TypeError, ValueError, OverflowError):
        columns.refuse(row, f"{name} = {values[row]!r}, expected {expected}")
    return numbers


def _refuse_where(columns: _Columns, wrong: BoolArray, name: str, expected: str) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        columns.refuse(row, f"{name} = {getattr(columns, name)[row]!r}, expected {expected}")


def _read_csv(path: Path) -> _Columns:
    places: list[int] = []
    values: tuple[list[str], list[str], list[str]] = ([], [], [])
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, skipinitialspace=True)
        try:
            positions = _positions(path, [name.strip() for name in next(reader, [])])
            for row in reader:
                if not row:
                    continue  # a blank line
                for column, position in zip(values, positions, strict=True):
                    column.append(row[position].strip())
                places.append(reader.line_num)
        except IndexError:
            raise DataError(
                f"{path}, line {reader.line_num}: fewer columns than the header has; complete or "
                "remove the line"
            ) from None
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(
                f"{path}, after line {reader.line_num}: not readable as CSV in UTF-8 ({error}); "
                "save it as such"
            ) from None
    client, rounds, latency = values
    return _Columns(
        source=str(path),
        unit="line",
        places=places,
        client=client,
        round=rounds,
        latency_seconds=latency,
    )


def _read_parquet(path: Path) -> _Columns:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", extra="parquet", purpose=f"reading {path}") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            table = file.read(columns=[names[place] for place in _positions(path, names)])
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} is not readable as Parquet ({error}); write it anew") from None
    table = table.rename_columns(list(COLUMNS))
    if not pyarrow.types.is_integer(table.schema.field("round").type):
        raise DataError(f"{path}: round is not a column of integers; convert it")
    client, rounds, latency = (table.column(name).to_pylist() for name in COLUMNS)
    return _Columns(
        source=str(path),
        unit="row",
        places=range(1, table.num_rows + 1),
        client=["" if value is None else str(value) for value in client],
        round=rounds,
        latency_seconds=latency,
    )


def _positions(path: Path, header: list[str]) -> list[int]:
    """Where each of :data:`COLUMNS` stands in the header."""
    header = [_ALSO_KNOWN_AS.get(name, name) for name in header]
    for name in COLUMNS:
        if header.count(name) != 1:
            fault = "twice" if name in header else "not"
            raise DataError(
                f"{path}: column {name!r} is {fault} in the header ({', '.join(header)}); expected "
                f"the columns {', '.join(COLUMNS)}"
            )
    return [header.index(name) for name in COLUMNS]
