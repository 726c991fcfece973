"""Whether a ledger can be believed: everything is computed anew from its chained entries."""

import getpass
import os
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from fedmuster.core.arrays import IntArray
from fedmuster.core.errors import LedgerError
from fedmuster.privacy.ledger.chain import (
    ENTRY_KINDS,
    Chain,
    ChainHead,
    Entry,
    Info,
    digest_of_identities,
    integer_table,
    link,
    reading,
    require_there,
)
from fedmuster.privacy.ledger.guards import (
    LARGEST_STEP_BACK_US,
    Note,
    anchors_of,
    check_contains,
    utc,
)
from fedmuster.privacy.ledger.writer import Clock, Writer
from fedmuster.privacy.schedules import MOST_UNITS

MOST_FAULTS: Final = 100
_CHUNK: Final = 5_000  # rows; the sum of that many largest debits fits into int64
_COLUMNS: Final = len(Entry._fields)


@dataclass(kw_only=True, slots=True)
class Verification:
    """What was found in a ledger; a good one has no faults.

    ``faults`` holds the first :data:`MOST_FAULTS` of ``num_faults``; ``remarks`` what could not be
    checked here.
    """

    head: ChainHead | None = None
    clients: int = 0
    debits: int = 0
    faults: list[str] = field(default_factory=list)
    num_faults: int = 0
    remarks: list[str] = field(default_factory=list)

    def blame(self, fault: str) -> None:
        """One more fault."""
        self.num_faults += 1
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(fault)


def verify(path: Path) -> Verification:
    """Check the file, the chain, every balance and cap, and the heads that are kept outside."""
    require_there(path)
    path = path.resolve()
    result = Verification()
    try:
        with reading(path) as chain:
            info = chain.info
        outside = _heads_outside(path, info, result)  # first: meanwhile others may append
        with reading(path) as chain:
            for (line,) in chain.database.execute(f"PRAGMA integrity_check({MOST_FAULTS})"):
                if line != "ok":
                    result.blame(f"SQLite's integrity check: {line}")
            accounts = _Accounts(chain, result)
            _check_chain(chain, accounts, result)
            accounts.check_balances()
            result.head = chain.last().head
            result.clients = len(accounts.identities)
            for source, head in outside:
                try:
                    check_contains(chain, head, source=source)
                except LedgerError as error:
                    result.blame(str(error))
    except LedgerError as error:
        result.blame(str(error))
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        result.blame(f"{path} is too damaged to read on: {error}")  # a text for a number, say
    return result


def _heads_outside(path: Path, info: Info, result: Verification) -> list[tuple[str, ChainHead]]:
    heads = []
    for anchor in anchors_of(path, info):
        try:
            note = anchor.read()
        except LedgerError as error:
            result.blame(str(error))
            continue
        if note is None:
            result.remarks.append(
                f"{anchor.path} is not there: nothing outside the file shows that no entries are "
                "missing at its end"
            )
        elif note.ledger != info.id:
            result.blame(f"{anchor.path} belongs to another ledger: {note.ledger}")
        else:
            heads.append((str(anchor.path), note.head))
    return heads


def require_sound(path: Path) -> None:
    """Refuse a ledger in which an entry or a balance is not in order."""
    found = verify(path)
    if found.num_faults > 0:
        raise LedgerError(
            f"{path} is damaged or was tampered with: {found.faults[0]} ({found.num_faults:,} "
            "faults in all, see fedmuster ledger verify); restore the newest copy"
        )


def _check_chain(chain: Chain, accounts: "_Accounts", result: Verification) -> None:
    digest, time_us, expected = chain.info.digest(), chain.info.created_us, 1
    runs: set[int] = set()
    cursor = chain.database.execute("SELECT * FROM entries ORDER BY sequence")
    while rows := cursor.fetchmany(_CHUNK):
        for row in rows:
            entry, stored = Entry._make(row[:_COLUMNS]), row[_COLUMNS]
            where = f"entry {entry.sequence:,} ({entry.kind})"
            if entry.sequence != expected:
                result.blame(f"entries {expected:,} … {entry.sequence - 1:,} are missing")
            elif link(digest, entry) != stored:
                result.blame(
                    f"{where}: its digest does not fit: it was changed, or put in another place"
                )
            if entry.time_us < time_us and entry.kind != "clock":
                result.blame(
                    f"{where}: of {utc(entry.time_us)}, earlier than the one before it "
                    f"({utc(time_us)})"
                )
            if entry.kind not in ENTRY_KINDS:
                result.blame(f"{where}: no such kind of entry")
            elif entry.kind == "run":
                runs.add(entry.sequence)
            elif entry.kind == "accounts":
                accounts.check_registration(entry)
            elif entry.kind == "debit" and (
                entry.run not in runs
                or entry.round < 1
                or not 1 <= entry.units <= MOST_UNITS
                or not 1 <= entry.account <= accounts.registered
            ):
                result.blame(f"{where}: no sensible debit: {entry}")
            digest, time_us, expected = stored, entry.time_us, entry.sequence + 1
        accounts.add([row for row in rows if row[2] == "debit"])


