"""Full disks, read-only files, cut-off files, wrong clocks: refused before anything is debited."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmuster.core.errors import LedgerError
from fedmuster.privacy.ledger import ChainHead, Ledger, accept_clock, adopt, verify
from fedmuster.privacy.ledger.guards import Anchor

CLIENTS = [f"client-{k}" for k in range(50)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def open_ledger(path: Path, **options: Any) -> Ledger:
    return Ledger.open(path, currency="epsilon", kind="simulated", **options)


def pay(path: Path, *rounds: int, **options: Any) -> ChainHead:
    with open_ledger(path, **options) as ledger:
        accounts = ledger.register(CLIENTS, 1_000)
        for number in rounds:
            debit(ledger, number)
        assert len(accounts) == 50
        return ledger.head


def debit(ledger: Ledger, number: int) -> None:
    ledger.debit(run="a", round=number, accounts=np.arange(1, 51), units=np.full(50, 1))


def crash_copy(path: Path, target: Path) -> Path:
    """The files as they are now, with the log: what a power cut would leave."""
    target.mkdir()
    for file in path.parent.iterdir():
        if file.is_file() and not file.name.endswith("-shm"):
            shutil.copy(file, target / file.name)
    return target / path.name


def child(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    script = f"""
import os, resource, sys
from pathlib import Path
import numpy as np
from fedmuster.core.errors import LedgerError
from fedmuster.privacy.ledger import Ledger
path = Path(sys.argv[1])
def open_ledger(**options):
    return Ledger.open(path, currency="epsilon", kind="simulated", **options)
def debit(ledger, number):
    ledger.debit(run="a", round=number, accounts=np.arange(1, 51), units=np.full(50, 1))
{code}"""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_full_disk_debits_nothing(path: Path) -> None:
    """No file may grow beyond what the log has now, as on a disk without space."""
    pay(path)
    done = child(
        """
with open_ledger() as ledger:
    debit(ledger, 1)
    size = os.stat(f"{path}-wal").st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5000, resource.RLIM_INFINITY))
    for number in range(2, 100):
        before = ledger.head
        try:
            debit(ledger, number)
        except LedgerError as error:
            print(number, error)
            break
    assert ledger.head == before
    assert ledger.balances(np.array([7])).debits == number - 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    debit(ledger, number)  # there is space again
""",
        path,
    )
    assert done.returncode == 0, done.stderr
    number, _, message = done.stdout.partition(" ")
    assert "reading or writing failed: a full disk, or a broken one" in message
    found = verify(path)
    assert (found.faults, found.debits) == ([], 50 * int(number))


def test_a_full_database_debits_nothing(path: Path) -> None:
    pay(path, 1)
    with open_ledger(path) as ledger:
        database = ledger._writer.database
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {pages + 2}")
        head = ledger.head
        with pytest.raises(LedgerError):
            ledger.register([f"more-{k}" for k in range(500)], 1_000)
        assert ledger.head == head
    assert verify(path).faults == []
    assert pay(path).sequence == head.sequence


def test_a_head_that_cannot_be_noted_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pay(path, 1)
    with open_ledger(path) as ledger:
        with monkeypatch.context() as patch:

            def full(*_: object) -> None:
                raise LedgerError("No space left on device")

            patch.setattr(Anchor, "advance", full)
            with pytest.raises(LedgerError):
                debit(ledger, 2)
        again = ledger.debit(run="a", round=2, accounts=np.array([7]), units=np.array([1]))
        assert not again.fresh.any()
    assert verify(path).faults == []


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Where an unprivileged user may look: root may write to read-only files, too."""
    folder = Path(tempfile.mkdtemp(prefix="ledger-"))
    folder.chmod(0o755)
    yield folder
    for each in (folder, *folder.iterdir()):
        each.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("what", ["file", "folder", "head"])
