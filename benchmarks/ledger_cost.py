"""A round's debits in the ledger: 1,000 random clients out of K, checked, chained, on disk.

Bar: at most 30 ms at K = 1,000,000, everything included. "receipts" is what Flower's clients get on
top: the Merkle tree goes on, its root is signed, and each client gets its proofs, as text.
References, in the same run: the same rows and balances written with bare SQLite (one transaction,
no checks, no chain, no heads), and a transaction of a single row, which is what one ``fsync`` costs
on this disk.
"""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import numpy as np

from benchmarks.measure import RESULTS, in_turns, write
from fedmuster.core.records import IntArray
from fedmuster.privacy.ledger import Ledger, verify
from fedmuster.privacy.ledger.guards import STATE_FOLDER_VARIABLE

CLIENTS = (1_000, 10_000, 100_000, 1_000_000)
COHORT = 1_000
ROUNDS = 60
CAP_UNITS = 10**15
BAR_SECONDS = 0.03


class Bare:
    """What any program would have to write: a row for each debit and the new balances."""

    def __init__(self, path: Path, clients: int) -> None:
        self.database = sqlite3.connect(path, isolation_level=None)
        for statement in (
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            "CREATE TABLE accounts "
            "(account INTEGER PRIMARY KEY, identity TEXT UNIQUE, spent INTEGER)",
            "CREATE TABLE debits (account INTEGER, round INTEGER, units INTEGER)",
            "BEGIN",
        ):
            self.database.execute(statement)
        names = ((account, f"client-{account}") for account in range(1, clients + 1))
        self.database.executemany("INSERT INTO accounts VALUES (?, ?, 0)", names)
        self.database.execute("COMMIT")

    def debit(self, number: int, accounts: IntArray) -> None:
        """Insert and update, nothing else."""
        rows = [(account, number, 100) for account in np.sort(accounts).tolist()]
        self.database.execute("BEGIN IMMEDIATE")
        self.database.executemany("INSERT INTO debits VALUES (?, ?, ?)", rows)
        self.database.executemany(
            "UPDATE accounts SET spent = spent + 100 WHERE account = ?", ((row[0],) for row in rows)
        )
        self.database.execute("COMMIT")

    def one_row(self) -> None:
        """One commit."""
        self.database.execute("INSERT INTO debits VALUES (1, 0, 100)")


def measure(clients: int, folder: Path) -> dict[str, float]:
    """Seconds of each contender at one K."""
    path = folder / "ledger.sqlite"
    rng = np.random.default_rng(0)
    rounds = {"ledger": 0, "bare": 0}
    debit_seconds: list[float] = []
    paid: list[tuple[int, IntArray]] = []
    processor_seconds: list[float] = []

    def cohort(name: str) -> tuple[int, IntArray]:
        rounds[name] += 1
        return rounds[name], rng.choice(clients, COHORT, replace=False) + 1

    start = perf_counter()
    with Ledger.open(path, currency="epsilon", kind="real", exclusive_for="run") as ledger:
        seconds = {"open": perf_counter() - start}
        names = [f"client-{client}" for client in range(clients)]
        seconds["register"] = timed(lambda: ledger.register(names, CAP_UNITS))
        seconds["register again"] = timed(lambda: ledger.register(names, CAP_UNITS))
        everybody = np.arange(1, clients + 1)
        seconds["balances of all"] = timed(lambda: ledger.balances(everybody))
        bare = Bare(folder / "bare.sqlite", clients)

        def debit() -> None:
            number, accounts = cohort("ledger")
            pay = {"accounts": accounts, "units": np.full(COHORT, 100)}
            start = process_time()
            debit_seconds.append(timed(lambda: ledger.debit(run="run", round=number, **pay)))
            processor_seconds.append(process_time() - start)
            paid[:] = [(number, accounts)]

        def receipts() -> None:
            ((number, accounts),) = paid
            held = {account: [clients] for account in accounts.tolist()}
            made = ledger.receipts(run="run", round=number, accounts=accounts, held=held)
            for receipt in made:
                receipt.to_json()

        seconds |= in_turns(
            {
                "debit": debit,
                "receipts": receipts,
                "bare": lambda: bare.debit(*cohort("bare")),
                "one row": bare.one_row,
            },
            turns=ROUNDS,
        )
        bare.database.close()
    seconds |= {"mean debit": fmean(debit_seconds), "slowest debit": max(debit_seconds)}
    seconds["CPU"] = fmean(processor_seconds)
    seconds["verify"] = timed(lambda: verify(path))
    return seconds


def timed(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = perf_counter()
    call()
    return perf_counter() - start


def main() -> None:
    """Print a round's cost at each K, absolutely and over the references."""
    results = {}
    titles = ("CPU", "debit", "mean", "slowest", "receipts", "bare")
    print(f"{'K':>9}" + "".join(f"{title:>9}" for title in titles), end="")
    print(f"{'/ bare':>8}{'/ row':>8}{'register':>11}{'again':>9}{'balances':>10}{'verify':>9}")
    for clients in CLIENTS:
        RESULTS.mkdir(exist_ok=True)
        with TemporaryDirectory(dir=RESULTS) as folder:  # not /tmp: that may be no disk at all
            os.environ[STATE_FOLDER_VARIABLE] = folder
            s = results[clients] = measure(clients, Path(folder))
        shown = ("CPU", "debit", "mean debit", "slowest debit", "receipts", "bare")
        print(f"{clients:>9,}" + "".join(f"{1e3 * s[name]:>6.1f} ms" for name in shown), end="")
        print(f"{s['debit'] / s['bare']:>8.1f}{s['debit'] / s['one row']:>8.1f}", end="")
        print(f"{s['register']:>9.2f} s{s['register again']:>7.2f} s", end="")
        print(f"{s['balances of all']:>8.2f} s{s['verify']:>7.2f} s")
    largest = results[CLIENTS[-1]]
    met = "met" if largest["debit"] <= BAR_SECONDS else "missed"
    print(f"bar: {COHORT:,} debits out of {CLIENTS[-1]:,} in {1e3 * BAR_SECONDS:g} ms: {met}")
    write("ledger_cost", results)


if __name__ == "__main__":
    main()
