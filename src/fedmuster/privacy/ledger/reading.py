"""What a ledger says, for people and programs that only read: totals, histories, audits.

An audit goes beyond :func:`verify`: it lists what is odd, and compares the ledger with the journals
of runs, and with receipts and checkpoints that others hold.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import time_ns
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import IntArray
from fedmuster.core.errors import LedgerError, StateError
from fedmuster.core.state import from_bytes
from fedmuster.privacy.ledger.chain import Chain, ChainHead, Entry, Info, reading
from fedmuster.privacy.ledger.evidence import Evidence, faults_of
from fedmuster.privacy.ledger.guards import LARGEST_STEP_BACK_US, check_contains, utc
from fedmuster.privacy.ledger.log import LedgerLog
from fedmuster.privacy.ledger.verification import Verification, verify

LEVELS_PERCENT: Final = (50, 90, 99, 100)
EXPORTED: Final = (*Entry._fields, "digest", "run_id", "identity")
"""The chained columns as they are hashed, the digest, and whom a debit's numbers stand for."""
_JOURNAL: Final = "journal.sqlite"
_NAMED: Final = 5


class Account(NamedTuple):
    """A row of the table ``accounts``."""

    account: int
    identity: str
    cap_units: int
    spent_units: int
    debits: int


class Payment(NamedTuple):
    """One debit of a client."""

    sequence: int
    time_us: int
    run: str
    round: int
    units: int
    spent_units: int
    """What the client had spent after it."""


class LedgerSummary(NamedTuple):
    """A ledger in few numbers."""

    info: Info
    head: ChainHead
    newest_us: int
    """When the newest entry was written (or the ledger made)."""
    clients: int
    debits: int
    runs: int
    clients_unspent: int
    """How many clients never paid."""
    clients_at_least_percent: dict[int, int]
    """For each of :data:`LEVELS_PERCENT`, how many clients have spent that much of their cap."""
    top: list[Account]
    """The accounts that have spent the largest share of their cap, the largest first."""


def summarise(path: Path, *, top: int = 10) -> LedgerSummary:
    """Totals, and the ``top`` clients that have spent the largest share of their cap."""
    with reading(path) as chain:
        database, last = chain.database, chain.last()
        levels = ", ".join(
            f"count(*) FILTER (WHERE spent_units * 100 >= cap_units * {level})"
            for level in LEVELS_PERCENT
        )
        clients, debits, unspent, *reached = database.execute(
            "SELECT count(*), coalesce(sum(debits), 0), count(*) FILTER (WHERE debits = 0), "
            f"{levels} FROM accounts"
        ).fetchone()
        (runs,) = database.execute("SELECT count(*) FROM entries WHERE kind = 'run'").fetchone()
        spenders = database.execute(
            "SELECT * FROM accounts WHERE debits > 0 "
            "ORDER BY 1.0 * spent_units / cap_units DESC, account LIMIT ?",
            (top,),
        ).fetchall()
    return LedgerSummary(
        info=chain.info,
        head=last.head,
        newest_us=last.time_us,
        clients=clients,
        clients_unspent=unspent,
        clients_at_least_percent=dict(zip(LEVELS_PERCENT, reached, strict=True)),
        debits=debits,
        runs=runs,
        top=[Account(*row) for row in spenders],
    )


def history(path: Path, identity: str) -> tuple[Info, Account, list[Payment]]:
    """What the ledger is, a client's account, and its debits in order."""
    with reading(path) as chain:
        row = chain.database.execute(
            "SELECT * FROM accounts WHERE identity = ?", (identity,)
        ).fetchone()
        if row is None:
            raise LedgerError(f"{path} has no client {identity!r}")
        account = Account(*row)
        payments = chain.database.execute(
            "SELECT debit.sequence, debit.time_us, run.text, debit.round, debit.units, "
            "sum(debit.units) OVER (ORDER BY debit.sequence) "
            "FROM entries AS debit JOIN entries AS run ON run.sequence = debit.run "
            "WHERE debit.kind = 'debit' AND debit.account = ? ORDER BY debit.sequence",
            (account.account,),
        ).fetchall()
    return chain.info, account, [Payment(*payment) for payment in payments]


def all_entries(database: sqlite3.Connection) -> Iterator[tuple[int | str, ...]]:
    """Every entry in order, with the columns :data:`EXPORTED`."""
    return database.execute(
        "SELECT e.sequence, e.time_us, e.kind, e.run, e.round, e.account, e.clients, e.units, "
        "e.text, lower(hex(e.digest)), coalesce(r.text, ''), coalesce(a.identity, '') "
        "FROM entries AS e "
        "LEFT JOIN entries AS r ON e.kind = 'debit' AND r.sequence = e.run "
        "LEFT JOIN accounts AS a ON e.kind = 'debit' AND a.account = e.account "
        "ORDER BY e.sequence"
    )


