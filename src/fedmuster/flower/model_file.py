"""The file that holds a run's model after a round, and what its strategy remembers.

It is a zip archive without compression and without pickle. An :class:`~flwr.app.Array` that numpy
made is in there as its ``.npy`` image, so ``np.load("muster-model-a.npz")["conv1.weight"]`` works;
any other is kept as its bytes.
"""

import json
import os
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from flwr.app import Array, ArrayRecord

from fedmuster.core import files as npz
from fedmuster.core.errors import StateError

_CONTENTS = "__contents__"
_STRATEGY = "__strategy__"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_NUMPY = "numpy.ndarray"  # Flower's name for what numpy.save wrote

# What zipfile and json raise at damaged or other files.
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    ValueError,
    KeyError,
    OSError,
    EOFError,
    TypeError,
    RuntimeError,  # a bit that says it is encrypted
)

_sync = getattr(os, "fdatasync", os.fsync)  # of which not every system has the first


class Kept(NamedTuple):
    """What the file of a round holds."""

    model: ArrayRecord
    strategy: bytes


def write(path: Path, kept: Kept, *, run: str, round_number: int) -> None:
    """Overwrite a file that no checkpoint points to, and have it on disk when this returns.

    In place, because that is three times faster than to replace a file; a crash meanwhile spoils
    only what no checkpoint needs.
    """
    image = _image(kept, run=run, round_number=round_number)
    known = path.exists()
    with path.open("r+b" if known else "wb") as file:
        file.write(image)
        file.truncate()
        file.flush()
        _sync(file.fileno())
    if not known:
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)  # its name
        finally:
            os.close(directory)


def read(path: Path, *, run: str, round_number: int) -> Kept:
    """What :func:`write` was given for this round of this run."""
    if not path.is_file():
        raise StateError(
            f"{path} is gone, without which the run cannot go on: restore it from a copy, or "
            "begin anew in another folder"
        )
    try:
        with zipfile.ZipFile(path) as archive:  # which checks a CRC of each member
            contents = json.loads(archive.read(_CONTENTS))
            owner = (contents["run"], contents["round"])
            kept = Kept(_model(archive, contents["arrays"]), archive.read(_STRATEGY))
    except _UNREADABLE as error:
        raise StateError(
            f"{path} is damaged or no model of fedmuster ({error}): restore it from a copy, or "
            "begin anew in another folder"
        ) from error
    if owner != (run, round_number):
        raise StateError(
            f"{path} holds the model after round {owner[1]} of run {owner[0]}, expected round "
            f"{round_number} of run {run}: restore the right one from a copy, or begin anew in "
            "another folder"
        )
    return kept


def _image(kept: Kept, *, run: str, round_number: int) -> bytes:
    members: dict[str, bytes] = {}
    arrays = []
    for place, (name, array) in enumerate(kept.model.items()):
        member = name if _PLAIN_NAME.fullmatch(name) else f"__{place}__"
        member += ".npy" if array.stype == _NUMPY else ".bin"
        members[member] = array.data
        arrays.append((name, member, array.dtype, array.shape, array.stype))
    contents = {"run": run, "round": round_number, "arrays": arrays}
    members |= {_STRATEGY: kept.strategy, _CONTENTS: json.dumps(contents).encode()}
    return npz.archive(members)


def _model(archive: zipfile.ZipFile, arrays: list[Any]) -> ArrayRecord:
    return ArrayRecord(
        {
            name: Array(dtype=dtype, shape=tuple(shape), stype=stype, data=archive.read(member))
            for name, member, dtype, shape, stype in arrays
        }
    )
