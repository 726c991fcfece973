"""What is published where, and what of it to keep."""

import io
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass

Unpack = Callable[[bytes, "Download"], dict[str, bytes]]


def as_it_is(payload: bytes, download: "Download") -> dict[str, bytes]:
    """Keep the download under its own name."""
    return {download.url.rpartition("/")[2]: payload}


def from_tar(payload: bytes, download: "Download") -> dict[str, bytes]:
    """Keep the members of a packed tar archive."""
    with tarfile.open(fileobj=io.BytesIO(payload), mode="r:gz") as archive:
        kept = {}
        for name in download.members:
            member = archive.extractfile(name)
            if member is None:
                raise KeyError(f"{name} is no file")
            kept[name] = member.read()
        return kept


def from_zip_in_zip(payload: bytes, download: "Download") -> dict[str, bytes]:
    """Keep the members of the only zip archive within a zip archive."""
    with zipfile.ZipFile(io.BytesIO(payload)) as outer:
        (inner,) = (name for name in outer.namelist() if name.endswith(".zip"))
        with zipfile.ZipFile(io.BytesIO(outer.read(inner))) as archive:
            return {name: archive.read(name) for name in download.members}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Download:
    """A file on the internet.

    Args:
        url: where.
        checksum: as published, "md5:…" or "sha256:…"; it is checked before anything is unpacked.
        unpack: what to keep of it, by the name to keep it under.
        members: of an archive.
    """

    url: str
    checksum: str
    unpack: Unpack = as_it_is
    members: tuple[str, ...] = ()
