"""An old copy of a ledger is never taken for the newest."""

import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmuster.core.errors import LedgerError
from fedmuster.privacy.ledger import ChainHead, Ledger, LedgerKind, adopt, verify
from fedmuster.privacy.ledger import writer as creating
from fedmuster.privacy.ledger.chain import Info
from fedmuster.privacy.ledger.guards import Anchor, Note, beside, state_folder


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDMUSTER_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project" / "ledger.sqlite"


def open_ledger(path: Path, kind: LedgerKind = "real", **options: Any) -> Ledger:
    return Ledger.open(path, currency="epsilon", kind=kind, **options)


def pay(path: Path, *rounds: int, kind: LedgerKind = "real") -> ChainHead:
    with open_ledger(path, kind) as ledger:
        accounts = ledger.register(["ann", "bob"], 1_000)
        for number in rounds:
            ledger.debit(run="a", round=number, accounts=accounts, units=np.array([1, 2]))
        return ledger.head


def copy(source: Path, target: Path) -> Path:
    """A whole folder, as a backup program does."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


def test_heads_are_noted_after_every_commit(path: Path, state: Path) -> None:
    for rounds in [(1,), (2, 3)]:
        head = pay(path, *rounds)
        (noted,) = state.iterdir()
        for anchor in (beside(path), Anchor(noted)):
            assert anchor.read() == Note(noted.stem, head, path)


def test_a_simulated_ledger_leaves_the_state_folder_alone(path: Path, state: Path) -> None:
    pay(path, 1, kind="simulated")
    assert not state.exists()


def test_a_head_beyond_the_integers_of_sqlite_is_one_of_a_later_ledger(path: Path) -> None:
    head = pay(path, 1)
    with open_ledger(path) as ledger, pytest.raises(LedgerError):
        ledger.require(head._replace(sequence=10**400))


@pytest.mark.parametrize("kind", ["real", "simulated"])
def test_an_old_file_is_refused(path: Path, tmp_path: Path, kind: LedgerKind) -> None:
    pay(path, 1, kind=kind)
    shutil.copy(path, tmp_path / "old")
    pay(path, 2, 3, kind=kind)
    shutil.copy(tmp_path / "old", path)
    with pytest.raises(LedgerError, match="4"):
        open_ledger(path, kind)
    assert any("4 entries are missing" in fault for fault in verify(path).faults)
    with pytest.raises(LedgerError):
        adopt(path)


def test_an_old_folder_of_a_real_ledger_is_refused(path: Path, tmp_path: Path) -> None:
    pay(path, 1)
    old = copy(path.parent, tmp_path / "old")
    pay(path, 2)
    copy(old, path.parent)
    with pytest.raises(LedgerError, match="2"):
        open_ledger(path)
    beside(path).path.unlink()  # nor does it help to remove a witness
    with pytest.raises(LedgerError, match="2"):
        adopt(path)


def test_an_old_ledger_that_was_written_to_is_refused(path: Path, tmp_path: Path) -> None:
    """The same number of entries, another history: the two do not fit together."""
    pay(path, 1)
    old = copy(path.parent, tmp_path / "old")
    pay(path, 2)
    with closing(sqlite3.connect(old / path.name)) as database:
        last = database.execute("SELECT max(sequence) FROM entries").fetchone()[0]
    elsewhere = tmp_path / "elsewhere"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMUSTER_STATE", str(elsewhere))
        adopt(old / path.name)
        head = pay(old / path.name, 2)
    assert head.sequence > last
    copy(old, path.parent)
    with pytest.raises(LedgerError):
        open_ledger(path)


def test_a_copy_that_went_on_makes_the_original_old(path: Path, tmp_path: Path) -> None:
    pay(path, 1)
    twin = copy(path.parent, tmp_path / "twin") / path.name
    pay(twin, 2)
    with pytest.raises(LedgerError, match="2"):
        open_ledger(path)


def test_a_file_that_was_rolled_back_under_us_is_noticed(path: Path, tmp_path: Path) -> None:
    """The bytes of an old copy written into the same file, while a program has it open."""
    pay(path, 1, kind="simulated")
    old = path.read_bytes()
    pay(path, 2, kind="simulated")
    with open_ledger(path, "simulated") as ledger:
        path.write_bytes(old)
        for suffix in ("-wal", "-shm"):
            log = path.with_name(path.name + suffix)
            log.write_bytes(b"\0" * log.stat().st_size)
        with pytest.raises(LedgerError):
            ledger.debit(run="a", round=3, accounts=np.array([1]), units=np.array([1]))


def test_a_ledger_on_another_machine_must_be_adopted(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pay(path, 1)
    monkeypatch.setenv("FEDMUSTER_STATE", str(tmp_path / "other machine"))
    with pytest.raises(LedgerError):
        open_ledger(path)
    assert "is not there" in verify(path).remarks[0]
    assert verify(path).faults == []
    assert "other machine" in adopt(path)
    with open_ledger(path) as ledger:
        ledger.require(before)
        assert ledger.head.sequence == before.sequence + 1
    assert pay(path, 2).sequence == before.sequence + 3
    assert verify(path).faults == []
    with pytest.raises(LedgerError):
        adopt(path)


@pytest.mark.parametrize("kind", ["real", "simulated"])
def test_removing_the_head_beside_it_does_not_go_unnoticed(path: Path, kind: LedgerKind) -> None:
    pay(path, 1, kind=kind)
    beside(path).path.unlink()
    with pytest.raises(LedgerError):
        open_ledger(path, kind)
    adopt(path)
    pay(path, 2, kind=kind)


def test_what_is_damaged_is_not_adopted(path: Path) -> None:
    pay(path, 1, kind="simulated")
    beside(path).path.unlink()
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("UPDATE accounts SET spent_units = 0 WHERE account = 1")
    with pytest.raises(LedgerError, match="1"):
        adopt(path)
    with pytest.raises(LedgerError):
        adopt(path.with_name("nothing"))


@pytest.mark.parametrize("image", [b"", b"x", b"fedmuster-ledger-head-1 a 1 b\n", b"\xff" * 99])
def test_a_damaged_head_is_refused(path: Path, image: bytes) -> None:
    pay(path, 1)
    beside(path).path.write_bytes(image)
    with pytest.raises(LedgerError):
        open_ledger(path)
    assert any("head is damaged" in fault for fault in verify(path).faults)


def test_the_head_of_another_ledger_is_refused(path: Path) -> None:
    pay(path, 1)
    other = path.with_name("other.sqlite")
    pay(other, 1)
    other.replace(path)
    with pytest.raises(LedgerError):
        open_ledger(path)
    assert any("belongs to another ledger" in fault for fault in verify(path).faults)


def test_a_lost_ledger_is_not_made_anew(path: Path, tmp_path: Path) -> None:
    pay(path, 1)
    kept = copy(path.parent, tmp_path / "kept")
    path.unlink()
    with pytest.raises(LedgerError, match=r"ledger\.sqlite\.head.*4"):
        open_ledger(path)
    shutil.rmtree(path.parent)
    with pytest.raises(LedgerError):
        open_ledger(path)  # a disk that is not mounted, perhaps
    path.parent.mkdir()
    with pytest.raises(LedgerError, match="4"):
        open_ledger(path)
    assert list(path.parent.iterdir()) == []
    # It was moved: opened once at its new place, it is not missed at the old one.
    pay(kept / path.name, 2)
    pay(path, 1)


def test_a_log_without_its_ledger_is_no_reason_for_a_new_one(path: Path) -> None:
    path.with_name(f"{path.name}-wal").write_bytes(b"debits")
    with pytest.raises(LedgerError):
        open_ledger(path)


class Killed(BaseException):
    """As if the process had died here."""


@pytest.mark.parametrize("step", ["lay_out", "beside", "state", "rename"])
def test_dying_while_a_ledger_is_made_loses_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def die(*_: object) -> None:
        raise Killed

    write = Anchor.write

    def write_or_die(anchor: Anchor, note: Note) -> None:
        if (anchor.path.parent == state_folder()) == (step == "state"):
            raise Killed
        write(anchor, note)

    with monkeypatch.context() as patch:
        if step == "lay_out":
            patch.setattr(creating, "lay_out", die)
        elif step == "rename":
            patch.setattr(Path, "rename", die)
        else:
            patch.setattr(Anchor, "write", write_or_die)
        with pytest.raises(Killed):
            open_ledger(path)
    assert not path.exists()
    pay(path, 1)
    assert verify(path).faults == []


def test_an_anchor_never_goes_back(tmp_path: Path) -> None:
    anchor = Anchor(tmp_path / "x.head")
    info = Info("id", "epsilon", "real", 0)
    heads = [ChainHead(number, info.digest().hex()) for number in (5, 4, 5, 99, 6)]
    anchor.write(Note("id", ChainHead(0, "0" * 64), tmp_path))
    for head, expected in zip(heads, [5, 5, 5, 99, 99], strict=True):
        anchor.advance(head)
        note = anchor.read()
        assert note is not None
        assert note.head.sequence == expected


def test_an_anchor_that_lags_behind_catches_up(path: Path) -> None:
    """A crash after the commit: the debit is on record, its head is not noted."""
    pay(path, 1)
    old = beside(path).read()
    assert old is not None
    head = pay(path, 2)
    beside(path).write(old)
    assert verify(path).faults == []
    with open_ledger(path) as ledger:
        assert ledger.head == head
    note = beside(path).read()
    assert note is not None
    assert note.head == head


def test_where_the_state_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDMUSTER_STATE", "/a")
    assert state_folder() == Path("/a")
    monkeypatch.delenv("FEDMUSTER_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", "/b")
    assert state_folder() == Path("/b/fedmuster")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_folder() == tmp_path / ".local/state/fedmuster"


def test_a_ledger_by_another_name_is_the_same(path: Path, tmp_path: Path) -> None:
    pay(path, 1)
    (tmp_path / "link").symlink_to(path)
    pay(tmp_path / "link", 2)
    assert not (tmp_path / "link.head").exists()
    path.with_name("hard").hardlink_to(path)
    with pytest.raises(LedgerError, match="has 2 names"):
        open_ledger(path)


def test_what_a_process_left_that_died_while_making_a_ledger_is_cleared_away(
    tmp_path: Path,
) -> None:
    left = tmp_path / ".ledger.sqlite.0123.new"
    left.write_bytes(b"half a ledger")
    with Ledger.open(tmp_path / "ledger.sqlite", currency="epsilon", kind="simulated"):
        assert not left.exists()


def test_of_two_copies_that_debit_at_the_same_time_one_is_told_at_once(path: Path) -> None:
    """The other copy pays between the checks and the commit of this one."""
    with open_ledger(path) as ledger:
        accounts = ledger.register(["ann"], 100)
    twin = copy(path.parent, path.parent.parent / "twin") / path.name
    everything = np.array([100])
    now = False

    with open_ledger(path) as first:

        def clock() -> int:
            nonlocal now
            if now:
                now = False
                first.debit(run="a", round=1, accounts=accounts, units=everything)
            return time.time_ns()

        with open_ledger(twin, clock=clock) as second:
            now = True
            with pytest.raises(LedgerError):
                second.debit(run="b", round=1, accounts=accounts, units=everything)


def test_opening_verifies_everything_unless_told_otherwise(path: Path) -> None:
    pay(path, 1)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE accounts SET spent_units = 0")
    with pytest.raises(LedgerError, match="tampered"):
        open_ledger(path)
    open_ledger(path, thorough=False).close()


def test_a_visitor_who_verifies_leaves_no_files(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the owner could not write to the log that the visitor made."""
    pay(path, 1)
    before = sorted(path.parent.iterdir())
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    assert verify(path).num_faults == 0
    assert sorted(path.parent.iterdir()) == before
