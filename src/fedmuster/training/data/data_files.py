"""Files of public data sets: where they may lie, and how they are downloaded."""

import hashlib
import io
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from fedmuster.core.errors import DataError
from fedmuster.core.files import write_file
from fedmuster.training.data.assembly import RawData
from fedmuster.training.data.formats import read_bytes

DATA_FOLDER_VARIABLE: Final = "FEDMUSTER_DATA"

Unpack = Callable[[bytes, "Download"], dict[str, bytes]]
Progress = Callable[[str, int, int | None], None]
"""Told the URL, the bytes that have come, and how many there are, where the server says so."""

_TIMEOUT_SECONDS = 60.0
_CHUNK = 1 << 18


def as_it_is(payload: bytes, download: "Download") -> dict[str, bytes]:
    """Keep the download under its own name."""
    return {download.url.rpartition("/")[2]: payload}


def from_tar(payload: bytes, download: "Download") -> dict[str, bytes]:
    """Keep the members of a packed tar archive."""
    kept = {}
    with tarfile.open(fileobj=io.BytesIO(payload), mode="r:gz") as archive:
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

    ``checksum`` is as published, "md5:…" or "sha256:…", and is checked before anything is unpacked;
    ``unpack`` returns what to keep, by name; ``members`` are the wanted ones of an archive.
    """

    url: str
    checksum: str
    unpack: Unpack = as_it_is
    members: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Layout:
    """One way in which the files of a data set lie in a folder.

    All ``files`` are needed, and each but an .npz may be packed (.gz) instead; ``optional`` ones
    are read where they exist. ``called`` describes many files to people. ``other_md5`` is that of
    the first file (unpacked) in another data set with the same file names.
    """

    files: tuple[str, ...]
    read: Callable[[Mapping[str, Path]], RawData]
    optional: tuple[str, ...] = ()
    called: str = ""
    other_md5: str = ""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PublicSet:
    """A data set that others publish.

    Args:
        title: as people know it.
        samples: the numbers for training and for testing, as published.
        shape: of one input.
        num_classes: the number of labels.
        layouts: how its files may lie, the preferred one first.
        subfolders: of a data folder, where they may lie.
        how_to_get: in words.
        system_folders: where a package of the operating system puts them.
        refused: files that look like it and cannot be used, and why.
        downloads: what ``fedmuster data fetch`` downloads.
    """

    title: str
    samples: tuple[int, int]
    shape: tuple[int, ...]
    num_classes: int
    layouts: tuple[Layout, ...]
    subfolders: tuple[str, ...]
    how_to_get: str
    system_folders: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    downloads: tuple[Download, ...] = ()


class Found(NamedTuple):
    """A data set whose files were found. Equal only while no file changes.

    ``files`` has the name, the path, the time of the last change and the size of each file.
    """

    public: PublicSet
    layout: Layout
    files: tuple[tuple[str, Path, int, int], ...]

    def describe(self) -> str:
        """Where it is, for people."""
        others = len(self.files) - 1
        return f"{self.files[0][1]}" + (f" and {others} more" if others else "")

    def read(self) -> RawData:
        """What the files hold."""
        return self.layout.read({name: path for name, path, *_ in self.files})


class Search(NamedTuple):
    """The result of a search: the set or None, the folders, and remarks about their files."""

    found: Found | None
    folders: list[str]
    remarks: list[str]


def cache_folder() -> Path:
    """The folder of ``fedmuster data fetch``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedmuster"


def find(public: PublicSet, folder: str | None) -> Found:
    """The files of this set, or a :class:`DataError` that says how to get it."""
    search = look_for(public, folder)
    if search.found is not None:
        return search.found
    layouts = ", or ".join(each.called or ", ".join(each.files) for each in public.layouts)
    lines = [
        f"{public.title} is not there: looked in {', '.join(search.folders)}",
        *search.remarks,
        f"get it with {public.how_to_get}",
        f"or put {layouts} into a folder and set {DATA_FOLDER_VARIABLE} to it or give it as folder",
    ]
    raise DataError("; ".join(lines))


