"""``fedmuster ledger`` as people use it."""

import csv
import io
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing, redirect_stderr, redirect_stdout
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fedmuster import Random
from fedmuster.cli import main
from fedmuster.experiments.run import execute, prepare
from fedmuster.experiments.spec import LEDGER_NAME, Experiment
from fedmuster.privacy.budget import Privacy
from fedmuster.privacy.ledger import Ledger
from fedmuster.worlds import PauseGroups


class Result(NamedTuple):
    returncode: object
    stdout: str
    stderr: str


def fedmuster(*arguments: object) -> Result:
    """``fedmuster ledger …`` in this process: starting one takes longer than all it does."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["fedmuster", "ledger", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
    return Result(stop.value.code, out.getvalue(), err.getvalue())


def succeed(*arguments: object) -> str:
    done = fedmuster(*arguments)
    assert done.returncode == 0, done
    return done.stdout


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A real ledger: ann has spent all she has, bob a quarter, eve nothing."""
    monkeypatch.setenv("FEDMUSTER_STATE", str(tmp_path / "state"))
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(path, currency="epsilon", kind="real") as ledger:
        accounts = ledger.register(["ann", "bob", "eve"], 2 * 10**9)
        ledger.debit(run="a", round=1, accounts=accounts[:2], units=np.array([15, 5]) * 10**8)
        ledger.debit(run="b", round=7, accounts=accounts[:1], units=np.array([5 * 10**8]))
    return path


def test_show(path: Path) -> None:
    out = succeed("show", path)
    for text in (
        "a ledger of real budgets in epsilon",
        "3 clients, 3 debits by 2 runs",
        "head: entry 6, 20",
        "100 % or more",
    ):
        assert text in out
    lines = {line.split("│")[1].strip(): line for line in out.splitlines() if "│" in line}
    assert lines["ann"].split("│")[2:6] == ["     2 ", "   2 ", " 100.0% ", "      2 "]
    assert "25.0%" in lines["bob"]
    table = json.loads(succeed("show", path, "--json"))
    assert table["clients_at_least_percent"] == {"50": 1, "90": 1, "99": 1, "100": 1}
    assert table["head"]["sequence"] == 6
    assert table["top"][1]["spent_units"] == 5 * 10**8


def test_show_a_client(path: Path) -> None:
    out = succeed("show", path, "--client", "ann")
    assert "ann (account 1): spent 2 of 2 epsilon in 2 debits" in out
    assert "│   b │     7 │     0.5 │      2 │" in out
    table = json.loads(succeed("show", path, "--client", "ann", "--json"))
    assert [debit["units"] for debit in table["debits"]] == [15 * 10**8, 5 * 10**8]
    out = succeed("show", path, "--client", "ann", "--delta", "1e-6")
    assert "ε = 2 of the update at δ = 1e-06, composed by rdp" in out  # two debits: nothing to gain
    assert "0.499998" in succeed("show", path, "--delta", "1e-6")
    done = fedmuster("show", path, "--client", "mallory")
    assert done.returncode == 2
    assert "has no client 'mallory'" in done.stderr


def test_verify_and_audit(path: Path) -> None:
    for command in ("verify", "audit"):
        out = succeed(command, path)
        assert "good. 3 clients, 3 debits" in out
        assert "head: entry 6" in out
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("UPDATE accounts SET spent_units = 0 WHERE identity = 'ann'")
    for command in ("verify", "audit"):
        done = fedmuster(command, path)
        assert done.returncode == 1
        assert "FAULT: account 1 (ann): the balance says 0 units spent" in done.stdout
        assert "1 fault" in done.stdout


@pytest.mark.parametrize("command", ["verify", "show", "audit", "adopt"])
def test_a_path_without_a_ledger(path: Path, command: str) -> None:
    """The error names the ledgers near it, or says which runs have one."""
    for wrong in (path.with_name("nothing"), path.parent / "run" / "x" / "y.sqlite", path.parent):
        done = fedmuster(command, wrong)
        assert done.returncode == 2
        assert str(path) in done.stderr.replace("\n", "")
    (path.parent / "run").mkdir()
    done = fedmuster(command, path.parent / "run" / "ledger.sqlite")
    assert done.returncode == 2
    assert "[privacy]" in done.stderr


def test_a_real_process(path: Path) -> None:
    command = [sys.executable, "-m", "fedmuster", "ledger", "verify", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "good. 3 clients" in done.stdout
    path.write_bytes(b"")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "")
    assert "is empty" in done.stdout


