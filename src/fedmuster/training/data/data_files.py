"""What is published where, and what of it to keep."""

import hashlib
import io
import os
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from fedmuster.core.errors import DataError
from fedmuster.training.data.assembly import RawData
from fedmuster.training.data.formats import read_bytes

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


# Where the files of a data set may lie, and whether they are there.

DATA_FOLDER_VARIABLE: Final = "FEDMUSTER_DATA"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Layout:
    """One way in which the files of a data set lie in a folder.

    Args:
        files: all of them are needed; each but an .npz may be packed (.gz) instead.
        read: what they hold, given where each of them is.
        optional: taken where they are there.
        called: the files, for people, where they are many.
        other_md5: of the first file (unpacked) in another data set with the same file names.
    """

    files: tuple[str, ...]
    read: Callable[[Mapping[str, Path]], RawData]
    optional: tuple[str, ...] = ()
    called: str = ""
    other_md5: str = ""

    def describe(self) -> str:
        """The files, for people."""
        return self.called or ", ".join(self.files)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PublicSet:
    """A data set that others publish.

    Args:
        name: as in configs.
        title: as people know it.
        samples: how many there are for training and for testing, as published.
        shape: of one input.
        num_classes: how many labels there are.
        layouts: how its files may lie, the preferred one first.
        subfolders: of a data folder, where they may lie.
        system_folders: where a package of the operating system puts them.
        refused: files that look like it and cannot be used, and why.
        downloads: what ``fedmuster data fetch`` downloads.
        how_to_get: in words.
    """

    name: str
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


class FoundFile(NamedTuple):
    """A file as it is now."""

    name: str
    path: Path
    modified: int
    size: int


class Found(NamedTuple):
    """A data set that is there. Equal only while no file changes."""

    public: PublicSet
    layout: Layout
    files: tuple[FoundFile, ...]

    def describe(self) -> str:
        """Where it is, for people."""
        first, *others = (str(file.path) for file in self.files)
        return first + (f" and {len(others)} more" if others else "")

    def read(self) -> RawData:
        """What the files hold."""
        return self.layout.read({file.name: file.path for file in self.files})


class Search(NamedTuple):
    """What a search came to: the set or None, where it was looked for, what was odd there."""

    found: Found | None
    folders: list[str]
    remarks: list[str]


def cache_folder() -> Path:
    """Where ``fedmuster data fetch`` puts things."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedmuster"


def find(public: PublicSet, folder: str | None) -> Found:
    """Where this set is, or a :class:`DataError` that says how to get it."""
    search = look_for(public, folder)
    if search.found is not None:
        return search.found
    layouts = ", or ".join(layout.describe() for layout in public.layouts)
    raise DataError(
        "; ".join(
            (
                f"{public.title} is not there: looked in {', '.join(search.folders)}",
                *search.remarks,
                f"get it with {public.how_to_get}",
                f"or put {layouts} into a folder, and set {DATA_FOLDER_VARIABLE} to it or give it "
                "as folder",
            )
        )
    )


def look_for(public: PublicSet, folder: str | None) -> Search:
    """Search the folder that is given and no other; without one, all usual places in turn."""
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
    files = []
    for name, path in present.items():
        status = path.stat()
        files.append(FoundFile(name, path, status.st_mtime_ns, status.st_size))
    return Found(public, layout, tuple(files))
