"""An auditor who trusts nobody: SQLite, SHA-256, NumPy's files and docs/ledger.md, and nothing
of fedmuster.

Ledger and journals are looked at as they lie on the disk, in copies: opening a file through SQLite
may move its log, and what a crash left behind shall be found by the run that continues.
"""

import hashlib
import io
import json
import math
import shutil
import sqlite3
import struct
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

_UNIT = 10**9
_ROUNDING = 2  # units by which two ways to compute a share may differ

Key = tuple[str, int, str]
"""(run, round, client's identity)."""


class Release(NamedTuple):
    """An update that has left a client."""

    round: int
    client: str
    digest: str


class Job(NamedTuple):
    """What became of a job of a run without rounds."""

    answered: bool
    used: bool


@dataclass(kw_only=True, slots=True)
class LedgerAudit:
    """What a ledger says, and what is wrong with it."""

    faults: list[str] = field(default_factory=list)
    debits: dict[Key, int] = field(default_factory=dict)
    entries: int = 0


@dataclass(kw_only=True, slots=True)
class RunAudit:
    """What a run has done, and what is wrong with it."""

    faults: list[str] = field(default_factory=list)
    run: str = ""
    releases: list[Release] = field(default_factory=list)
    aggregated: dict[int, int] = field(default_factory=dict)
    """How many updates entered the model in each round that is committed."""
    jobs: dict[tuple[int, str], Job] = field(default_factory=dict)
    """The jobs that are committed, by decision and client; empty in rounds."""
    ending: str | None = None


def audit_ledger(ledger: Path, spec: Path, state: Path) -> LedgerAudit:
    """The chain from its beginning, every balance, cap and amount, and the heads outside.

    Args:
        ledger: the file; nothing is wrong with one that is not there yet.
        spec: of a run that uses it: what was promised.
        state: the folder that FEDMUSTER_STATE names.
    """
    audit = LedgerAudit()
    if not ledger.exists():
        return audit
    privacy = tomllib.loads(spec.read_text())["privacy"]
    with _image(ledger) as database:
        audit.faults += [
            f"integrity: {line}"
            for (line,) in database.execute("PRAGMA integrity_check")
            if line != "ok"
        ]
        (info,) = database.execute("SELECT id, currency, kind, created_us FROM ledger").fetchall()
        entries = database.execute(
            "SELECT sequence, time_us, kind, run, round, account, clients, units, text, digest "
            "FROM entries ORDER BY sequence"
        ).fetchall()
        accounts = database.execute(
            "SELECT account, identity, cap_units, spent_units, debits FROM accounts "
            "ORDER BY account"
        ).fetchall()
    expected = "simulated" if privacy["noise"] == "seeded" else "real"
    if info[2] != expected:
        audit.faults.append(f"the ledger is {info[2]}, the noise {privacy['noise']}")
    digests = _check_chain(info, entries, audit)
    _check_money(entries, accounts, privacy, audit)
    heads = [ledger.with_name(f"{ledger.name}.head")]
    if expected == "real":
        heads.append(state / f"{info[0]}.head")
    for head in heads:
        title, owner, sequence, digest = head.read_text().splitlines()[0].split(" ")
        known = digests.get(int(sequence))
        if (title, owner, digest) != ("fedmuster-ledger-head-1", info[0], known):
            audit.faults.append(f"{head.name} names entry {int(sequence)}, which is not there")
    return audit


def _check_chain(
    info: Sequence[Any], entries: Iterable[Sequence[Any]], audit: LedgerAudit
) -> dict[int, str]:
    """The digest of each entry, recomputed."""
    digest = _line_digest(b"", ("fedmuster-ledger-1", *info))
    digests, time_us = {0: digest.hex()}, info[3]
    for number, (*entry, stored) in enumerate(entries, start=1):
        digest = _line_digest(digest, entry)
        if entry[0] != number or stored != digest:
            audit.faults.append(f"entry {entry[0]} does not fit the chain")
        if entry[1] < time_us:
            audit.faults.append(f"entry {entry[0]} is earlier than the one before it")
        digests[number], time_us = digest.hex(), entry[1]
    audit.entries = len(digests) - 1
    return digests


def _line_digest(previous: bytes, values: Iterable[object]) -> bytes:
    return hashlib.sha256(previous + "\t".join(map(str, values)).encode()).digest()


def _check_money(
    entries: Iterable[Sequence[Any]],
    accounts: Sequence[Sequence[Any]],
    privacy: dict[str, Any],
    audit: LedgerAudit,
) -> None:
    """Who paid what, by the entries alone, against caps, balances and the schedule."""
    names = {account: identity for account, identity, *_ in accounts}
    share = _SHARES[privacy["schedule"]["name"]](privacy["schedule"])
    caps: dict[int, int] = {}
    spent: defaultdict[int, int] = defaultdict(int)
    times: Counter[int] = Counter()
    runs: dict[int, str] = {}
    for sequence, _, kind, run, round_, account, clients, units, text, _ in entries:
        if kind == "accounts":
            newcomers = range(account, account + clients)
            caps.update(dict.fromkeys(newcomers, units))
            names_in_order = (names[newcomer].encode() for newcomer in newcomers)
            image = b"".join(struct.pack(">I", len(name)) + name for name in names_in_order)
            if hashlib.sha256(image).hexdigest() != text:
                audit.faults.append(f"entry {sequence} registered other identities")
        elif kind == "run":
            runs[sequence] = text
        elif kind == "debit":
            key = (runs[run], round_, names[account])
            if key in audit.debits:
                audit.faults.append(f"{key} was debited twice")
            audit.debits[key] = units
            cap, i = caps[account], times[account]
            price = math.floor(cap * share(i + 1)) - math.floor(cap * share(i))
            if units < 1 or abs(units - price) > _ROUNDING:
                audit.faults.append(f"{key} paid {units} the {i + 1}th time, expected {price}")
            spent[account] += units
            times[account] += 1
            if spent[account] > cap:
                audit.faults.append(f"{key} is {spent[account] - cap} units above its cap")
    if privacy["mechanism"]["name"] == "laplace" and set(caps.values()) - {
        round(privacy["epsilon"] * _UNIT)
    }:
        audit.faults.append("an account has another cap than was promised")
    for account, identity, *balance in accounts:
        computed = [caps.get(account), spent[account], times[account]]
        if balance != computed:
            audit.faults.append(f"the balance of {identity} is {balance}, not {computed}")