def test_audit_with_a_run(path: Path) -> None:
    run = path.with_name("run")
    run.mkdir()
    with closing(sqlite3.connect(run / "journal.sqlite")) as journal, journal:
        journal.execute("CREATE TABLE identity (run TEXT)")
        journal.execute("CREATE TABLE rounds (round INTEGER, clients BLOB)")
        journal.execute("CREATE TABLE checkpoint (budget BLOB)")
        journal.execute("INSERT INTO identity VALUES ('a')")
        journal.execute("INSERT INTO rounds VALUES (1, ?)", (np.array([4], "<i4").tobytes(),))
    done = fedmuster("audit", path, "--journal", run)
    assert done.returncode == 1
    assert "(run a), round 1: asked without a debit: client-4" in done.stdout


def test_a_damaged_ledger_is_told_plainly(path: Path) -> None:
    os.truncate(path, 5000)
    done = fedmuster("verify", path)
    assert done.returncode == 1
    assert "is damaged" in done.stdout
    for command in (["show", path], ["export", path, "--out", path.with_name("x.csv")]):
        done = fedmuster(*command)
        assert done.returncode == 2
        assert "is damaged" in done.stderr


def rechain(info: dict[str, object], entries: list[dict[str, object]]) -> str:
    """The head, from what was exported alone."""
    digest = sha256("\t".join(["fedmuster-ledger-1", *map(str, info.values())]).encode())
    for entry in entries:
        line = "\t".join(str(value) for value in list(entry.values())[:9])
        digest = sha256(digest.digest() + line.encode())
        assert digest.hexdigest() == entry["digest"]
    return digest.hexdigest()


def test_export(path: Path) -> None:
    head = json.loads(succeed("show", path, "--json"))["head"]["digest"]
    assert "wrote 6 entries" in succeed("export", path, "--out", path.with_name("x.json"))
    whole = json.loads(path.with_name("x.json").read_text())
    assert rechain(whole["ledger"], whole["entries"]) == head
    assert [account["identity"] for account in whole["accounts"]] == ["ann", "bob", "eve"]
    succeed("export", path, "--out", path.with_name("x.csv"))
    with path.with_name("x.csv").open(newline="") as file:
        rows: list[dict[str, object]] = list(csv.DictReader(file))
    assert rechain(whole["ledger"], rows) == head
    assert (rows[-1]["run_id"], rows[-1]["identity"]) == ("b", "ann")
    succeed("export", path, "--out", path.with_name("x.parquet"))
    from pyarrow import parquet

    table = parquet.read_table(path.with_name("x.parquet"))
    assert rechain(whole["ledger"], table.to_pylist()) == head
    assert json.loads(table.schema.metadata[b"fedmuster.ledger"]) == whole["ledger"]
    done = fedmuster("export", path, "--out", path.with_name("x.xls"))
    assert done.returncode == 2
    assert "expected a name in .csv, .json, .parquet" in done.stderr


def test_adopt(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDMUSTER_STATE", str(tmp_path / "other machine"))
    out = succeed("adopt", path)
    assert "adopted: " in out
    assert "Other copies must never be written to again" in out
    assert "the ledger was adopted by" in succeed("audit", path)
    done = fedmuster("adopt", path)
    assert done.returncode == 2
    assert "nothing to adopt" in done.stderr


def test_accept_clock(path: Path) -> None:
    done = fedmuster("accept-clock", path)
    assert done.returncode == 2
    assert "nothing to accept" in done.stderr
    with Ledger.open(path, currency="epsilon", kind="real", clock=lambda: 4 * 10**18) as ledger:
        ledger.register(["zoe"], 7)
    assert "back from 2096-10-02" in succeed("accept-clock", path)
    assert "accepted an earlier clock" in succeed("audit", path)


def test_audit_of_a_real_run(tmp_path: Path) -> None:
    experiment = Experiment(
        policies={"random": Random()}, world=PauseGroups(), rounds=4, privacy=Privacy(epsilon=40.0)
    )
    prepare(tmp_path, experiment)
    execute(tmp_path)
    ledger = tmp_path / LEDGER_NAME
    out = succeed("audit", ledger, "--journal", tmp_path)
    assert "good. 30 clients, 20 debits" in out
    assert "remark" not in out
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as journal, journal:
        everybody = np.arange(30, dtype="<i4").tobytes()
        journal.execute("UPDATE rounds SET clients = ? WHERE round = 2", (everybody,))
    done = fedmuster("audit", ledger, "--journal", tmp_path)
    assert done.returncode == 1
    assert "round 2: asked without a debit: client-" in done.stdout
    assert "and 20 more" in done.stdout