def test_a_read_only_ledger_is_refused(public_folder: Path, what: str) -> None:
    path = public_folder / "ledger.sqlite"
    pay(path, 1)
    for file in public_folder.iterdir():
        file.chmod(0o666)
    public_folder.chmod(0o777)
    {
        "file": lambda: path.chmod(0o444),
        "folder": lambda: public_folder.chmod(0o555),
        "head": lambda: path.with_name(f"{path.name}.head").chmod(0o444),
    }[what]()
    done = child(
        """
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    with open_ledger() as ledger:
        debit(ledger, 2)
except LedgerError as error:
    print(error)
from fedmuster.privacy.ledger import verify
found = verify(path)
print(found.faults, found.debits)
""",
        path,
    )
    assert done.returncode == 0, done.stderr
    message, verdict = done.stdout.splitlines()
    assert str(path) in message
    assert any(reason in message for reason in ("read-only", "cannot be opened", "denied"))
    assert "on record" not in message  # it was noticed before
    assert verdict == "[] 50"  # and yet an auditor can read it


@pytest.mark.parametrize("share", [0.0, 0.01, 0.2, 0.5, 0.9, 0.99])
def test_a_cut_off_file_is_refused(path: Path, share: float) -> None:
    pay(path, 1, 2)
    size = path.stat().st_size
    os.truncate(path, int(size * share))
    with pytest.raises(LedgerError, match=r"is empty|is damaged"):
        open_ledger(path)
    assert verify(path).faults
    assert path.stat().st_size == int(size * share)  # nothing was made anew


@pytest.mark.parametrize("cut", ["deleted", "emptied", "halved", "garbled"])
def test_a_lost_log_is_noticed(path: Path, tmp_path: Path, cut: str) -> None:
    pay(path, 1)
    with open_ledger(path) as ledger:
        for number in (2, 3, 4):
            debit(ledger, number)
        left = crash_copy(path, tmp_path / "crashed")
    log = left.with_name(f"{left.name}-wal")
    assert verify(left).faults == []  # nothing is lost by a crash as such
    for suffix in ("-shm",):
        left.with_name(left.name + suffix).unlink(missing_ok=True)
    size = log.stat().st_size
    if cut == "deleted":
        log.unlink()
    elif cut == "garbled":
        image = bytearray(log.read_bytes())
        image[size // 2] ^= 1
        log.write_bytes(image)
    else:
        os.truncate(log, size // 2 if cut == "halved" else 0)
    with pytest.raises(LedgerError, match=r"old backup: \d+ entries are missing"):
        open_ledger(left)
    assert any("entries are missing" in fault for fault in verify(left).faults)


def test_a_copy_of_the_file_without_its_log_is_refused(path: Path, tmp_path: Path) -> None:
    """What cp makes of a ledger that is in use."""
    pay(path, 1)
    with open_ledger(path) as ledger:
        debit(ledger, 2)
        for name in (path.name, f"{path.name}.head"):
            shutil.copy(path.parent / name, tmp_path / f"copy-{name}")
    with pytest.raises(LedgerError, match="50"):
        open_ledger(tmp_path / f"copy-{path.name}")


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (b"", "is empty"),
        (b"no database at all" * 100, "is damaged or no SQLite file"),
        (b"SQLite format 3\0" + bytes(2000), "is damaged or no SQLite file"),
    ],
)
def test_other_files_are_left_alone(path: Path, image: bytes, message: str) -> None:
    path.write_bytes(image)
    with pytest.raises(LedgerError, match=message):
        open_ledger(path)
    assert message in verify(path).faults[0]
    assert path.read_bytes() == image


def test_other_databases_and_formats_are_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE holiday (day TEXT)")
    image = path.read_bytes()
    with pytest.raises(LedgerError, match="SQLite"):
        open_ledger(path)
    assert path.read_bytes() == image
    path.unlink()
    pay(path, 1)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 7")
    with pytest.raises(LedgerError, match="7"):
        open_ledger(path)
    folder = path.with_name("folder")
    folder.mkdir()
    with pytest.raises(LedgerError):
        open_ledger(folder)


