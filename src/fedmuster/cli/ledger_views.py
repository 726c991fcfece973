"""What ``fedmuster ledger`` prints and exports."""

import csv
import json
import sqlite3
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from fedmuster.cli.display import say, show_table
from fedmuster.core.errors import ConfigError, MissingExtraError
from fedmuster.core.words import harmless_cell
from fedmuster.privacy.ledger import Verification
from fedmuster.privacy.ledger.chain import ChainHead, Info, reading
from fedmuster.privacy.ledger.guards import utc
from fedmuster.privacy.ledger.reading import (
    EXPORTED,
    Payment,
    all_accounts,
    all_entries,
    history,
    summarise,
)
from fedmuster.privacy.mechanisms import currency_of
from fedmuster.privacy.schedules import to_amount

_SHOWN_FAULTS = 20
_CHUNK = 50_000
_TEXTS = {"kind", "text", "digest", "run_id", "identity"}


def show_ledger(
    path: Path, *, delta: float | None, method: str | None, mechanism: str | None, as_json: bool
) -> None:
    """Totals, how much of the budgets is spent, and the clients that have spent most.

    With ``delta`` also what the debits of each of these clients amount to together.
    """
    summary = summarise(path)
    info = summary.info
    composed: dict[str, float] = {}
    if delta is not None:
        for account in summary.top:
            _, _, payments = history(path, account.identity)
            composed[account.identity], method = _composed(info, payments, delta, method, mechanism)
    if as_json:
        top = [account._asdict() for account in summary.top]
        for row in top if composed else []:
            row |= {"delta": delta, "epsilon": composed[row["identity"]]}
        table = {**info._asdict(), **summary._asdict(), "head": summary.head._asdict(), "top": top}
        table.pop("info")
        _print_json(table)
        return
    say(f"{path}: a ledger of {info.kind} budgets in {info.currency}")
    unit = currency_of(info.currency, mechanism)
    say(
        _unknown(info)
        if unit is None
        else f"it counts {unit.title}{'' if unit.per_coordinate else ' of the update'}"
    )
    say(f"id {info.id}, made {utc(info.created_us)}")
    _say_head(summary.head, summary.newest_us)
    say(f"{summary.clients:,} clients, {summary.debits:,} debits by {summary.runs:,} runs")
    rows = [("nothing", f"{summary.clients_unspent:,}")]
    rows += [
        (f"{level} % or more", f"{count:,}")
        for level, count in summary.clients_at_least_percent.items()
    ]
    show_table("How much of their cap clients have spent", ("spent", "clients"), rows)
    if summary.top:
        epsilons = [f"ε at {delta:g}"] if composed else []
        show_table(
            "Clients that have spent the largest share of their cap",
            ("client", "spent", "cap", "share", "debits", *epsilons),
            [
                (
                    account.identity,
                    _amount(account.spent_units),
                    _amount(account.cap_units),
                    f"{account.spent_units / account.cap_units:.1%}",
                    f"{account.debits:,}",
                    *([f"{composed[account.identity]:.6g}"] if composed else []),
                )
                for account in summary.top
            ],
        )


def show_client(
    path: Path,
    identity: str,
    *,
    delta: float | None,
    method: str | None,
    mechanism: str | None,
    as_json: bool,
) -> None:
    """One client's debits, in order; with ``delta`` also what they amount to together."""
    info, account, payments = history(path, identity)
    composed, unit = None, currency_of(info.currency, mechanism)
    if delta is not None:
        composed, method = _composed(info, payments, delta, method, mechanism)
    if as_json:
        debits = [payment._asdict() for payment in payments]
        table = {"currency": info.currency, **account._asdict(), "debits": debits}
        _print_json(table if composed is None else {**table, "delta": delta, "epsilon": composed})
        return
    say(
        f"{identity} (account {account.account:,}): spent {_amount(account.spent_units)} of "
        f"{_amount(account.cap_units)} {info.currency} in {account.debits:,} debits"
    )
    if composed is not None and unit is not None:
        say(f"which is ε = {composed:.6g} of {unit.subject} at δ = {delta:g}, composed by {method}")
    rows = [
        (
            f"{payment.sequence:,}",
            utc(payment.time_us),
            payment.run,
            f"{payment.round:,}",
            _amount(payment.units),
            _amount(payment.spent_units),
        )
        for payment in payments
    ]
    show_table("Debits", ("entry", "time", "run", "round", info.currency, "in all"), rows)


