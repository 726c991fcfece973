"""Write files atomically, and make ``.npz`` images of many small arrays quickly."""

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.errors import StateError


def write_file(path: Path, image: bytes, *, mode: int = 0o666) -> None:
    """Write to a temporary name, sync, rename, sync the folder.

    The file gets the permissions ``mode``, as far as the process's umask allows them.
    """
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(temporary, "wb", opener=partial(os.open, mode=mode)) as file:
        file.write(image)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, unless they are there; a power cut does not remove them."""
    missing = [each for each in (folder, *folder.parents) if not each.is_dir()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync_folder(each.parent)


def sync_folders_above(folder: Path) -> None:
    """Make the names of a folder and of those above it durable, as far as they can be opened.

    Whoever made the folder may not have done so.
    """
    for each in folder.absolute().parents:
        with suppress(OSError):
            sync_folder(each)


def sync_folder(folder: Path) -> None:
    """Make the names of new and renamed files in ``folder`` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_LARGEST = 2**31
_MOST_MEMBERS = 2**16 - 1
"""More does not fit into a plain archive, but into one with the fields of "zip64"."""
_LOCAL = struct.Struct("<4s5H3L2H")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_VERSION, _UTF8, _STORED, _MIDNIGHT, _1980 = 20, 0x800, 0, 0, 0x21


def image(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The arrays by name, as ``numpy.load`` reads them.

    Example:
        >>> with np.load(io.BytesIO(image({"loss": np.array([0.5, 2.0])}))) as archive:
        ...     archive["loss"]
        array([0.5, 2. ])
    """
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise StateError(f"array {name} holds Python objects, which are never saved")
    return archive({f"{name}.npy": _npy(array) for name, array in arrays.items()})


def archive(members: Mapping[str, bytes]) -> bytes:
    """A zip archive of files by name, as they are."""
    if sum(map(len, members.values())) >= _LARGEST or len(members) > _MOST_MEMBERS:
        return _large_archive(members)
    return _small_archive({name.encode(): data for name, data in members.items()})


def _large_archive(members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as large:
        for name, data in members.items():
            with large.open(zipfile.ZipInfo(name), "w", force_zip64=True) as member:
                member.write(data)
    return buffer.getvalue()


def _small_archive(members: Mapping[bytes, bytes]) -> bytes:
    parts: list[bytes] = []
    directory: list[bytes] = []
    offset = 0
    for name, data in members.items():
        check = zlib.crc32(data)
        kind = (_VERSION, _UTF8, _STORED, _MIDNIGHT, _1980, check, len(data), len(data), len(name))
        parts += (_LOCAL.pack(b"PK\3\4", *kind, 0), name, data)
        directory += (_ENTRY.pack(b"PK\1\2", _VERSION, *kind, 0, 0, 0, 0, 0, offset), name)
        offset += _LOCAL.size + len(name) + len(data)
    size = sum(map(len, directory))
    end = _END.pack(b"PK\5\6", 0, 0, len(members), len(members), size, offset, 0)
    return b"".join((*parts, *directory, end))


def _npy(array: NDArray[Any]) -> bytes:
    by_columns = array.flags.fnc
    header = _header(array.dtype, array.shape, by_columns)
    return header + (array.T if by_columns else array).tobytes()


@lru_cache(maxsize=1024)  # a run writes arrays of the same few forms again and again
def _header(dtype: np.dtype[Any], shape: tuple[int, ...], by_columns: bool) -> bytes:
    buffer = io.BytesIO()
    described = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": by_columns,
        "shape": shape,
    }
    try:
        np.lib.format.write_array_header_1_0(buffer, described)
    except ValueError as error:  # of a dtype with thousands of fields, or odd names of them
        raise StateError(f"arrays of {dtype} cannot be saved: {error}") from None
    return buffer.getvalue()
