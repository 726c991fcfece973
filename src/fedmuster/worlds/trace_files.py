"""Read files of measurements: columns from CSV or Parquet, with errors that name the line."""

import csv
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedmuster.core.arrays import BoolArray, IntArray
from fedmuster.core.config import check_types
from fedmuster.core.errors import ConfigError, DataError, MissingExtraError


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceTable:
    """The columns of a file; other columns are ignored.

    The first of the ``required`` columns is ``client``. Those in ``whole`` hold whole numbers;
    ``also_known_as`` has other names of columns; ``one_row_for`` says what a row describes, for
    messages.
    """

    required: tuple[str, ...]
    one_row_for: str
    optional: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    also_known_as: Mapping[str, str] = field(default_factory=dict)

    def positions(self, path: Path, header: Sequence[str]) -> dict[str, int]:
        """Where each column stands in the header."""
        header = [self.also_known_as.get(name, name) for name in header]
        for name in (*self.required, *self.optional):
            if header.count(name) > 1 or (name in self.required and name not in header):
                fault = "twice" if name in header else "not"
                raise DataError(
                    f"{path}: column {name!r} is {fault} in the header ({', '.join(header)}); "
                    f"expected the columns {', '.join(self.required)}"
                )
        known = (*self.required, *self.optional)
        return {name: header.index(name) for name in known if name in header}


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """The columns of a file and, for messages, where each row stands in it."""

    source: str
    unit: str
    places: Sequence[int]
    values: Mapping[str, Sequence[Any]]

    def refuse(self, row: int, complaint: str) -> NoReturn:
        """Complain about a row."""
        raise DataError(
            f"{self.source}, {self.unit} {self.places[row]}: {complaint}; "
            f"correct or remove the {self.unit}"
        )

    def refuse_where(self, wrong: BoolArray, name: str, expected: str) -> None:
        """Complain about the first row in which the column ``name`` is wrong, if any."""
        if wrong.any():
            row = int(np.argmax(wrong))
            self.refuse(row, f"{name} = {self.values[name][row]!r}, expected {expected}")

    def clients(self) -> IntArray:
        """0 … K-1 for the distinct ids, in the order of their numbers or else of their text."""
        names = self.values["client"]
        for row, name in enumerate(names):
            if not name:
                self.refuse(row, "client is empty")
        distinct = sorted(set(names))
        with suppress(ValueError):  # not all are numbers
            distinct.sort(key=int)  # stable: "01" and "1" stay in the order of their text
        index = {name: number for number, name in enumerate(distinct)}
        return np.fromiter((index[name] for name in names), dtype=np.int64, count=len(names))

    def numbers(self, name: str, *, low: float, high: float, whole: bool = False) -> NDArray[Any]:
        """A column of numbers in [low, high], and so without NaN; int64 where ``whole``."""
        values, kind = self.values[name], int if whole else float
        expected = f"a {'whole ' if whole else ''}number in [{low:g}, {high:g}]"
        numbers, row = np.empty(len(values), dtype=np.int64 if whole else np.float64), 0
        try:
            for row, value in enumerate(values):
                numbers[row] = kind(value)
        except (TypeError, ValueError, OverflowError):
            self.refuse(row, f"{name} = {values[row]!r}, expected {expected}")
        self.refuse_where(~((numbers >= low) & (numbers <= high)), name, expected)
        return numbers


def read_columns(path: Path, table: TraceTable) -> Columns:
    """The columns of a file whose name ends like one of :data:`READERS`."""
    columns = READERS[path.suffix.lower()](path, table)
    if not columns.places:
        raise DataError(f"{path} has no rows; expected one for each {table.one_row_for}")
    return columns


def _read_csv(path: Path, table: TraceTable) -> Columns:
    places: list[int] = []
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, skipinitialspace=True)
        try:
            positions = table.positions(path, [name.strip() for name in next(reader, [])])
            values: dict[str, list[str]] = {name: [] for name in positions}
            for row in reader:
                if not row:
                    continue  # a blank line
                for name, position in positions.items():
                    values[name].append(row[position].strip())
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
    return Columns(source=str(path), unit="line", places=places, values=values)


