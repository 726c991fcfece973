"""Many processes on one ledger, and processes that die."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmuster.core.errors import LedgerError
from fedmuster.privacy.ledger import Ledger, verify
from fedmuster.privacy.ledger.guards import beside

CLIENTS = [f"client-{k}" for k in range(40)]
CAP = 300

WORKER = """
import sys
from pathlib import Path
import numpy as np
from fedmuster.core.errors import BudgetError
from fedmuster.privacy.ledger import Ledger
path, run, first, rounds, cap = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
rng = np.random.default_rng(first)
with Ledger.open(path, currency="epsilon", kind="simulated") as ledger:
    accounts = ledger.register([f"client-{k}" for k in range(40)], cap)
    for number in range(first, first + rounds):
        cohort = np.sort(rng.choice(accounts, 10, replace=False))
        units = rng.integers(1, 40, 10)
        print("wants", number, flush=True)
        try:
            debit = ledger.debit(run=run, round=number, accounts=cohort, units=units)
        except BudgetError:
            continue
        pairs = zip(cohort.tolist(), debit.units.tolist())
        print("debited", number, *(f"{account}:{units}" for account, units in pairs), flush=True)
"""


KILLER = """
import os, random, signal, sys, time
from pathlib import Path
import numpy as np
from fedmuster.privacy.ledger import Ledger, verify
path, rng = Path(sys.argv[1]), random.Random(5)

def open_ledger():
    return Ledger.open(path, currency="epsilon", kind="simulated")

def work(first, news):
    with open_ledger() as ledger:
        for number in range(first, first + 10_000):
            cohort = np.arange(1, 41)[number % 3 :: 3]
            os.write(news, b"wants %d\\n" % number)
            ledger.debit(run="a", round=number, accounts=cohort, units=np.full(len(cohort), number))
            os.write(news, b"debited %d\\n" % number)

with open_ledger() as ledger:
    ledger.register([f"client-{k}" for k in range(40)], 10**9)
told, first, cut_short = set(), 1, 0
for kill in range(30):
    ears, news = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.close(ears)
        work(first, news)
    os.close(news)
    heard, patience = b"", rng.randrange(1, 8)
    while heard.count(b"\\n") < patience:
        heard += os.read(ears, 10_000)
    time.sleep(rng.random() * 0.01)
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    while more := os.read(ears, 100_000):
        heard += more
    os.close(ears)
    lines = [line.split() for line in heard.decode().splitlines()]
    told |= {int(number) for word, number in lines if word == "debited"}
    cut_short += lines[-1][0] == "wants"
    found = verify(path)
    assert found.faults == [], found.faults
    with open_ledger() as ledger:
        accounts, units = ledger.debits_of("a", after_round=0)
    recorded = dict(zip(*np.unique(units, return_counts=True)))
    assert told <= recorded.keys()
    for number, count in recorded.items():  # whole cohorts, each once
        assert count == len(range(number % 3, 40, 3)), number
    assert found.debits == len(accounts)
    assert sorted(recorded) == list(range(1, len(recorded) + 1))
    first = len(recorded) or 1
