"""Decode the formats in which data sets are published: idx, CIFAR's batches, tables, .npz.

What is truncated or damaged is refused with the name of the file. Nothing is ever unpickled.
"""

import gzip
import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.errors import DataError

Bytes = NDArray[np.uint8]

_IDX_TYPES: dict[int, np.dtype[Any]] = {0x08: np.dtype(np.uint8), 0x0C: np.dtype(">i4")}
_CIFAR_SHAPE = (3, 32, 32)
_BYTES_PER_CIFAR_SAMPLE = 1 + 3 * 32 * 32


class Batch(NamedTuple):
    """Images uint8[n, 3, 32, 32] and their labels uint8[n]."""

    images: Bytes
    labels: Bytes


def read_bytes(path: Path) -> bytes:
    """What the file holds, unpacked where its name ends in .gz."""
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        with gzip.open(path) as file:
            return file.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise damaged(path, f"it cannot be unpacked ({error})") from error


def read_idx(path: Path) -> NDArray[Any]:
    """The array in an idx file of bytes or of 32-bit integers, as MNIST's and QMNIST's are.

    The format: two zero bytes, the type, the number of axes, the length of each, the values.
    """
    image = read_bytes(path)
    if len(image) < 4 or image[:2] != b"\0\0" or image[2] not in _IDX_TYPES or not image[3]:
        raise damaged(path, "it does not begin as an idx file of bytes or integers does")
    kind, begin = _IDX_TYPES[image[2]], 4 + 4 * image[3]
    shape = tuple(int.from_bytes(image[at : at + 4], "big") for at in range(4, begin, 4))
    expected = begin + kind.itemsize * math.prod(shape)
    if len(image) != expected:
        raise damaged(path, f"it holds {len(image):,} bytes, its own header says {expected:,}")
    return np.frombuffer(image, dtype=kind, offset=begin).reshape(shape)


def read_cifar_batch(path: Path) -> Batch:
    """A batch of CIFAR-10's binary version: a label, then 3 × 32 × 32 pixels, again and again."""
    image = read_bytes(path)
    if not image or len(image) % _BYTES_PER_CIFAR_SAMPLE:
        raise damaged(
            path, f"it holds {len(image):,} bytes, no multiple of {_BYTES_PER_CIFAR_SAMPLE:,}"
        )
    rows = np.frombuffer(image, dtype=np.uint8).reshape(-1, _BYTES_PER_CIFAR_SAMPLE)
    return Batch(images=rows[:, 1:].reshape(-1, *_CIFAR_SHAPE), labels=rows[:, 0])


def read_filtered_cifar(path: Path) -> Batch:
    """CIFAR-10 images from an .npz in which they are filtered so that they compress.

    ``d`` is uint8[3, n, 32, 32], the planes R-G, G, B-G, differenced along rows and columns, all
    modulo 256; ``y`` are the labels.
    """
    arrays = read_npz(path, ("d", "y"))
    planes = arrays["d"]
    if planes.dtype != np.uint8 or planes.ndim != 4 or planes.shape[::2] != (3, 32):
        raise damaged(path, f"d is {planes.dtype}{planes.shape}, expected uint8 (3, n, 32, 32)")
    for i in range(1, planes.shape[2]):
        planes[:, :, i, :] += planes[:, :, i - 1, :]
    for i in range(1, planes.shape[3]):
        planes[:, :, :, i] += planes[:, :, :, i - 1]
    planes[0] += planes[1]
    planes[2] += planes[1]
    return Batch(images=planes.transpose(1, 0, 2, 3), labels=arrays["y"])


def read_table(path: Path) -> NDArray[np.float32]:
    """The numbers of a text file, [rows, columns]."""
    lines = read_bytes(path).decode("ascii", errors="replace").splitlines()
    if not any(lines):
        raise damaged(path, "it is empty")
    try:
        return np.loadtxt(lines, dtype=np.float32, ndmin=2)
    except ValueError as error:
        raise damaged(path, f"it is no table of numbers ({error})") from error


def read_npz(
    path: Path, keys: Sequence[str], *, optional: Sequence[str] = ()
) -> dict[str, NDArray[Any]]:
    """These arrays of an .npz file, and the optional ones where it has them."""
    try:
        # Opened here, because np.load leaves a file open that it cannot read.
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise damaged(path, "it is no .npz archive")
            missing = [key for key in keys if key not in archive.files]
            if missing:
                raise damaged(path, f"it has no {', '.join(missing)}")
            wanted = [*keys, *(key for key in optional if key in archive.files)]
            arrays = {key: archive[key] for key in wanted}
    except DataError:
        raise
    except (ValueError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError) as error:
        raise damaged(path, f"it cannot be read as .npz ({error})") from error
    for key, array in arrays.items():
        if array.ndim == 0:
            raise damaged(path, f"{key} is a single value, expected an array")
    return arrays


def damaged(path: Path, complaint: str) -> DataError:
    """The error about a file that is not what it should be."""
    return DataError(f"{path} is damaged or something else: {complaint}; get it anew")