def _read_parquet(path: Path, table: TraceTable) -> Columns:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", extra="parquet", purpose=f"reading {path}") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            positions = table.positions(path, names)
            for name, position in positions.items():
                _require_plain(path, name, file.schema_arrow.types[position])
            content = file.read(columns=[names[position] for position in positions.values()])
        content = content.rename_columns(list(positions))
        for name in table.whole:
            if not pyarrow.types.is_integer(content.schema.field(name).type):
                raise DataError(f"{path}: {name} is not a column of integers; convert it")
        values = {name: content.column(name).to_pylist() for name in positions}
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not readable as Parquet ({error}); write it anew") from None
    values["client"] = ["" if value is None else str(value) for value in values["client"]]
    places = range(1, content.num_rows + 1)
    return Columns(source=str(path), unit="row", places=places, values=values)


def _require_plain(path: Path, name: str, kind: Any) -> None:
    """Refuse a column of dates, bytes, lists and the like; in words or numbers there is no doubt
    what it means."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    tests = (
        *(types.is_integer, types.is_floating, types.is_decimal, types.is_boolean),
        *(types.is_string, types.is_large_string, types.is_string_view, types.is_null),
    )
    if not any(test(kind) for test in tests):
        raise DataError(
            f"{path}: the column {name!r} is of type {kind}, expected numbers or text; convert it"
        )


READERS: Final[Mapping[str, Callable[[Path, TraceTable], Columns]]] = {
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
"""By the end of the file's name."""

T = TypeVar("T")

FEDSCALE_ENDINGS: Final = ("", ".pkl", ".pickle")
"""FedScale's own names have none: ``client_device_capacity``, ``client_behave_trace``."""


class TraceError(DataError):
    """A file of measurements holds values that cannot be right.

    ``key`` is where a world's table names the file, for example ``("devices", "path")``.
    """

    def __init__(self, message: str, *, key: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.key = key


def trace_reader(
    what: str, *, key: tuple[str, ...], fedscale: bool = False
) -> Callable[[Callable[[Path], T]], Callable[[str], T]]:
    """Decorate a reader: a file is read again only if it has changed, and errors name the file.

    What the reader returns is shared: callers must not change it.

    Args:
        what: the name of the file in messages.
        key: where a world's table has the file's path.
        fedscale: whether the file may be one of FedScale's own, and not only a table.
    """
    endings = (*READERS, *FEDSCALE_ENDINGS) if fedscale else tuple(READERS)
    tables = " or ".join(READERS)

    def decorate(read: Callable[[Path], T]) -> Callable[[str], T]:
        @lru_cache(maxsize=4)
        def read_once(path: str, _modified: int, _size: int) -> T:
            return read(Path(path))

        def read_again_if_changed(path: str) -> T:
            ending = Path(path).suffix.lower()
            if ending not in endings:
                own = " (FedScale's own: no ending, .pkl or .pickle)" if fedscale else ""
                raise ConfigError(
                    f"the {what} {path} ends in {ending!r}, expected {tables}{own}; convert or "
                    "rename it",
                    key=key,
                )
            try:
                status = Path(path).stat()
                return read_once(path, status.st_mtime_ns, status.st_size)
            except OSError as error:
                own = ", or of FedScale's own" if fedscale else ""
                raise ConfigError(
                    f"cannot read the {what} {path}: {error.strerror}; write the path of a "
                    f"{tables} file{own}, relative to the working directory or absolute",
                    key=key,
                ) from error
            except DataError as error:
                raise TraceError(str(error), key=key) from error

        read_again_if_changed.__doc__ = read.__doc__
        return read_again_if_changed

    return decorate


def accept_path(config: Any) -> None:
    """Used by ``__post_init__``: store a ``path`` that is an ``os.PathLike`` as a string."""
    if isinstance(config.path, os.PathLike):
        object.__setattr__(config, "path", os.fspath(config.path))


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceFile:
    """A config that names a file of measurements; ``path`` is relative or absolute."""

    path: str

    def __post_init__(self) -> None:
        accept_path(self)
        check_types(self)


def rows_for(num_clients: int, num_rows: int, rng: Generator) -> IntArray:
    """[K], the file's client that each client of the world is.

    Client k is the k-th of the file if both have as many clients. Otherwise clients are drawn at
    random, and none of the file occurs twice before all others occur once.
    """
    if num_rows == num_clients:
        return np.arange(num_clients)
    times, rest = divmod(num_clients, num_rows)
    rows = np.concatenate(
        [np.tile(np.arange(num_rows), times), rng.choice(num_rows, rest, replace=False)]
    )
    return rng.permutation(rows)