def all_accounts(database: sqlite3.Connection) -> Iterator[Account]:
    """Every account in order."""
    return map(Account._make, database.execute("SELECT * FROM accounts ORDER BY account"))


class RunJournal:
    """What an auditor needs of a run: its id, its cohorts by round, the ledger's head at its newest
    checkpoint, and its clients' identities, which the journal of a federation has.

    Without rounds a cohort is the clients that were chosen together, and debits are by decision.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with closing(
                sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
            ) as journal:
                identity = journal.execute("SELECT run FROM identity").fetchone()
                self.cohorts = _decisions(journal, path) or _cohorts(journal)
                checkpoint = journal.execute("SELECT budget FROM checkpoint").fetchone()
                self.head = None
                if checkpoint is not None and checkpoint[0] is not None:
                    noted = json.loads(checkpoint[0])
                    self.head = ChainHead(noted["sequence"], noted["digest"])
                self.identities = _identities(journal, path)
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            raise StateError(f"{path} cannot be read as a run's journal: {error}") from error
        if identity is None:
            raise StateError(f"{path} does not say which run it is of")
        self.run = str(identity[0])


def _cohorts(journal: sqlite3.Connection) -> dict[int, IntArray]:
    rounds = journal.execute("SELECT round, clients FROM rounds ORDER BY round")
    return {number: np.frombuffer(image, dtype="<i4").astype(np.int64) for number, image in rounds}


def _decisions(journal: sqlite3.Connection, path: Path) -> dict[int, IntArray]:
    """The clients of each decision of which a job has ended; nothing in rounds."""
    found: dict[int, list[int]] = {}
    for arrays in _images(journal, "jobs", path):
        for decision, client in zip(arrays["decision"], arrays["client"], strict=True):
            found.setdefault(int(decision), []).append(int(client))
    return {decision: np.array(found[decision], dtype=np.int64) for decision in sorted(found)}


def _images(journal: sqlite3.Connection, table: str, path: Path) -> list[dict[str, NDArray[Any]]]:
    """The arrays in each row of a table; none if the journal has no such table."""
    (exists,) = journal.execute(
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
    ).fetchone()
    rows = journal.execute(f"SELECT npz FROM {table}").fetchall() if exists else []
    return [from_bytes(image, source=str(path))[0] for (image,) in rows]


def _identities(journal: sqlite3.Connection, path: Path) -> list[str] | None:
    images = _images(journal, "clients", path)
    if not images:
        return None
    names = images[0].get("identity")
    if names is None:
        return None
    if names.ndim != 1 or names.dtype.kind != "U":
        raise StateError(
            f"{path}: identity is {names.dtype}{names.shape}, expected a list of names"
        )
    return [str(name) for name in names]


def _journals_in(folder: Path) -> list[Path]:
    """The journals of a run, or of all runs below a folder."""
    found = sorted(folder.rglob(_JOURNAL))
    if not found:
        raise StateError(f"{folder} is no run: it holds no {_JOURNAL}")
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """What an auditor found: ``faults`` of runs against the ledger, beyond those of the ledger
    itself (``verification``), and ``remarks`` for a person to judge.
    """

    verification: Verification
    faults: list[str]
    remarks: list[str]


class _Round(NamedTuple):
    """The debits of a run's round: how many, and from which to which entry."""

    run: int
    number: int
    debits: int
    first: int
    last: int
    time_us: int


def audit(
    path: Path,
    run_folders: Sequence[Path] = (),
    *,
    client_name: str = "client-{}",
    evidence: Evidence | None = None,
) -> Audit:
    """Verify the ledger, look for oddities, and compare it with runs and with what others hold.

    Args:
        path: the ledger.
        run_folders: of runs, or of experiments with many runs.
        client_name: the identity of a simulation's client k, with ``{}`` for k; the journal of a
            federation says what its clients are called.
        evidence: clients' receipts, and checkpoints that witnesses have signed.
    """
    verification = verify(path)
    remarks = list(verification.remarks)
    found = Audit(verification=verification, faults=[], remarks=remarks)
    if verification.head is None:
        return found
    journals = [RunJournal(file) for folder in run_folders for file in _journals_in(folder)]
    with reading(path) as chain:
        remarks += _events(chain.database)
        remarks += _oddities_of_runs(chain.database)
        newest_us = chain.last().time_us
        if newest_us > time_ns() // 1000 + LARGEST_STEP_BACK_US:
            remarks.append(
                f"the newest entry is of {utc(newest_us)}, which is yet to come: was the clock "
                "wrong then, or is it now?"
            )
        for journal in journals:
            _compare(chain, journal, client_name, found)
        if evidence is not None:
            found.faults.extend(faults_of(LedgerLog(chain), evidence))
    return found


