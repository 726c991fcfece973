"""Processes that debit one ledger while they are paused and killed, clocks jump and files move.

Their histories are recorded and judged by a model that knows nothing of the ledger's code.
"""

import copy
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.privacy import debit_worker
from tests.privacy.debit_model import Question, Record, questions_in, records_in, violations

from fedmuster.core.errors import LedgerError
from fedmuster.core.streams import stream
from fedmuster.privacy.ledger import Ledger, verify

WORKERS = 3
SECONDS = 12.0


class Crowd:
    """Worker processes, and what is done to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        (folder / "clock").write_text("0")
        for worker in range(WORKERS):
            (folder / f"history-{worker}.jsonl").touch()
        self.until = time.monotonic() + SECONDS
        self.processes = [self.start(worker) for worker in range(WORKERS)]

    def start(self, worker: int) -> subprocess.Popen[bytes]:
        left = str(max(self.until - time.monotonic(), 0.0))
        script = [sys.executable, debit_worker.__file__, str(self.folder), str(worker), left]
        return subprocess.Popen(script, env={**os.environ})

    def pause(self, worker: int, seconds: float) -> None:
        self.processes[worker].send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.processes[worker].send_signal(signal.SIGCONT)

    def kill(self, worker: int) -> None:
        self.processes[worker].kill()
        self.processes[worker].wait()
        self.processes[worker] = self.start(worker)

    def clock_jumps(self, seconds: int) -> None:
        jumped = self.folder / "clock.new"
        jumped.write_text(str(seconds * 10**9))
        jumped.replace(self.folder / "clock")

    def old_copy_for_a_while(self, seconds: float) -> None:
        """An old copy stands in the ledger's place; then the newest one is put back."""
        backup, away = self.folder / "backup", self.folder / "away"
        if not backup.exists():
            if (self.project / "ledger.sqlite").exists():
                shutil.copytree(self.project, backup)
            return
        self.project.rename(away)
        shutil.copytree(backup, self.project)
        time.sleep(seconds)
        self.project.rename(self.folder / f"stale-{time.monotonic_ns()}")  # somebody may be in it
        away.rename(self.project)

    def end(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            try:
                assert process.wait(timeout=60) == 0
            finally:
                process.kill()

    def history(self) -> dict[tuple[str, int], Question]:
        return {
            key: question
            for worker in range(WORKERS)
            for key, question in questions_in(
                (self.folder / f"history-{worker}.jsonl").read_text().splitlines()
            ).items()
        }


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_what_happens_to_processes_files_and_clocks_loses_and_repeats_no_debit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setenv("FEDMUSTER_STATE", str(tmp_path / "state"))
    crowd, rng = Crowd(tmp_path), stream(seed, "faults")
    done: Counter[str] = Counter()
    try:
        while time.monotonic() < crowd.until:
            worker, fault = int(rng.integers(WORKERS)), str(rng.choice([*"pppkkcco"]))
            done[fault] += 1
            if fault == "p":
                crowd.pause(worker, float(rng.uniform(0.02, 0.4)))
            elif fault == "k":
                crowd.kill(worker)
            elif fault == "c":
                crowd.clock_jumps(int(rng.choice([0, 40, -40, -86_400])))
            else:
                crowd.old_copy_for_a_while(float(rng.uniform(0.02, 0.3)))
            time.sleep(float(rng.uniform(0.05, 0.4)))
    finally:
        crowd.clock_jumps(0)
        crowd.end()
    path = crowd.project / "ledger.sqlite"
    questions, (debits, balances) = crowd.history(), records_in(path)
    assert violations(questions, debits, balances) == []
    assert verify(path).faults == []
    told = Counter(question.told for question in questions.values())
    assert told["ok"] >= 5, (told, done)


def test_after_a_copy_was_debited_the_original_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDMUSTER_STATE", str(tmp_path / "state"))
    original = tmp_path / "a" / "ledger.sqlite"
    original.parent.mkdir()

    def debit(ledger: Ledger, number: int) -> None:
        accounts = ledger.register(["ann"], 10)
        ledger.debit(run="r", round=number, accounts=accounts, units=np.array([6]))

    with Ledger.open(original, currency="epsilon", kind="real") as ledger:
        ledger.register(["ann"], 10)
        shutil.copytree(original.parent, tmp_path / "b")
        with Ledger.open(tmp_path / "b" / "ledger.sqlite", currency="epsilon", kind="real") as two:
            debit(two, 1)
        with pytest.raises(LedgerError):  # 6 of 10 again
            debit(ledger, 2)
    with pytest.raises(LedgerError):
        Ledger.open(original, currency="epsilon", kind="real")


# --- The model finds what it is for -----------------------------------------------------------

QUESTIONS = {
    ("r", 1): Question({1: 3, 2: 3}, asked_at=10, told="ok", told_at=20),
    ("r", 2): Question({1: 3}, asked_at=30, told="ok", told_at=40),
    ("r", 3): Question({2: 3}, asked_at=35),  # its process was killed
    ("r", 4): Question({1: 5}, asked_at=50, told="refused", told_at=60),
}
DEBITS = {
    ("r", 1): [Record(3, 1, 3), Record(4, 2, 3)],
    ("r", 2): [Record(5, 1, 3)],
    ("r", 3): [Record(6, 2, 3)],
}
BALANCES = [(1, 10, 6), (2, 10, 6)]


def test_the_model_accepts_what_may_be() -> None:
    assert violations(QUESTIONS, DEBITS, BALANCES) == []
    without = {key: records for key, records in DEBITS.items() if key != ("r", 3)}
    assert violations(QUESTIONS, without, [(1, 10, 6), (2, 10, 3)]) == []


@pytest.mark.parametrize(
    "broken",
    ["lost", "part", "twice", "phantom", "changed", "cap", "balance", "order", "refused", "paid"],
)
def test_the_model_finds_what_may_not_be(broken: str) -> None:
    questions, debits = copy.deepcopy(QUESTIONS), copy.deepcopy(DEBITS)
    balances = list(BALANCES)
    if broken == "lost":
        del debits["r", 2]
        balances[0] = (1, 10, 3)
    elif broken == "part":
        debits["r", 1].pop()
        balances[1] = (2, 10, 3)
    elif broken == "twice":
        debits["r", 3].append(Record(7, 2, 3))
        balances[1] = (2, 10, 9)
    elif broken == "phantom":
        debits["q", 1] = [Record(7, 1, 1)]
        questions["r", 4].payments[1] = 9
        balances[0] = (1, 10, 7)
    elif broken == "changed":
        debits["r", 2] = [Record(5, 1, 1)]
        balances[0] = (1, 10, 4)
        questions["r", 4].payments[1] = 9
    elif broken == "cap":
        balances[1] = (2, 5, 6)
    elif broken == "balance":
        balances[1] = (2, 10, 5)
    elif broken == "order":
        debits["r", 1], debits["r", 2] = [Record(6, 1, 3), Record(7, 2, 3)], [Record(3, 1, 3)]
    elif broken == "refused":
        questions["r", 4].payments[1] = 4
    elif broken == "paid":
        debits["r", 4] = [Record(7, 1, 4)]
        balances[0] = (1, 10, 10)
    assert violations(questions, debits, balances) != []
