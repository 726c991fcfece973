"""A process that debits at random and writes down what it asked for, and what it was told."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from fedmuster.core.errors import BudgetError, LedgerError
from fedmuster.privacy.ledger import Ledger

ACCOUNTS, CAP, COHORT = 40, 12, 5
CURRENCY = "epsilon"


def main(folder: Path, worker: int, seconds: float) -> None:
    """Debit until the time is over; a round that was begun and not finished is played again."""
    own = folder / f"history-{worker}.jsonl"
    history = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(**event: Any) -> None:
        os.write(history, json.dumps({"at": time.monotonic_ns(), **event}).encode() + b"\n")

    def clock() -> int:
        return time.time_ns() + int((folder / "clock").read_text())

    path, until = folder / "project" / "ledger.sqlite", time.monotonic() + seconds
    rng = np.random.default_rng([worker, os.getpid()])
    # What is asked follows from the round, so that a repetition asks for the same.
    number = sum(json.loads(line)["type"] == "ok" for line in own.read_text().splitlines())
    while time.monotonic() < until:
        try:
            ledger = Ledger.open(path, currency=CURRENCY, kind="real", thorough=False, clock=clock)
        except LedgerError:
            time.sleep(0.02)
            continue
        try:
            with ledger:
                known = ledger.register([f"client-{k}" for k in range(ACCOUNTS)], CAP)
                for _ in range(int(rng.integers(1, 12))):
                    if time.monotonic() > until:
                        break
                    wanted = np.random.default_rng([worker, number])
                    accounts = np.sort(wanted.choice(known, COHORT, replace=False))
                    units = wanted.integers(1, 4, COHORT)
                    asked = {"accounts": accounts.tolist(), "units": units.tolist()}
                    key = {"run": f"run-{worker}", "round": number + 1}
                    note(type="ask", **key, **asked)
                    try:
                        ledger.debit(**key, accounts=accounts, units=units)
                    except BudgetError:
                        note(type="refused", **key)
                        number += 1000  # other accounts
                        continue
                    note(type="ok", **key)
                    number += 1
        except LedgerError:
            note(type="unknown")  # refused, or on record all the same


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
