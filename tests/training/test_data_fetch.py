"""Downloads from a server on loopback: what is whole is kept, of everything else nothing."""

import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from fedmuster.core.errors import ConfigError, DataError
from fedmuster.training.data import CIFAR10
from fedmuster.training.data import public_sets as catalogue
from fedmuster.training.data.data_files import Download, from_tar, from_zip_in_zip
from fedmuster.training.data.formats import CIFAR_BATCHES
from fedmuster.training.data.public_sets import fetch

BATCH = np.random.default_rng(0).integers(0, 10, 3073 * 4, dtype=np.uint8).tobytes()


class Server(ThreadingHTTPServer):
    """Serves ``pages``; breaks off those in ``broken`` half-way."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages: dict[str, bytes] = {}
        self.broken: set[str] = set()
        self.agents: list[str] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:  # the name that http.server calls
        self.server.agents.append(self.headers["User-Agent"])
        page = self.server.pages.get(self.path)
        if page is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page[: len(page) // 2] if self.path in self.server.broken else page)

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def nothing_but_loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every download of the catalogue is replaced, so that no test can reach the internet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDMUSTER_DATA", raising=False)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, public in catalogue.PUBLIC_SETS.items():
        here = tuple(replace(d, url="http://127.0.0.1:1/nobody") for d in public.downloads)
        monkeypatch.setitem(catalogue.PUBLIC_SETS, name, replace(public, downloads=here))


def offer(
    monkeypatch: pytest.MonkeyPatch, server: Server, name: str, **pages: bytes
) -> list[Download]:
    """Let ``fetch(name)`` download these pages as they are."""
    downloads = []
    for file, page in pages.items():
        server.pages[f"/{file}"] = page
        checksum = f"md5:{hashlib.md5(page).hexdigest()}"
        downloads.append(Download(url=server.url(f"/{file}"), checksum=checksum))
    use(monkeypatch, name, *downloads)
    return downloads


def use(monkeypatch: pytest.MonkeyPatch, name: str, *downloads: Download) -> None:
    public = replace(catalogue.PUBLIC_SETS[name], downloads=downloads)
    monkeypatch.setitem(catalogue.PUBLIC_SETS, name, public)


def files_below(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def tar_gz(**members: bytes) -> bytes:
    image = io.BytesIO()
    with tarfile.open(fileobj=image, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return image.getvalue()


def zipped(**members: bytes) -> bytes:
    image = io.BytesIO()
    with zipfile.ZipFile(image, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return image.getvalue()


def test_files_come_whole_and_progress_is_told(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = offer(monkeypatch, server, "mnist", a=bytes(700_000), b=b"two")
    told: list[tuple[str, int, int | None]] = []
    paths = fetch("mnist", tmp_path / "to", progress=lambda *what: told.append(what))
    assert [path.read_bytes() for path in paths] == [bytes(700_000), b"two"]
    assert files_below(tmp_path) == ["to/mnist/a", "to/mnist/b"]
    assert (first.url, 0, 700_000) in told
    assert (first.url, 700_000, 700_000) in told
    assert told[-1] == (second.url, 3, 3)
    assert len(told) > 5
    assert set(server.agents) == {"fedmuster"}


def test_the_cache_is_where_experiments_look(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {f"cifar-10-batches-bin/{name}": BATCH for name in CIFAR_BATCHES}
    server.pages["/c.tar.gz"] = image = tar_gz(**members, **{"../escape": b"!", "readme": b"no"})
    download = Download(
        url=server.url("/c.tar.gz"),
        checksum=f"sha256:{hashlib.sha256(image).hexdigest()}",
        unpack=from_tar,
        members=tuple(members),
    )
    use(monkeypatch, "cifar-10", download)
    fetch("cifar-10")
    assert files_below(tmp_path) == sorted(f"cache/fedmuster/cifar-10/{name}" for name in members)
    assert CIFAR10().load(0).train_inputs.shape == (20, 3, 32, 32)


def test_a_zip_within_a_zip(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = zipped(**{"UCI HAR Dataset/train/y_train.txt": b"1", "other": b"2"})
    server.pages["/h.zip"] = image = zipped(**{"UCI HAR Dataset.zip": inner, "a.names": b"3"})
    download = Download(
        url=server.url("/h.zip"),
        checksum=f"sha256:{hashlib.sha256(image).hexdigest()}",
        unpack=from_zip_in_zip,
        members=("UCI HAR Dataset/train/y_train.txt",),
    )
    use(monkeypatch, "uci-har", download)
    fetch("uci-har", tmp_path)
    assert files_below(tmp_path) == ["uci-har/UCI HAR Dataset/train/y_train.txt"]
    use(monkeypatch, "uci-har", replace(download, members=("absent",)))
    with pytest.raises(DataError, match=r"h\.zip"):
        fetch("uci-har", tmp_path / "again")
    use(monkeypatch, "uci-har", replace(download, unpack=from_tar))
    with pytest.raises(DataError, match=r"h\.zip"):
        fetch("uci-har", tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("fault", ["changed", "broken", "absent", "no server"])
def test_of_a_failed_download_nothing_is_kept(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    good, bad = offer(monkeypatch, server, "mnist", good=b"good", bad=bytes(1000))
    expected = {
        "changed": f"/bad has the md5 checksum {hashlib.md5(bytes(999)).hexdigest()}, expected",
        "broken": "/bad broke off after 500 of 1,000 bytes",
        "absent": "cannot download .*/bad: HTTP Error 404",
        "no server": "cannot download http://127.0.0.1:1/bad",
    }[fault]
    if fault == "changed":
        server.pages["/bad"] = bytes(999)
    elif fault == "broken":
        server.broken.add("/bad")
    elif fault == "absent":
        del server.pages["/bad"]
    else:
        use(monkeypatch, "mnist", good, replace(bad, url="http://127.0.0.1:1/bad"))
    with pytest.raises(DataError, match=f"{expected}.*nothing was kept"):
        fetch("mnist", tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_of_an_interrupted_download_nothing_is_kept(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, server, "mnist", a=b"one", b=bytes(1_000_000))

    def interrupt(url: str, done: int, _total: int | None) -> None:
        if url.endswith("/b") and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("mnist", tmp_path / "to", progress=interrupt)
    assert not (tmp_path / "to").exists()


def test_what_cannot_be_fetched(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'digits'"):
        fetch("digits", tmp_path)
    with pytest.raises(ConfigError):
        fetch("audiomnist", tmp_path)
    assert files_below(tmp_path) == []
