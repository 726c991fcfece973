"""What an auditor wants to know beyond :func:`verify`: what is odd, and whether runs agree."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import time_ns
from typing import Final, NamedTuple

import numpy as np

from fedmuster.core.arrays import IntArray
from fedmuster.core.errors import LedgerError, StateError
from fedmuster.core.state import from_bytes
from fedmuster.privacy.ledger.chain import (
    Head,
    Info,
    accounts_of,
    debits_of_round,
    last_entry,
    run_number,
)
from fedmuster.privacy.ledger.guards import LARGEST_STEP_BACK_US, check_contains, utc
from fedmuster.privacy.ledger.reading import reading
from fedmuster.privacy.ledger.verification import Verification, verify

_FILE_NAME: Final = "journal.sqlite"


class RunJournal:
    """What an auditor needs of a run.

    ``run`` is its id; ``cohorts`` whom it asked, by round; ``head`` the ledger's at its newest
    checkpoint; ``identities`` what its clients are called, where it says so, as federations do and
    simulations do not.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with closing(
                sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
            ) as journal:
                identity = journal.execute("SELECT run FROM identity").fetchone()
                rounds = journal.execute("SELECT round, clients FROM rounds ORDER BY round")
                self.cohorts: dict[int, IntArray] = {
                    number: np.frombuffer(image, dtype="<i4").astype(np.int64)
                    for number, image in rounds
                }
                checkpoint = journal.execute("SELECT budget FROM checkpoint").fetchone()
                self.head = None
                if checkpoint is not None and checkpoint[0] is not None:
                    noted = json.loads(checkpoint[0])
                    self.head = Head(noted["sequence"], noted["digest"])
                self.identities = _identities(journal, path)
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            raise StateError(f"{path} cannot be read as a run's journal: {error}") from error
        if identity is None:
            raise StateError(f"{path} does not say which run it is of")
        self.run = str(identity[0])


def _identities(journal: sqlite3.Connection, path: Path) -> list[str] | None:
    (has_clients,) = journal.execute(
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'clients'"
    ).fetchone()
    row = journal.execute("SELECT npz FROM clients").fetchone() if has_clients else None
    if row is None:
        return None
    arrays, _ = from_bytes(row[0], source=str(path))
    names = arrays.get("identity")
    if names is None:
        return None
    if names.ndim != 1 or names.dtype.kind != "U":
        raise StateError(
            f"{path}: identity is {names.dtype}{names.shape}, expected a list of names"
        )
    return [str(name) for name in names]


def journals_in(folder: Path) -> Iterator[Path]:
    """The journals of a run, or of all runs below a folder."""
    found = sorted(folder.rglob(_FILE_NAME))
    if not found:
        raise StateError(f"{folder} is no run: it holds no {_FILE_NAME}")
    yield from found


# What an auditor wants to know beyond :func:`verify`: what is odd, and whether runs agree.

CLIENT_NAME: Final = "client-{}"
_NAMED: Final = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """Faults make a ledger, or a run, untrustworthy; remarks are for a person to judge.

    Args:
        verification: of the ledger itself.
        faults: of runs against the ledger.
        remarks: what is unusual, or could not be checked.
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


def audit(path: Path, run_folders: Sequence[Path] = (), *, client_name: str = CLIENT_NAME) -> Audit:
    """Verify the ledger, look for oddities, and compare it with the journals of runs.

    Args:
        path: the ledger.
        run_folders: of runs, or of experiments with many runs.
        client_name: the identity of a simulation's client k, with ``{}`` for k; the journal of a
            federation says what its clients are called.
    """
    verification = verify(path)
    faults: list[str] = []
    remarks = list(verification.remarks)
    if verification.head is None:
        return Audit(verification=verification, faults=faults, remarks=remarks)
    journals = [RunJournal(file) for folder in run_folders for file in journals_in(folder)]
    with reading(path) as (database, info):
        remarks += _events(database)
        remarks += _oddities_of_runs(database)
        if last_entry(database, info).time_us > time_ns() // 1000 + LARGEST_STEP_BACK_US:
            remarks.append(
                f"the newest entry is of {utc(last_entry(database, info).time_us)}, which is yet "
                "to come: was the clock wrong then, or is it now?"
            )
        for journal in journals:
            found, remarked = _compare(path, database, info, journal, client_name)
            faults += found
            remarks += remarked
    return Audit(verification=verification, faults=faults, remarks=remarks)


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


def _compare(
    path: Path, database: sqlite3.Connection, info: Info, journal: RunJournal, client_name: str
) -> tuple[list[str], list[str]]:
    """Faults and remarks: was everybody debited who was asked?"""
    faults, remarks = [], []
    name = f"{journal.path.parent} (run {journal.run})"
    run = run_number(database, journal.run) or 0
    asked = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *journal.cohorts.values()]))
    identity_of = {client: _identity(journal, client, client_name) for client in asked.tolist()}
    twice = [who for who, times in Counter(identity_of.values()).items() if times > 1]
    if twice:  # one's debit would stand for the other's
        faults.append(f"{name}: it calls several clients the same: {_few('', twice)}")
    account_of = np.zeros(int(asked.max(initial=0)) + 1, dtype=np.int64)
    known = accounts_of(database, list(identity_of.values()))
    account_of[asked[known[:, 0]]] = known[:, 1]
    for number, cohort in journal.cohorts.items():
        debited = debits_of_round(database, run, number)[:, 0]
        unpaid = cohort[~np.isin(account_of[cohort], debited)]
        if len(unpaid) > 0:
            names = [identity_of[client] for client in unpaid.tolist()]
            faults.append(f"{name}, round {number:,}: asked without a debit: {_few('', names)}")
    (later,) = database.execute(
        "SELECT count(*) FROM entries WHERE kind = 'debit' AND run = ? AND round > ?",
        (run, max(journal.cohorts, default=0)),
    ).fetchone()
    if later:
        remarks.append(f"{name}: {later:,} debits are of rounds that it does not have (yet)")
    if journal.head is not None:
        try:
            check_contains(path, database, info, journal.head, source=name)
        except LedgerError as error:
            faults.append(str(error))
    return faults, remarks


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
