"""The client's file of releases: durable, private, and refused where it cannot be right."""

import fcntl
import os
import stat
from hashlib import sha256
from pathlib import Path

import pytest
from flwr.app import RecordDict
from tests.flower.private_app import app_that, grid_of, received, send, train_a_bit

from fedmuster.core.errors import InUseError, StateError
from fedmuster.flower import client_vault
from fedmuster.flower.client_vault import ClientVault, VaultContents
from fedmuster.flower.in_process import InProcessGrid
from fedmuster.flower.private_mod import PrivateMod
from fedmuster.flower.wire import PrivacyGrant
from fedmuster.privacy.mechanisms import Laplace

HALF = PrivacyGrant.on(Laplace(), 0.5)


def one_more(contents: VaultContents) -> VaultContents:
    run, round_ = "r", contents.rounds.get("r", 0) + 1
    return contents.after(run=run, round_=round_, currency="epsilon", units=7)


def restarted(file: Path) -> InProcessGrid:
    """A SuperNode that remembers nothing, with a client that allows ε = 2."""
    mod = PrivateMod(mechanism=Laplace(), max_epsilon=2.0)
    return grid_of(app_that(train_a_bit, [mod]), **{"release-notes": str(file)})


def test_a_file_remembers_releases_when_the_node_forgets(tmp_path: Path) -> None:
    file = tmp_path / "releases.json"
    received(send(restarted(file), HALF, round_=3))
    assert send(restarted(file), HALF, round_=3).has_error()
    received(send(restarted(file), HALF, round_=4))
    received(send(restarted(file), HALF, round_=1, run="another"))
    expected = VaultContents(
        sequence=3, rounds={"r": 4, "another": 1}, released={"epsilon": 1_500_000_000}
    )
    assert VaultContents.of(file.read_bytes()) == expected


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "releases.json"
    old_mask = os.umask(0)
    try:
        ClientVault(RecordDict(), str(file)).change(one_more)
    finally:
        os.umask(old_mask)
    for each in tmp_path.iterdir():
        assert stat.S_IMODE(each.stat().st_mode) == 0o600, each
    assert {each.name for each in tmp_path.iterdir()} == {"releases.json", "releases.json.lock"}


def _damaged(image: bytes) -> dict[str, bytes]:
    other = VaultContents(sequence=1, rounds={"r": 1}, released={"epsilon": 1}).to_bytes()
    title, body = image.splitlines(keepends=True)
    unknown = body.replace(b'"rounds"', b'"roundz"')
    return {
        "empty": b"",
        "cut in the title": title[:40],
        "cut in the body": image[:-10],
        "a byte too many": image + b" ",
        "less released": image.replace(b"500000000", b"000000000"),
        "another body": title + other.splitlines(keepends=True)[1],
        "zeros": bytes(len(image)),
        "noise": bytes(range(256)) * 8,
        "a list": b"[]",
        "nothing noted": b"{}",
        "text": b'{"r": "3"}',
        "negative": b'{"r": -3}',
        "true": b'{"r": true}',
        "deep": b"[" * 100_000,
        "another version": image.replace(b"vault-1", b"vault-2"),
        "forged: unknown fields": forged(unknown),
        "forged: text": forged(b'{"sequence": "1", "rounds": {}, "released": {}}\n'),
        "forged: negative": forged(b'{"sequence": 1, "rounds": {}, "released": {"rho": -1}}\n'),
        "forged: a fraction": forged(b'{"sequence": 1, "rounds": {"r": 0.5}, "released": {}}\n'),
        "forged: no object": forged(b"[]\n"),
        "forged: deep": forged(b"[" * 100_000),
    }


def forged(body: bytes) -> bytes:
    return f"fedmuster-client-vault-1 {sha256(body).hexdigest()}\n".encode() + body


IMAGE = VaultContents(sequence=3, rounds={"r": 4}, released={"epsilon": 1_500_000_000}).to_bytes()


@pytest.mark.parametrize("damage", _damaged(IMAGE))
def test_a_damaged_file_releases_nothing_and_stays_as_it_is(damage: str, tmp_path: Path) -> None:
    file, damaged = tmp_path / "releases.json", _damaged(IMAGE)[damage]
    file.write_bytes(damaged)
    reply = send(restarted(file), HALF, round_=9)
    assert reply.error.code == 6
    assert file.read_bytes() == damaged
    file.write_bytes(IMAGE)  # the newest copy is put back
    received(send(restarted(file), HALF, round_=9))
    assert send(restarted(file), HALF, round_=10).has_error()


