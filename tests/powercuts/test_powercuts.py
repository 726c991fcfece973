"""The power is cut at syncs and anywhere: nothing that was promised is lost, and runs go on.

The long form is ``make fuzz``.
"""

from pathlib import Path
from typing import Any

import pytest
from tests.powercuts.campaign import Campaign
from tests.powercuts.recording import Disk, Operation, build
from tests.powercuts.workloads import WORKLOADS

from fedmuster.core.files import make_folder, sync_folder, write_file
from fedmuster.privacy.ledger.guards import STATE_FOLDER_VARIABLE


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = build(tmp_path_factory.mktemp("recorder"))
    if found is None:
        pytest.skip("needs a C compiler and /proc")
    return found


@pytest.fixture(autouse=True)
def state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(STATE_FOLDER_VARIABLE, str(tmp_path / "state"))


@pytest.mark.slow
def test_nothing_promised_is_lost(library: Path, tmp_path: Path) -> None:
    campaign = Campaign(tmp_path.resolve(), library)
    campaign.run(range(30))
    assert campaign.bad == []
    assert campaign.cuts == dict.fromkeys(WORKLOADS, 30)


def operation(kind: str, path: Path, **more: Any) -> Operation:
    values: dict[str, Any] = {"file": 1, "offset": 0, "second": Path(), "data": b"", **more}
    return Operation(kind=kind, path=path, **values)


def outcomes(root: Path, *operations: Operation) -> set[tuple[tuple[str, bytes], ...]]:
    """All that a disk holds after them, over many power cuts."""
    disk = Disk(root)
    for each in operations:
        disk.perform(each)
    found = set()
    for seed in range(200):
        disk.cut(seed)
        files = sorted(path for path in root.rglob("*") if path.is_file())
        found.add(tuple((str(path.relative_to(root)), path.read_bytes()) for path in files))
    return found


def test_the_disk_loses_what_was_not_synced(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    file, named, synced = root / "a", operation("D", root), operation("S", root / "a")
    made, written = operation("C", file), operation("W", file, data=b"x" * 600)
    whole = (("a", b"x" * 600),)
    assert outcomes(root, made, written, synced, named) == {whole}
    assert outcomes(root, made, written, synced) == {whole, ()}
    half = (("a", b"x" * 512),)
    rest = (("a", bytes(512) + b"x" * 88),)
    assert outcomes(root, made, named, written) == {whole, half, rest, (("a", b""),)}


def test_the_disk_reorders_writes_and_names(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    file, folder = root / "a", root / "f"
    first, second = (operation("W", file, offset=at, data=b"y") for at in (0, 1))
    found = outcomes(root, operation("C", file), operation("D", root), first, second)
    assert (("a", b"\0y"),) in found
    moved = operation("R", file, second=root / "b")
    found = outcomes(root, operation("C", file), operation("D", root), moved)
    assert found == {(("a", b""),), (("b", b""),)}
    inside = operation("C", folder / "c")
    found = outcomes(root, operation("M", folder), inside, operation("D", folder))
    assert found == {(), (("f/c", b""),)}  # the folder itself was not synced


def test_folders_are_made_to_stay(tmp_path: Path) -> None:
    write_file(tmp_path / "a/b/c.txt", b"it")
    make_folder(tmp_path / "a/b")
    sync_folder(tmp_path / "a")
    assert (tmp_path / "a/b/c.txt").read_bytes() == b"it"