def _composed(
    info: Info, payments: Sequence[Payment], delta: float, method: str | None, mechanism: str | None
) -> tuple[float, str]:
    """The ε of one client's debits, each in full: being chosen seldom makes none of them cheaper.

    Amplification by sampling needs a choice that is random and secret; policies choose by what they
    know of clients, and tell them.
    """
    unit = currency_of(info.currency, mechanism)
    if unit is None:
        raise ConfigError(f"--delta: {_unknown(info)}")
    return unit.compose([to_amount(payment.units) for payment in payments], delta, method)


def show_faults(
    path: Path, verification: Verification, remarks: list[str], faults_of_runs: list[str]
) -> None:
    """What a verification or an audit found; exit code 1 if it found a fault."""
    faults = [*verification.faults, *faults_of_runs]
    num_faults = verification.num_faults + len(faults_of_runs)
    for fault in faults[:_SHOWN_FAULTS]:
        say(f"FAULT: {fault}")
    if num_faults > _SHOWN_FAULTS:
        say(f"… and {num_faults - _SHOWN_FAULTS:,} more faults")
    for remark in remarks:
        say(f"remark: {remark}")
    if num_faults:
        say(f"{path}: {num_faults:,} {'faults' if num_faults > 1 else 'fault'}")
        sys.exit(1)
    say(
        f"{path}: good. {verification.clients:,} clients, {verification.debits:,} debits; every "
        "digest, balance and cap was computed anew"
    )
    if verification.head is not None:
        _say_head(verification.head)


def _unknown(info: Info) -> str:
    return (
        f"no mechanism that is known here counts {info.currency}: amounts are shown as they are "
        "recorded, and what they promise is unknown; name the mechanism with --mechanism "
        "module:Class"
    )


def _say_head(head: ChainHead, newest_us: int | None = None) -> None:
    when = "" if newest_us is None else f", {utc(newest_us)}"
    say(f"head: entry {head.sequence:,}{when}, {head.digest}")


def _amount(units: int) -> str:
    return f"{to_amount(units):.9g}"


def _print_json(table: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(table, indent=2, ensure_ascii=False) + "\n")


def export(path: Path, out: Path) -> None:
    """Write all entries with their digests to ``out``.

    JSON holds the accounts, too, and so all that is needed to verify the chain.
    """
    writers = {".csv": _write_csv, ".json": _write_json, ".parquet": _write_parquet}
    if out.suffix not in writers:
        raise ConfigError(f"--out {out}: expected a name in {', '.join(writers)}")
    with reading(path) as chain:
        writers[out.suffix](chain.database, chain.info, out)
        (count,) = chain.database.execute("SELECT count(*) FROM entries").fetchone()
    say(f"wrote {count:,} entries to {out}")


def _write_csv(database: sqlite3.Connection, _info: Info, out: Path) -> None:
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(EXPORTED)
        writer.writerows(map(harmless_cell, row) for row in all_entries(database))


def _write_json(database: sqlite3.Connection, info: Info, out: Path) -> None:
    parts = {
        "accounts": (each._asdict() for each in all_accounts(database)),
        "entries": (dict(zip(EXPORTED, row, strict=True)) for row in all_entries(database)),
    }
    with out.open("w", encoding="utf-8") as file:  # piece by piece: there may be millions
        file.write(f'{{"ledger": {json.dumps(info._asdict())}')
        for name, tables in parts.items():
            file.write(f',\n"{name}": [')
            for number, table in enumerate(tables):
                file.write(("," if number else "") + "\n" + json.dumps(table))
            file.write("]")
        file.write("}\n")


def _write_parquet(database: sqlite3.Connection, info: Info, out: Path) -> None:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", extra="parquet", purpose="writing Parquet") from error
    schema = arrow.schema(
        [(name, arrow.string() if name in _TEXTS else arrow.int64()) for name in EXPORTED],
        metadata={"fedmuster.ledger": json.dumps(info._asdict())},
    )
    entries = all_entries(database)
    with parquet.ParquetWriter(out, schema) as writer:
        while rows := list(islice(entries, _CHUNK)):
            columns = [list(column) for column in zip(*rows, strict=True)]
            writer.write_table(arrow.table(columns, schema=schema))
