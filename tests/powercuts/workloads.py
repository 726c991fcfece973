"""What is interrupted: each workload writes files and says what it has promised meanwhile.

``python -m tests.powercuts.workloads NAME ROOT`` runs one. ``check`` looks at what is left of it.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import numpy as np
from tests.powercuts.recording import SAID

from fedmuster import BSFL, Problem, Selector
from fedmuster.core.records import Feedback
from fedmuster.experiments import run as runs
from fedmuster.experiments.journal import FILE_NAME, JournalReader, standing
from fedmuster.experiments.run import SPEC_NAME, execute, prepare
from fedmuster.experiments.spec import LEDGER_NAME, Experiment
from fedmuster.experiments.verification import verify_runs
from fedmuster.privacy.ledger import Ledger, verify
from fedmuster.privacy.ledger.guards import STATE_FOLDER_VARIABLE

_SPEC: dict[str, Any] = {
    "rounds": 7,
    "world": {"name": "bsfl-rates", "num_clients": 9, "cohort_size": 3},
    "training": {"model": {"name": "logistic"}, "data": {"name": "digits", "train_limit": 60}},
    "policy": "bsfl",
}
_PRIVATE: Final = {**_SPEC, "privacy": {"epsilon": 40.0, "noise": "seeded"}}
_DEBITS: Final = 12


def say(root: Path, text: str) -> None:
    """Promise something."""
    handle = os.open(root / SAID, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(handle, f"{text}\n".encode())
    os.close(handle)


# A run, with or without a ledger


def _play(root: Path, table: dict[str, Any]) -> None:
    debit: Callable[..., Any] = Ledger.debit

    def saying(self: Ledger, **arguments: Any) -> Any:
        paid = debit(self, **arguments)
        say(root, f"debited {len(arguments['accounts'])}")
        return paid

    prepare(root / "run", Experiment.from_table(table))
    say(root, "prepared")
    each_round = patch.object(runs, "_COMMIT_SECONDS", 0.0)
    with each_round, patch.object(Ledger, "debit", saying):
        execute(root / "run")


def _check_run(root: Path, promises: list[str], *, thoroughly: bool) -> None:
    folder = root / "run"
    if "prepared" not in promises:
        return
    assert (folder / SPEC_NAME).exists(), "the spec is gone"
    _check_debits(folder / LEDGER_NAME, promises)
    if (folder / FILE_NAME).exists():
        (found,) = verify_runs(folder)
        assert found.faults == [], found.faults
        if standing(folder).rounds:
            JournalReader(folder)
    if thoroughly:
        execute(folder)
        assert JournalReader(folder).digest() == _DIGESTS[(folder / LEDGER_NAME).exists()]


def _check_debits(ledger: Path, promises: list[str]) -> None:
    paid = sum(int(text.split()[1]) for text in promises if text.startswith("debited"))
    if paid == 0 and not ledger.exists():
        return
    found = verify(ledger)
    assert found.faults == [], found.faults
    assert found.debits >= paid, f"{paid - found.debits} debits are lost"


_DIGESTS: dict[bool, str] = {}
"""Of the run that nothing interrupted, by whether it is private."""


def remember_digests(folder: Path) -> None:
    """Play both runs in peace."""
    for private, table in ((False, _SPEC), (True, _PRIVATE)):
        prepare(folder / str(private), Experiment.from_table(table))
        execute(folder / str(private))
        _DIGESTS[private] = JournalReader(folder / str(private)).digest()


# A ledger of real budgets


def _debit(root: Path) -> None:
    os.environ[STATE_FOLDER_VARIABLE] = str(root / "state")
    (root / "ledgers").mkdir()
    with Ledger.open(root / "ledgers/l.sqlite", currency="epsilon", kind="real") as ledger:
        accounts = ledger.register(["ann", "bob", "cy"], cap_units=10_000)
        for number in range(1, _DEBITS + 1):
            units = np.full(len(accounts), number)
            ledger.debit(run="r", round=number, accounts=accounts, units=units)
            say(root, f"debited {len(accounts)}")


def _check_ledger(root: Path, promises: list[str], *, thoroughly: bool) -> None:
    os.environ[STATE_FOLDER_VARIABLE] = str(root / "state")
    path = root / "ledgers/l.sqlite"
    _check_debits(path, promises)
    if path.exists() and thoroughly:
        with Ledger.open(path, currency="epsilon", kind="real") as ledger:
            accounts = ledger.register(["ann", "bob", "cy"], cap_units=10_000)
            units = np.full(len(accounts), 1)
            ledger.debit(run="r", round=99, accounts=accounts, units=units)


# A selector that is saved after each round


def _save(root: Path) -> None:
    selector = Selector(BSFL(), Problem(num_clients=12, cohort_size=3), seed=1)
    for _ in range(8):
        clients = selector.select().clients
        seconds = 1.0 + clients.astype(np.float64)
        selector.observe(Feedback(round=selector.round, clients=clients, latency_seconds=seconds))
        selector.save(root / "models" / "selector.npz")
        say(root, f"saved {selector.round}")


def _check_selector(root: Path, promises: list[str], *, thoroughly: bool) -> None:
    if promises:
        selector = Selector.restore(root / "models" / "selector.npz", BSFL())
        assert selector.round >= int(promises[-1].split()[1]), "an old selector"


# A federation, whose rounds nobody can play again


def _federate(root: Path) -> None:
    from tests.flower.test_record import CELL, commit

    from fedmuster.flower.run_record import Record

    with Record.open(root / "run", CELL) as record:
        for number in range(1, 6):
            commit(record, number)
            say(root, f"committed {number}")


def _check_federation(root: Path, promises: list[str], *, thoroughly: bool) -> None:
    from tests.flower.test_record import CELL

    from fedmuster.flower.run_record import Record

    if not promises:
        return
    with Record.open(root / "run", CELL) as record:
        assert record.saved is not None
        assert record.saved.round >= int(promises[-1].split()[1]), "a round is lost"


class Workload(NamedTuple):
    """What is interrupted, and what looks at what is left."""

    act: Callable[[Path], None]
    check: Callable[..., None]


WORKLOADS: Final[dict[str, Workload]] = {
    "private run": Workload(lambda root: _play(root, _PRIVATE), _check_run),
    "run": Workload(lambda root: _play(root, _SPEC), _check_run),
    "ledger": Workload(_debit, _check_ledger),
    "selector": Workload(_save, _check_selector),
    "federation": Workload(_federate, _check_federation),
}


if __name__ == "__main__":
    WORKLOADS[sys.argv[1]].act(Path(sys.argv[2]))
