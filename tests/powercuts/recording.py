"""What a process did to its files, and what a disk may hold of it after the power was cut.

A write is safe once its file was synced, a name (of a new, renamed or removed file or folder) once
its folder was. Of everything else a disk may keep all, nothing, the first part, or any part: whole
writes or single sectors of them. That is less than common file systems promise.
"""

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeVar

import numpy as np

Rng = np.random.Generator
T = TypeVar("T")
How = Literal["all", "nothing", "first", "any", "sectors"]

_HEAD: Final = struct.Struct("=cQQIIQ")
_SECTOR: Final = 512
_NAMES: Final[tuple[How, ...]] = ("all", "nothing", "first", "any")
_WRITES: Final[tuple[How, ...]] = ("all", "nothing", "first", "any", "sectors")
SAID: Final = "said"
"""The file into which a process writes what it has promised; no disk loses it."""


class Operation(NamedTuple):
    """One call.

    ``kind`` is C (a file was made), W (written), T (truncated), S (a file was synced), D (a folder
    was), R (renamed), U (removed) or M (a folder was made).
    """

    kind: str
    file: int
    offset: int
    path: Path
    second: Path
    data: bytes


def build(folder: Path) -> Path | None:
    """The recorder as a library; None where there is no compiler for it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not Path("/proc/self/fd").exists():
        return None
    library, source = folder / "recorder.so", Path(__file__).with_name("recorder.c")
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)
    return library


def record(command: Sequence[str], *, library: Path, root: Path, log: Path) -> list[Operation]:
    """Run a command and return what it did to the files below ``root``."""
    names = {"POWERCUTS_LOG": str(log), "POWERCUTS_ROOT": str(root), "LD_PRELOAD": str(library)}
    subprocess.run(command, env={**os.environ, **names}, check=True)
    return list(_parse(log.read_bytes()))


def _parse(image: bytes) -> Iterator[Operation]:
    at = 0
    while at < len(image):
        kind, file, offset, *lengths = _HEAD.unpack_from(image, at)
        at += _HEAD.size
        parts = []
        for length in lengths:
            parts.append(image[at : at + length])
            at += length
        one, two, data = parts
        path, second = Path(os.fsdecode(one)), Path(os.fsdecode(two))
        yield Operation(kind.decode(), file, offset, path, second, data)


def said(operations: Sequence[Operation]) -> list[str]:
    """What the process had promised by then."""
    parts = [each.data for each in operations if each.kind == "W" and each.path.name == SAID]
    return b"".join(parts).decode().splitlines()


@dataclass(slots=True)
class _File:
    safe: bytearray = field(default_factory=bytearray)
    unsafe: list[Operation] = field(default_factory=list)


@dataclass(slots=True)
class _Names:
    """A folder: its entries, and what has been done to them since it was synced."""

    safe: dict[str, "_File | _Names"] = field(default_factory=dict)
    now: dict[str, "_File | _Names"] = field(default_factory=dict)
    unsafe: "list[tuple[str, _File | _Names | None, str]]" = field(default_factory=list)
    """Name, what it stands for from then on (None for nothing), and the name that it had before."""


class Disk:
    """A disk on which the operations happen one after the other."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._top = _Names()
        self._files: dict[int, _File] = {}

    def perform(self, operation: Operation) -> None:
        """Let one operation happen."""
        kind, path = operation.kind, operation.path
        if kind == "C":
            self._files[operation.file] = _File()
            self._name(path, self._files[operation.file])
        elif kind == "M":
            self._name(path, _Names())
        elif kind == "U":
            folder = self._folder(path.parent)
            folder.now.pop(path.name, None)
            folder.unsafe.append((path.name, None, ""))
        elif kind == "R":
            folder = self._folder(path.parent)
            moved = folder.now.pop(path.name)
            assert path.parent == operation.second.parent, "only within a folder"
            folder.now[operation.second.name] = moved
            folder.unsafe.append((operation.second.name, moved, path.name))
        elif kind == "D":
            folder = self._folder(path)
            folder.safe, folder.unsafe = dict(folder.now), []
        elif kind == "S":
            file = self._files[operation.file]
            for each in file.unsafe:
                _apply(file.safe, each)
            file.unsafe = []
        elif operation.file in self._files:
            self._files[operation.file].unsafe.append(operation)

    def cut(self, seed: int) -> None:
        """Make ``root`` what the disk holds after a power cut now; the disk stays as it is."""
        rng = np.random.default_rng(seed)
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        names = _NAMES[int(rng.integers(len(_NAMES)))]
        writes = _WRITES[int(rng.integers(len(_WRITES)))]
        self._put(self._top, self.root, names, writes, rng)

    def _put(self, folder: _Names, path: Path, names: How, writes: How, rng: Rng) -> None:
        entries = dict(folder.safe)
        for name, thing, before in _some(folder.unsafe, names, rng):
            if before and entries.get(before) is thing:
                del entries[before]
            if thing is None:
                entries.pop(name, None)
            else:
                entries[name] = thing
        for name, thing in entries.items():
            if isinstance(thing, _Names):
                (path / name).mkdir()
                self._put(thing, path / name, names, writes, rng)
            elif not name.endswith("-shm"):  # shared memory, which SQLite makes anew
                (path / name).write_bytes(_content(thing, writes, rng))

    def _name(self, path: Path, thing: "_File | _Names") -> None:
        folder = self._folder(path.parent)
        folder.now[path.name] = thing
        folder.unsafe.append((path.name, thing, ""))

    def _folder(self, path: Path) -> _Names:
        folder = self._top
        for part in path.relative_to(self.root).parts:
            inner = folder.now[part]
            assert isinstance(inner, _Names)
            folder = inner
        return folder


def _some(items: Sequence[T], how: How, rng: Rng) -> list[T]:
    if how == "first":
        return list(items[: int(rng.integers(len(items) + 1))])
    if how in ("any", "sectors"):
        kept = rng.random(len(items)) < rng.random()
        return [item for item, keep in zip(items, kept.tolist(), strict=True) if keep]
    return list(items) if how == "all" else []


def _content(file: _File, how: How, rng: Rng) -> bytes:
    content = bytearray(file.safe)
    if how == "sectors":
        for each in file.unsafe:
            for part in _sectors(each):
                if rng.random() < 0.5:
                    _apply(content, part)
    else:
        for each in _some(file.unsafe, how, rng):
            _apply(content, each)
    return bytes(content)


def _sectors(operation: Operation) -> Iterator[Operation]:
    """A write, cut at the borders of sectors; a truncation as it is."""
    if operation.kind == "T":
        yield operation
        return
    at, end = operation.offset, operation.offset + len(operation.data)
    while at < end:
        until = min((at // _SECTOR + 1) * _SECTOR, end)
        begin = at - operation.offset
        yield operation._replace(offset=at, data=operation.data[begin : begin + until - at])
        at = until


def _apply(content: bytearray, operation: Operation) -> None:
    at = operation.offset
    if operation.kind == "T":
        del content[at:]
    if len(content) < at:
        content.extend(bytes(at - len(content)))
    if operation.kind == "W":
        content[at : at + len(operation.data)] = operation.data