_SHARES: dict[str, Callable[[dict[str, Any]], Callable[[int], float]]] = {
    "geometric": lambda s: lambda c: 1 - math.exp(-s["eta"] * c),
    "uniform": lambda s: lambda c: min(c / s["participations"], 1.0),
    "harmonic": lambda s: lambda c: 1 - (s["offset"] / (s["offset"] + c)) ** s["power"],
    "listed": lambda s: lambda c: min(math.fsum(s["shares"][:c]), 1.0),
}
"""What the first c participations spend of the budget (docs/privacy.md)."""


def audit_run(folder: Path, releases: Path, ledger: LedgerAudit) -> RunAudit:
    """Every update that left a client and every cohort on record has a debit; none left twice.

    With seeded noise an update may leave again if it is the same, bit for bit.
    """
    audit = RunAudit()
    secure = tomllib.loads((folder / "spec.toml").read_text())["privacy"]["noise"] == "secure"
    cohorts: list[tuple[int, list[str]]] = []
    if (folder / "journal.sqlite").exists():
        _read_journal(folder / "journal.sqlite", audit, cohorts)
    if releases.exists():
        for line in releases.read_text().splitlines():
            round_, client, digest = json.loads(line)
            audit.releases.append(Release(round_, f"client-{client}", digest))
    out: dict[tuple[int, str], str] = {}
    for round_, client, digest in audit.releases:
        if (audit.run, round_, client) not in ledger.debits:
            audit.faults.append(f"{client} sent in round {round_} without a debit")
        before = out.setdefault((round_, client), digest)
        if before != digest:
            audit.faults.append(f"{client} sent two different updates in round {round_}")
    if secure and len(out) < len(audit.releases):
        audit.faults.append(f"{len(audit.releases) - len(out)} updates left twice")
    for round_, cohort in cohorts:
        if unpaid := [k for k in cohort if (audit.run, round_, k) not in ledger.debits]:
            audit.faults.append(f"round {round_}: {', '.join(unpaid)} asked without a debit")
    for key, job in audit.jobs.items():
        if job.answered and key not in out:
            audit.faults.append(f"{key} was answered, but never sent")
    if audit.jobs:  # where a row is no cohort
        return audit
    sent = Counter(round_ for round_, _ in out)
    for round_, aggregated in audit.aggregated.items():
        if aggregated > sent[round_]:
            audit.faults.append(f"round {round_}: {aggregated} aggregated, {sent[round_]} sent")
    return audit


def _read_journal(path: Path, audit: RunAudit, cohorts: list[tuple[int, list[str]]]) -> None:
    with _image(path) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        if "checkpoint" not in tables:  # killed while it was made
            return
        (audit.run,) = database.execute("SELECT run FROM identity").fetchone() or ("",)
        rows = database.execute(
            "SELECT round, num_aggregated, clients FROM rounds ORDER BY round"
        ).fetchall()
        images = database.execute("SELECT npz FROM jobs").fetchall() if "jobs" in tables else []
        checkpoint = database.execute("SELECT round FROM checkpoint").fetchone()
        (audit.ending,) = database.execute("SELECT reason FROM ending").fetchone() or (None,)
    if [row[0] for row in rows] != list(range(1, len(rows) + 1)):
        audit.faults.append("the journal lacks rounds")
    if (0 if checkpoint is None else checkpoint[0]) != len(rows):
        audit.faults.append(f"{len(rows)} rounds, but the checkpoint is {checkpoint}")
    for (image,) in images:
        with np.load(io.BytesIO(image)) as table:
            columns = [table[name] for name in ("decision", "client", "answered", "used")]
        for decision, client, answered, used in zip(*columns, strict=True):
            key = int(decision), f"client-{client}"
            if key in audit.jobs:
                audit.faults.append(f"{key} is on record twice")
            audit.jobs[key] = Job(bool(answered), bool(used))
    cohorts += [(decision, [client]) for decision, client in audit.jobs]
    for round_, aggregated, clients in rows:
        audit.aggregated[round_] = aggregated
        if audit.jobs:
            continue
        numbers = struct.unpack(f"<{len(clients) // 4}i", clients)
        cohorts.append((round_, [f"client-{number}" for number in numbers]))


@contextmanager
def _image(path: Path) -> Iterator[sqlite3.Connection]:
    """A copy of an SQLite file and its log."""
    with TemporaryDirectory(dir=path.parent, prefix="audit-") as folder:
        copy = Path(folder) / path.name
        shutil.copyfile(path, copy)
        log = path.with_name(f"{path.name}-wal")
        if log.exists():
            shutil.copyfile(log, copy.with_name(log.name))
        with closing(sqlite3.connect(copy)) as database:
            yield database
