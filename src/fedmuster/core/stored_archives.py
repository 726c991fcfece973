"""Read zip archives and ``.npz`` images strictly: whole as they were written, or not at all.

Members must be stored (never packed), follow each other without gaps, have the same name in both
of their headers, and the checksum that is written beside them. So a small file cannot become a
large one in memory, and a changed byte is noticed wherever it means something.
"""

import ast
import io
import math
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.errors import StateError

_LOCAL: Final = struct.Struct("<4s5H3L2H")
_END_BYTES: Final = 22
"""The record at the end of an archive without a comment."""
_UTF8: Final = 0x800
_IN_EXTRA_FIELD: Final = 0xFFFFFFFF
"""What stands for a length that does not fit into 32 bits, or that its writer did not foresee."""
_MAGIC: Final = b"\x93NUMPY"
_LONGEST_HEADER: Final = 10_000
_MOST_EMPTY_ROWS: Final = 2**31
"""An array without elements takes no memory; a loop over its rows would take time."""
_UNREADABLE: Final = (
    *(zipfile.BadZipFile, struct.error, zlib.error, ValueError, TypeError, KeyError, IndexError),
    *(OverflowError, EOFError, NotImplementedError, RecursionError, SyntaxError, AttributeError),
)


class _DamageError(ValueError):
    """What does not fit."""


STATE_FILE: Final = "state file of fedmuster"


def read_archive(image: bytes, *, source: str, what: str = STATE_FILE) -> dict[str, memoryview]:
    """The members of an archive by name, as parts of ``image``.

    Args:
        image: the archive.
        source: its file, for messages.
        what: it should be.
    """
    try:
        return _members(image)
    except _UNREADABLE as error:
        raise damaged(source, error, what=what) from error


def read_arrays(image: bytes, *, source: str, copied: bool = True) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` image by name; objects of Python are refused.

    Args:
        image: the archive.
        source: its file, for messages.
        copied: whether arrays have memory of their own; else they are parts of ``image``, which
            are read-only and perhaps not aligned.
    """
    try:
        members = _members(image)
        return {_array_name(name): _array(data, copied) for name, data in members.items()}
    except (*_UNREADABLE, MemoryError) as error:  # the latter from the parser of headers
        raise damaged(source, error) from error


def damaged(source: str, error: BaseException, *, what: str = STATE_FILE) -> StateError:
    """The error that says which file cannot be read, why, and what to do."""
    return StateError(
        f"{source} is damaged or no {what} ({type(error).__name__}: {error}): restore it from a "
        "copy, or begin anew in another folder"
    )


def _members(image: bytes) -> dict[str, memoryview]:
    members: dict[str, memoryview] = {}
    whole, at = memoryview(image), 0
    with zipfile.ZipFile(io.BytesIO(image)) as archive:
        if image[-_END_BYTES:][:4] != b"PK\5\6":
            raise _DamageError("something follows the end of the archive")
        for entry in archive.infolist():
            if entry.header_offset != at:
                raise _DamageError(f"{entry.filename!r} does not follow the member before it")
            begin = _data_offset(whole, entry)
            at = begin + entry.file_size
            if entry.filename in members or at > len(image):
                raise _DamageError(f"{entry.filename!r} is there twice, or too long")
            data = whole[begin:at]
            if zlib.crc32(data) != entry.CRC:
                raise _DamageError(f"{entry.filename!r} does not fit its checksum")
            members[entry.filename] = data
        if at != archive.start_dir:
            raise _DamageError("there is something between the members and their directory")
    return members


def _data_offset(whole: memoryview, entry: zipfile.ZipInfo) -> int:
    """Where the member's data begin, after comparing its own header with the directory's entry."""
    at = entry.header_offset
    magic, _, flags, method, _, _, check, packed, size, name_length, extra = _LOCAL.unpack(
        whole[at : at + _LOCAL.size]
    )
    at += _LOCAL.size
    encoding = "utf-8" if flags & _UTF8 else "cp437"
    name = bytes(whole[at : at + name_length]).decode(encoding)
    alike = (
        magic == b"PK\3\4"
        and method == entry.compress_type == zipfile.ZIP_STORED
        and flags == entry.flag_bits
        and flags & ~_UTF8 == 0  # not encrypted, and its length is known
        and check == entry.CRC
        and name == entry.orig_filename == entry.filename
        and entry.compress_size == entry.file_size
        and {packed, size} in ({entry.file_size}, {_IN_EXTRA_FIELD})
    )
    if not alike:
        raise _DamageError(f"{entry.filename!r} is packed, or its two headers differ")
    return int(at + name_length + extra)


def _array_name(member: str) -> str:
    if not member.endswith(".npy"):
        raise _DamageError(f"{member!r} is no array")
    return member.removesuffix(".npy")


def _array(data: memoryview, copied: bool) -> NDArray[Any]:
    """The array of a ``.npy`` member (numpy.lib.format, versions 1 to 3)."""
    dtype, shape, by_columns, begin = _header(data)
    count = math.prod(shape)
    if count * dtype.itemsize != len(data) - begin:
        raise _DamageError(f"its header says {dtype}{shape}, it holds {len(data) - begin:,} bytes")
    if count * dtype.itemsize == 0:
        rows = math.prod(length for length in shape if length > 0)
        if rows > _MOST_EMPTY_ROWS:
            raise _DamageError(f"its header says {dtype}{shape}, which holds nothing")
        return np.empty(shape, dtype=dtype)
    flat = np.frombuffer(data, dtype=dtype, count=count, offset=begin)
    if copied:
        flat = flat.copy()
    return flat.reshape(shape[::-1]).T if by_columns else flat.reshape(shape)


def _header(data: memoryview) -> tuple[np.dtype[Any], tuple[int, ...], bool, int]:
    if bytes(data[:6]) != _MAGIC or data[6] not in (1, 2, 3):
        raise _DamageError("a member is no array of numpy")
    begin = 10 if data[6] == 1 else 12
    length = int.from_bytes(data[8:begin], "little")
    if length > min(_LONGEST_HEADER, len(data) - begin):
        raise _DamageError(f"a header says that it has {length:,} bytes")
    encoding = "utf-8" if data[6] == 3 else "latin1"
    described = ast.literal_eval(bytes(data[begin : begin + length]).decode(encoding).strip())
    if not isinstance(described, Mapping) or set(described) != {"descr", "fortran_order", "shape"}:
        raise _DamageError(f"a header says {described!r}")
    shape, by_columns = described["shape"], described["fortran_order"]
    if not (
        isinstance(shape, tuple)
        and all(type(length) is int and length >= 0 for length in shape)
        and type(by_columns) is bool
    ):
        raise _DamageError(f"a header says {described!r}")
    dtype = np.lib.format.descr_to_dtype(described["descr"])
    if dtype.hasobject:
        raise _DamageError("it holds objects of Python, as of allow_pickle, and none are loaded")
    return dtype, shape, by_columns, begin + length