def _events(database: sqlite3.Connection) -> Iterator[str]:
    meaning = {"adopt": "was adopted by", "clock": "accepted an earlier clock:"}
    for sequence, time_us, kind, text in database.execute(
        "SELECT sequence, time_us, kind, text FROM entries "
        "WHERE kind <> 'debit' AND kind IN ('adopt', 'clock') ORDER BY sequence"
    ):
        yield f"entry {sequence:,}, {utc(time_us)}: the ledger {meaning[kind]} {text}"


def _oddities_of_runs(database: sqlite3.Connection) -> Iterator[str]:
    rounds: dict[int, list[_Round]] = {}
    for row in database.execute(
        "SELECT together.*, entries.time_us FROM (SELECT run, round, count(*), min(sequence) AS "
        "first, max(sequence) FROM entries WHERE kind = 'debit' GROUP BY run, round) AS together "
        "JOIN entries ON entries.sequence = first"
    ):
        rounds.setdefault(row[0], []).append(_Round(*row))
    names = dict(database.execute("SELECT sequence, text FROM entries WHERE kind = 'run'"))
    for run, played in rounds.items():
        name = f"run {names.get(run, run)}"
        missing = sorted(
            set(range(played[0].number, played[-1].number)) - {each.number for each in played}
        )
        if missing:
            yield f"{name}: nobody was debited in {_few('round', missing)}"
        if parts := [each.number for each in played if each.last - each.first + 1 > each.debits]:
            yield f"{name}: {_few('round', parts)} came in parts, with other entries in between"
        if late := [
            after.number for before, after in pairwise(played) if after.first < before.first
        ]:
            yield f"{name}: {_few('round', late)} came before the round that precedes it"
    spans = sorted((min(r.first for r in p), max(r.last for r in p), n) for n, p in rounds.items())
    for (_, last, run), (first, _, other) in pairwise(spans):
        if first < last:
            yield (
                f"runs {names.get(run, run)} and {names.get(other, other)} debited in turns, from "
                f"entry {first:,} on"
            )
    in_order = sorted(
        (each for played in rounds.values() for each in played), key=lambda r: r.first
    )
    held = sum(before.time_us == after.time_us for before, after in pairwise(in_order))
    if held:
        yield f"the clock stood still or went back a little before {held:,} of the rounds"


def _compare(chain: Chain, journal: RunJournal, client_name: str, found: Audit) -> None:
    """Add faults and remarks: was every client debited that the run asked?"""
    name = f"{journal.path.parent} (run {journal.run})"
    run = chain.run_number(journal.run) or 0
    asked = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *journal.cohorts.values()]))
    identity_of = {client: _identity(journal, client, client_name) for client in asked.tolist()}
    twice = [same for same, times in Counter(identity_of.values()).items() if times > 1]
    if twice:  # one's debit would stand for the other's
        found.faults.append(f"{name}: it calls several clients the same: {_few('', twice)}")
    account_of = np.zeros(int(asked.max(initial=0)) + 1, dtype=np.int64)
    known = chain.accounts_of(list(identity_of.values()))
    account_of[asked[known[:, 0]]] = known[:, 1]
    for number, cohort in journal.cohorts.items():
        debited = chain.debits_of_round(run, number)[:, 0]
        unpaid = cohort[~np.isin(account_of[cohort], debited)]
        if len(unpaid) > 0:
            names = [identity_of[client] for client in unpaid.tolist()]
            fault = f"{name}, round {number:,}: asked without a debit: {_few('', names)}"
            found.faults.append(fault)
    (later,) = chain.database.execute(
        "SELECT count(*) FROM entries WHERE kind = 'debit' AND run = ? AND round > ?",
        (run, max(journal.cohorts, default=0)),
    ).fetchone()
    if later:
        found.remarks.append(f"{name}: {later:,} debits are of rounds that it does not have (yet)")
    if journal.head is not None:
        try:
            check_contains(chain, journal.head, source=name)
        except LedgerError as error:
            found.faults.append(str(error))


def _identity(journal: RunJournal, client: int, client_name: str) -> str:
    if journal.identities is None:
        return client_name.format(client)
    if not 0 <= client < len(journal.identities):
        return f"(a client {client} that it does not name)"
    return journal.identities[client]


def _few(what: str, items: Sequence[object]) -> str:
    named = ", ".join(map(str, items[:_NAMED]))
    more = f" and {len(items) - _NAMED:,} more" if len(items) > _NAMED else ""
    plural = f"{what}{'s' if len(items) > 1 else ''} " if what else ""
    return f"{plural}{named}{more}"