def test_strange_triggers_are_refused(path: Path) -> None:
    pay(path, 1)
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE TRIGGER gift AFTER INSERT ON entries "
            "BEGIN UPDATE accounts SET spent_units = 0; END"
        )
    with pytest.raises(LedgerError):
        open_ledger(path)


@pytest.mark.parametrize("what", ["", "-wal"])
@pytest.mark.parametrize("how", ["replaced", "deleted"])
def test_files_replaced_while_open_are_noticed(path: Path, what: str, how: str) -> None:
    pay(path, 1)
    with open_ledger(path) as ledger:
        debit(ledger, 2)
        file = path.with_name(path.name + what)
        if how == "replaced":
            shutil.copy(file, file.with_name("new"))
            file.with_name("new").replace(file)
        else:
            file.unlink()
        head = ledger.head
        with pytest.raises(LedgerError):
            debit(ledger, 3)
        assert ledger.head == head  # not even into the lost file


class SettableClock:
    """Nanoseconds since 1970, as somebody has set it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self) -> int:
        return int(self.seconds * 1e9)


def times(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT time_us FROM entries ORDER BY sequence").fetchall()
    return [time for (time,) in rows]


def test_a_small_step_back_is_smoothed(path: Path) -> None:
    clock = SettableClock(1_800_000_000)
    with open_ledger(path, clock=clock) as ledger:
        ledger.register(CLIENTS, 1_000)
        for number, step in enumerate((10, -59, 1, 70), start=1):
            clock.seconds += step
            debit(ledger, number)
    seconds = [time / 1e6 - 1_800_000_000 for time in times(path)]
    assert seconds == [0] + [10] * 151 + [22] * 50
    assert verify(path).faults == []


def test_a_clock_that_went_back_is_refused_until_accepted(path: Path) -> None:
    clock = SettableClock(1_900_000_000)  # wrong: years ahead
    head = pay(path, 1, clock=clock)
    clock.seconds = 1_800_000_000
    message = r"the clock says 2027-01-15 08:00:00 UTC, .* of 2030-03-17 17:46:40 UTC"
    with pytest.raises(LedgerError, match=message):
        open_ledger(path, clock=clock)
    assert "back from 2030" in accept_clock(path, clock=clock)
    assert pay(path, 2, clock=clock).sequence == head.sequence + 51
    assert verify(path).faults == []
    assert times(path)[-1] == 1_800_000_000_000_000
    with pytest.raises(LedgerError):
        accept_clock(path, clock=clock)


def test_a_clock_that_goes_back_during_a_run_is_noticed(path: Path) -> None:
    clock = SettableClock(1_800_000_000)
    with open_ledger(path, clock=clock) as ledger:
        ledger.register(CLIENTS, 1_000)
        debit(ledger, 1)
        clock.seconds -= 61
        head = ledger.head
        with pytest.raises(LedgerError, match="accept-clock"):
            debit(ledger, 2)
        assert ledger.head == head


def test_the_clock_of_the_system_is_asked(path: Path) -> None:
    """A process with the real clock, which seems to have gone back: the entry is of 2096."""
    ahead = 1_000_000_000_000_000_000 * 4  # nanoseconds: the year 2096
    pay(path, 1, clock=lambda: ahead)
    done = child("try:\n open_ledger()\nexcept LedgerError as error:\n print(error)", path)
    assert done.returncode == 0, done.stderr
    assert "the clock says 20" in done.stdout
    assert "2096-10-02 07:06:40 UTC" in done.stdout


def test_a_clock_event_and_an_adoption_wait_for_writers(path: Path) -> None:
    pay(path, 1)
    with open_ledger(path):
        with pytest.raises(LedgerError):
            accept_clock(path)
        with pytest.raises(LedgerError):
            adopt(path)
