"""Download a public data set, check it, and only then keep it."""

import hashlib
import http.client
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from fedmuster.core.errors import ConfigError, DataError
from fedmuster.core.files import write_file
from fedmuster.training.data.data_files import Download, cache_folder
from fedmuster.training.data.public_sets import PUBLIC_SETS

Progress = Callable[[str, int, int | None], None]
"""Told the URL, the bytes that have come, and how many there are, where the server says so."""

_TIMEOUT_SECONDS = 60.0
_CHUNK = 1 << 18


def fetch(name: str, to: Path | None = None, *, progress: Progress | None = None) -> list[Path]:
    """Download the data set ``name`` into ``to/name`` and return its files.

    Nothing is written before everything is there and has the published checksum.

    Args:
        name: of a public data set.
        to: a data folder; None for the user's cache, where every experiment looks.
        progress: is told what has come.
    """
    public = PUBLIC_SETS.get(name)
    if public is None:
        raise ConfigError(
            f"nothing to fetch for {name!r}; expected one of: "
            + ", ".join(name for name, public in PUBLIC_SETS.items() if public.downloads)
        )
    if not public.downloads:
        raise ConfigError(f"{public.title} has no direct download: {public.how_to_get}")
    files: dict[str, bytes] = {}
    for download in public.downloads:
        files |= _unpacked(download, _downloaded(download, progress or _silent))
    folder = (to or cache_folder()) / name
    for file, image in files.items():
        write_file(folder / file, image)
    return [folder / file for file in files]


def _downloaded(download: Download, progress: Progress) -> bytes:
    url = download.url
    request = urllib.request.Request(url, headers={"User-Agent": "fedmuster"})
    parts, done = [], 0
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
            length = response.headers.get("Content-Length")
            total = int(length) if length else None
            progress(url, 0, total)
            while part := response.read(_CHUNK):
                parts.append(part)
                done += len(part)
                progress(url, done, total)
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


def _unpacked(download: Download, payload: bytes) -> dict[str, bytes]:
    try:
        return download.unpack(payload, download)
    except (KeyError, ValueError, tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as e:
        raise DataError(f"{download.url} is not the archive it should be: {e}") from e


def _silent(_url: str, _done: int, _total: int | None) -> None:
    pass