def test_a_folder_a_pipe_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "no" / "file", tmp_path / "pipe" / "x"):
        with pytest.raises(StateError):
            ClientVault(RecordDict(), str(path)).change(one_more)
    for relative in ("releases.json", "", "./x"):
        with pytest.raises(StateError):
            ClientVault(RecordDict(), relative)


def test_release_notes_of_the_first_version_are_taken_over(tmp_path: Path) -> None:
    file = tmp_path / "releases.json"
    file.write_text('{"r": 4, "another": 2}')
    assert send(restarted(file), HALF, round_=4).has_error()
    received(send(restarted(file), HALF, round_=5))
    contents = VaultContents.of(file.read_bytes())
    assert contents.rounds == {"another": 2, "r": 5}
    assert contents.released == {"epsilon": 500_000_000}


def test_a_file_that_disappears_or_goes_back_is_noticed_while_the_node_runs(tmp_path: Path) -> None:
    file = tmp_path / "releases.json"
    grid = restarted(file)
    received(send(grid, HALF, round_=1))
    older = file.read_bytes()
    received(send(grid, HALF, round_=2))
    newest = file.read_bytes()
    for restore in (file.unlink, lambda: file.write_bytes(older)):
        restore()
        assert send(grid, HALF, round_=3).error.code == 6
    file.write_bytes(newest)
    received(send(grid, HALF, round_=3))


def test_two_names_of_a_file_have_one_total(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    file, link = tmp_path / "a" / "releases.json", tmp_path / "link.json"
    link.symlink_to(file)
    for path in (link, file, link):
        ClientVault(RecordDict(), str(path)).change(one_more)
    assert link.is_symlink()
    assert VaultContents.of(file.read_bytes()).released == {"epsilon": 21}


def test_an_error_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "releases.json"
    vault = ClientVault(RecordDict(), str(file))
    vault.change(one_more)
    before = file.read_bytes()

    def fails(contents: VaultContents) -> VaultContents:
        raise StateError

    with pytest.raises(StateError):
        vault.change(fails)
    assert file.read_bytes() == before
    vault.change(one_more)  # the lock is free
    assert vault.contents().sequence == 2


def test_a_disk_that_cannot_be_written_releases_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "releases.json"
    grid = restarted(file)
    received(send(grid, HALF))
    before = file.read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        assert send(grid, HALF, round_=2).error.code == 6
    assert file.read_bytes() == before
    received(send(grid, HALF, round_=2))  # the half-written file does no harm


def test_a_lock_that_another_process_holds_is_waited_for_and_then_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_vault, "_PATIENCE_SECONDS", 0.05)
    file = tmp_path / "releases.json"
    vault = ClientVault(RecordDict(), str(file))
    with (tmp_path / "releases.json.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InUseError):
            vault.change(one_more)
        assert send(restarted(file), HALF).error.code == 6
    assert not file.exists()
    vault.change(one_more)


def test_runs_are_forgotten_in_the_order_of_their_last_release() -> None:
    contents = VaultContents()
    for number in range(1_000):
        contents = contents.after(run=str(number), round_=1, currency="rho", units=1)
    contents = contents.after(run="0", round_=2, currency="rho", units=1)
    contents = contents.after(run="new", round_=1, currency="rho", units=1)
    assert len(contents.rounds) == 1_000
    assert "1" not in contents.rounds
    assert contents.rounds["0"] == 2
    assert contents.released == {"rho": 1_002}
    assert VaultContents.of(contents.to_bytes()) == contents


def test_without_a_file_the_context_remembers(tmp_path: Path) -> None:
    state = RecordDict()
    for _ in range(3):
        ClientVault(state, None).change(one_more)
    assert ClientVault(state, None).contents() == VaultContents(
        sequence=3, rounds={"r": 3}, released={"epsilon": 21}
    )
    state.config_records["fedmuster.vault"]["image"] = b"no"
    with pytest.raises(StateError):
        ClientVault(state, None).contents()