def look_for(public: PublicSet, folder: str | None) -> Search:
    """Search ``folder``, or without one all usual places in turn."""
    looked: list[str] = []
    remarks: list[str] = []
    for place in _places(public, folder):
        looked.append(f"{place}" if place.is_dir() else f"{place} (no such folder)")
        for subfolder in ("", *public.subfolders):
            for layout in public.layouts:
                found = _match(public, layout, place / subfolder, remarks)
                if found is not None:
                    return Search(found, looked, remarks)
            for name, why in public.refused:
                if (place / subfolder / name).is_file():
                    remarks.append(f"{place / subfolder / name} is there, but {why}")
    return Search(None, looked, remarks)


def _places(public: PublicSet, folder: str | None) -> list[Path]:
    if folder is not None:
        return [Path(folder).expanduser()]
    named = os.environ.get(DATA_FOLDER_VARIABLE)
    return [
        *([Path(named).expanduser()] if named else []),
        cache_folder(),
        *map(Path, public.system_folders),
    ]


def _match(public: PublicSet, layout: Layout, folder: Path, remarks: list[str]) -> Found | None:
    present = {}
    for name in (*layout.files, *layout.optional):
        packed = () if name.endswith(".npz") else (f"{name}.gz",)
        for path in (folder / file for file in (*packed, name)):
            if path.is_file():
                present[name] = path
    missing = [name for name in layout.files if name not in present]
    if missing:
        if len(missing) < len(layout.files):
            remarks.append(f"{folder} has only a part of it, without {', '.join(missing)}")
        return None
    first = present[layout.files[0]]
    if layout.other_md5 and hashlib.md5(read_bytes(first)).hexdigest() == layout.other_md5:
        remarks.append(f"{first} belongs to another data set with the same file names")
        return None
    found = [(name, path, path.stat()) for name, path in present.items()]
    return Found(public, layout, tuple((n, p, s.st_mtime_ns, s.st_size) for n, p, s in found))


def download(public: PublicSet, folder: Path, progress: Progress | None) -> list[Path]:
    """Download a data set into ``folder`` and return its files.

    Nothing is written before all files have arrived and have their published checksums.
    """
    files: dict[str, bytes] = {}
    for each in public.downloads:
        payload = _downloaded(each, progress)
        try:
            files |= each.unpack(payload, each)
        except _NO_ARCHIVE as error:
            raise DataError(f"{each.url} is not the archive it should be: {error}") from error
    for file, image in files.items():
        write_file(folder / file, image)
    return [folder / file for file in files]


_NO_ARCHIVE = (KeyError, ValueError, tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error)


def _downloaded(download: Download, progress: Progress | None) -> bytes:
    import http.client  # here, because hardly any process downloads, and TLS is slow to import
    import urllib.request

    url = download.url
    tell = progress or (lambda _url, _done, _total: None)
    request = urllib.request.Request(url, headers={"User-Agent": "fedmuster"})
    parts, done = [], 0
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
            length = response.headers.get("Content-Length")
            total = int(length) if length else None
            tell(url, 0, total)
            while part := response.read(_CHUNK):
                parts.append(part)
                done += len(part)
                tell(url, done, total)
    except (OSError, http.client.HTTPException) as error:  # URLError and timeouts are OSErrors
        raise DataError(f"cannot download {url}: {error}; nothing was kept, try again") from error
    if total is not None and done != total:
        raise DataError(
            f"{url} broke off after {done:,} of {total:,} bytes; nothing was kept, try again"
        )
    payload = b"".join(parts)
    algorithm, _, expected = download.checksum.partition(":")
    got = hashlib.new(algorithm, payload, usedforsecurity=False).hexdigest()
    if got != expected:
        raise DataError(
            f"{url} has the {algorithm} checksum {got}, expected {expected}: it is damaged or was "
            "changed; nothing was kept, try again later"
        )
    return payload