print(len(told), cut_short)
"""


def start(path: Path, run: str, first: int, rounds: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WORKER, str(path), run, *map(str, (first, rounds, CAP))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def open_ledger(path: Path, **options: Any) -> Ledger:
    return Ledger.open(path, currency="epsilon", kind="simulated", **options)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def told(out: str) -> dict[tuple[int, int], int]:
    """(round, account): units, of all that a worker was told is on record."""
    record = {}
    for line in out.splitlines():
        if re.fullmatch(r"debited \d+( \d+:\d+){10}", line):
            _, number, *pairs = line.split()
            for pair in pairs:
                account, units = map(int, pair.split(":"))
                record[int(number), account] = units
    return record


def on_record(path: Path, run: str) -> dict[tuple[int, int], int]:
    with open_ledger(path) as ledger:
        rows = ledger._writer.database.execute(
            "SELECT round, account, units FROM entries WHERE kind = 'debit' AND run = "
            "(SELECT sequence FROM entries WHERE kind = 'run' AND text = ?)",
            (run,),
        ).fetchall()
    return {(number, account): units for number, account, units in rows}


def test_processes_debit_at_once(path: Path) -> None:
    """They make the ledger together, too: nobody waited for it to be there."""
    workers = {run: start(path, run, 1000 * place, 40) for place, run in enumerate("abc", 1)}
    record = {}
    for run, worker in workers.items():
        out, errors = worker.communicate(timeout=120)
        assert worker.returncode == 0, errors
        record[run] = told(out)
    total: dict[int, int] = {}
    for run, debits in record.items():
        assert debits == on_record(path, run)  # none lost, none that was not told
        for (_, account), units in debits.items():
            total[account] = total.get(account, 0) + units
    found = verify(path)
    assert found.faults == []
    assert found.debits == sum(map(len, record.values()))
    assert max(total.values()) <= CAP
    assert max(total.values()) > CAP - 40  # they did reach it: refusals were part of the game
    with open_ledger(path) as ledger:
        note = beside(path).read()
        assert note is not None
        assert note.head == ledger.head


def test_processes_that_are_killed_lose_no_debit(path: Path) -> None:
    """30 kills at random moments of debits; each restart plays the last round again."""
    done = subprocess.run(
        [sys.executable, "-c", KILLER, str(path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    told_rounds, cut_short = map(int, done.stdout.split())
    assert told_rounds > 10
    assert cut_short > 0  # some were killed between the wish and the news
    assert verify(path).faults == []


def test_one_run_alone(path: Path) -> None:
    with open_ledger(path, exclusive_for="run-7") as ledger:
        ledger.register(CLIENTS, CAP)
        held_by = rf"is in use by run 'run-7' \(process {os.getpid()} on "
        with pytest.raises(LedgerError, match=held_by):
            open_ledger(path, exclusive_for="run-8")
        with pytest.raises(LedgerError, match=held_by):
            open_ledger(path)
        worker = start(path, "a", 1, 1)
        _, errors = worker.communicate(timeout=60)
        assert worker.returncode == 1
        assert "LedgerError" in errors
        assert "is in use by run 'run-7'" in errors
        assert verify(path).faults == []  # but anybody may read
        assert ledger.head.sequence == 1
    with open_ledger(path, exclusive_for="run-8"):
        pass


def test_sharing_keeps_a_lonely_run_out(path: Path) -> None:
    with open_ledger(path, exclusive_for="gone"):
        pass
    alone = pytest.raises(LedgerError)
    with open_ledger(path), open_ledger(path), alone:
        open_ledger(path, exclusive_for="run-8")


def test_the_lock_dies_with_its_process(path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from fedmuster.privacy.ledger import Ledger
ledger = Ledger.open(Path(sys.argv[1]), currency="epsilon", kind="simulated", exclusive_for="a")
print("mine", flush=True)
time.sleep(60)
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "mine\n"
    with pytest.raises(LedgerError, match=rf"run 'a' \(process {holder.pid} on"):
        open_ledger(path, exclusive_for="b")
    holder.kill()
    holder.communicate()
    open_ledger(path, exclusive_for="b").close()


def test_a_forked_worker_neither_debits_nor_keeps_the_lock(path: Path) -> None:
    """A worker that outlives its killed parent must not keep the run from being resumed."""
    code = """
import os, sys, time
from pathlib import Path
import numpy as np
from fedmuster.core.errors import LedgerError
from fedmuster.privacy.ledger import Ledger
ledger = Ledger.open(Path(sys.argv[1]), currency="epsilon", kind="simulated", exclusive_for="a")
accounts = ledger.register(["ann"], 100)
if os.fork() == 0:
    try:
        ledger.debit(run="a", round=1, accounts=accounts, units=np.array([1]))
    except LedgerError as error:
        print(os.getpid(), error, flush=True)
    time.sleep(60)
    os._exit(0)
time.sleep(60)
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    worker, _, message = parent.stdout.readline().partition(" ")
    try:
        assert "was opened by another process" in message
        with pytest.raises(LedgerError, match="'a'"):
            open_ledger(path, exclusive_for="b")
        parent.kill()
        parent.wait()
        with open_ledger(path, exclusive_for="b") as ledger:
            assert ledger.balances(np.array([1])).debits.tolist() == [0]
    finally:
        os.kill(int(worker), signal.SIGKILL)
        parent.stdout.close()