class _Accounts:
    """What the accounts table claims, against what the entries say."""

    def __init__(self, chain: Chain, result: Verification) -> None:
        rows = chain.database.execute("SELECT * FROM accounts ORDER BY account").fetchall()
        self.identities: list[str] = [row[1] for row in rows]
        self.numbers, self.caps, self.claimed_spent, self.claimed_debits = integer_table(
            ((row[0], *row[2:]) for row in rows), width=4
        ).T
        self.spent = np.zeros(len(rows) + 1, dtype=np.int64)
        self.debits = np.zeros(len(rows) + 1, dtype=np.int64)
        self.registered = 0
        self.result = result
        gaps = np.flatnonzero(self.numbers != np.arange(1, len(rows) + 1))
        if len(gaps) > 0:
            result.blame(f"account {gaps[0] + 1:,} is missing")

    def check_registration(self, entry: Entry) -> None:
        """The clients and caps of an ``accounts`` entry."""
        first, last = entry.account, entry.account + entry.clients - 1
        where = f"entry {entry.sequence:,} (accounts {first:,} … {last:,})"
        if first != self.registered + 1 or entry.clients < 1:
            self.result.blame(f"{where}: expected accounts from {self.registered + 1:,} on")
        rows = slice(max(first - 1, 0), last)
        if digest_of_identities(self.identities[rows]) != entry.text:
            self.result.blame(f"{where}: its clients' identities were changed")
        for row in np.flatnonzero(self.caps[rows] != entry.units).tolist():
            account = first + row
            self.result.blame(
                f"{self._name(account)}: its cap is {self.caps[account - 1]:,} units, but entry "
                f"{entry.sequence:,} promised {entry.units:,}"
            )
        self.registered = last

    def add(self, debits: Iterable[tuple[int, ...]]) -> None:
        """What accounts have paid."""
        payers, units = integer_table(((row[5], row[7]) for row in debits), width=2).T
        known = (payers >= 1) & (payers < len(self.spent))  # the others are blamed already
        np.add.at(self.spent, payers[known], units[known])
        np.add.at(self.debits, payers[known], 1)
        # What is beyond every cap stays there: forged debits may not add up to 2^64, that is 0.
        np.minimum(self.spent, 2 * MOST_UNITS, out=self.spent)
        self.result.debits += len(payers)

    def check_balances(self) -> None:
        """The sums and counts of all debits, and the caps."""
        if self.registered != len(self.identities):
            self.result.blame(
                f"{len(self.identities):,} accounts are there, the entries registered "
                f"{self.registered:,}"
            )
        sums: list[tuple[str, IntArray, IntArray]] = [
            ("units spent", self.claimed_spent, self.spent[1:]),
            ("debits", self.claimed_debits, self.debits[1:]),
        ]
        for what, claimed, found in sums:
            for row in np.flatnonzero(claimed != found).tolist():
                self.result.blame(
                    f"{self._name(row + 1)}: the balance says {claimed[row]:,} {what}, the "
                    f"entries say {found[row]:,}"
                )
        for row in np.flatnonzero(self.spent[1:] > self.caps).tolist():
            self.result.blame(
                f"{self._name(row + 1)}: spent {self.spent[row + 1]:,} units of {self.caps[row]:,}"
            )

    def _name(self, account: int) -> str:
        return f"account {account:,} ({self.identities[account - 1]})"


# What an operator may accept. Each leaves an entry in the chain, for the auditor.


def adopt(path: Path, *, clock: Clock = time.time_ns) -> str:
    """Accept a ledger whose head is not known here, as the newest copy; what was noted.

    Only what is missing is made: a head that is kept here and contradicts the ledger stays a
    reason to refuse it.
    """
    with _alone(path, "adopt", clock) as writer:
        missing = [anchor for anchor in writer.anchors if anchor.read() is None]
        known = [anchor for anchor in writer.anchors if anchor not in missing]
        if not missing:
            raise LedgerError(f"{writer.path}: nothing to adopt, its head is known here")
        if faults := verify(writer.path).faults:
            raise LedgerError(f"{writer.path} cannot be adopted: {faults[0]}")
        text = f"{_who()}: no {' nor '.join(str(anchor.path) for anchor in missing)}"
        with writer.transaction(anchors=known) as links:
            links.add("adopt", text=text)
        for anchor in missing:
            anchor.write(Note(writer.chain.info.id, links.head, writer.path))
        return text


def accept_clock(path: Path, *, clock: Clock = time.time_ns) -> str:
    """Accept that the newest entries bear a time later than now; what was noted."""
    with _alone(path, "accept-clock", clock) as writer:
        last_us = writer.chain.last().time_us
        now_us = clock() // 1000
        if now_us >= last_us - LARGEST_STEP_BACK_US:
            raise LedgerError(
                f"{writer.path}: nothing to accept, the clock ({utc(now_us)}) is not behind the "
                f"newest entry ({utc(last_us)})"
            )
        text = f"{_who()}: back from {utc(last_us)} to {utc(now_us)}"
        with writer.transaction(clock_may_go_back=True) as links:
            links.add("clock", text=text)
        return text


@contextmanager
def _alone(path: Path, purpose: str, clock: Clock) -> Iterator[Writer]:
    require_there(path)
    writer = Writer(path.resolve(), exclusive_for=purpose, clock=clock)
    try:
        yield writer
    finally:
        writer.close()


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        user = str(os.getuid())
    return f"{user} on {socket.gethostname()}"
