"""What ``fedmuster ledger`` shows."""

import json
import math
import sys
from pathlib import Path

from fedmuster.cli.display import console, show_table
from fedmuster.privacy.accounting import Method, tighter_epsilon, zcdp_epsilon
from fedmuster.privacy.ledger import Verification, accept_clock, adopt, audit, verify
from fedmuster.privacy.ledger.chain import Head
from fedmuster.privacy.ledger.guards import utc
from fedmuster.privacy.ledger.reading import Standing, Summary, history, summarise
from fedmuster.privacy.schedules import to_amount

_SHOWN_FAULTS = 20


def show_ledger(path: Path, *, as_json: bool) -> None:
    """Totals, how much of the budgets is spent, and who has spent most."""
    summary = summarise(path)
    if as_json:
        _print_json(_to_table(summary))
        return
    _say(f"{path}: a ledger of {summary.info.kind} budgets in {summary.info.currency}")
    _say(f"id {summary.info.id}, made {utc(summary.info.created_us)}")
    _say_head(summary.head, summary.newest_us)
    _say(f"{summary.clients:,} clients, {summary.debits:,} debits by {summary.runs:,} runs")
    rows = [("nothing", f"{summary.unspent:,}")]
    rows += [(f"{level} % or more", f"{count:,}") for level, count in summary.at_least.items()]
    show_table("How much of their cap clients have spent", ("spent", "clients"), rows)
    if summary.top:
        show_table(
            "Who has spent most of it",
            ("client", "spent", "cap", "share", "debits"),
            [_row(standing) for standing in summary.top],
        )


def show_client(
    path: Path, identity: str, *, delta: float | None, method: Method, as_json: bool
) -> None:
    """One client's debits, in order; with ``delta`` also what they amount to together."""
    info, standing, payments = history(path, identity)
    composed = None
    if delta is not None:
        amounts = [to_amount(payment.units) for payment in payments]
        composed = _composed(info.currency, amounts, delta, method)
    if as_json:
        debits = [payment._asdict() for payment in payments]
        table = {"currency": info.currency, **standing._asdict(), "debits": debits}
        _print_json(table if composed is None else {**table, "delta": delta, "epsilon": composed})
        return
    _say(
        f"{identity} (account {standing.account:,}): spent {_amount(standing.spent_units)} of "
        f"{_amount(standing.cap_units)} {info.currency} in {standing.debits:,} debits"
    )
    if composed is not None:
        whose = " of each coordinate" if info.currency == "epsilon-per-coordinate" else ""
        _say(f"which is ε = {composed:.6g}{whose} at δ = {delta:g}, composed by {method}")
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


def verify_and_tell(path: Path) -> None:
    """Exit code 1 if the ledger cannot be believed."""
    _tell(path, verification := verify(path), verification.remarks, [])


def audit_and_tell(path: Path, run_folders: list[Path], client_name: str) -> None:
    """Exit code 1 if the ledger cannot be believed, or a run has asked without a debit."""
    found = audit(path, run_folders, client_name=client_name)
    _tell(path, found.verification, found.remarks, found.faults)


def adopt_and_tell(path: Path) -> None:
    """Accept a ledger that is not known here."""
    _say(f"adopted: {adopt(path)}")
    _say(
        "From now on this copy counts. Other copies must never be written to again: what they "
        "debit, this one does not know. The chain says that it was adopted."
    )


def accept_clock_and_tell(path: Path) -> None:
    """Accept that the newest entries are from the future."""
    _say(f"accepted: {accept_clock(path)}")


def _tell(
    path: Path, verification: Verification, remarks: list[str], faults_of_runs: list[str]
) -> None:
    faults = [*verification.faults, *faults_of_runs]
    num_faults = verification.num_faults + len(faults_of_runs)
    for fault in faults[:_SHOWN_FAULTS]:
        _say(f"FAULT: {fault}")
    if num_faults > _SHOWN_FAULTS:
        _say(f"… and {num_faults - _SHOWN_FAULTS:,} more faults")
    for remark in remarks:
        _say(f"remark: {remark}")
    if num_faults:
        _say(f"{path}: {num_faults:,} {'faults' if num_faults > 1 else 'fault'}")
        sys.exit(1)
    _say(
        f"{path}: good. {verification.clients:,} clients, {verification.debits:,} debits; every "
        "digest, balance and cap was computed anew"
    )
    if verification.head is not None:
        _say_head(verification.head)


def _to_table(summary: Summary) -> dict[str, object]:
    return {
        **summary.info._asdict(),
        "head": summary.head._asdict(),
        "newest_us": summary.newest_us,
        "clients": summary.clients,
        "debits": summary.debits,
        "runs": summary.runs,
        "clients_unspent": summary.unspent,
        "clients_at_least_percent": summary.at_least,
        "top": [standing._asdict() for standing in summary.top],
    }


def _composed(currency: str, amounts: list[float], delta: float, method: Method) -> float:
    """The ε of all these debits at ``delta``."""
    if currency == "rho":  # sums are exact already; there is nothing to compose more tightly
        return zcdp_epsilon(math.fsum(amounts), delta)
    return tighter_epsilon(amounts, delta, method)


def _row(standing: Standing) -> tuple[str, ...]:
    return (
        standing.identity,
        _amount(standing.spent_units),
        _amount(standing.cap_units),
        f"{standing.spent_units / standing.cap_units:.1%}",
        f"{standing.debits:,}",
    )


def _say_head(head: Head, newest_us: int | None = None) -> None:
    when = "" if newest_us is None else f", {utc(newest_us)}"
    _say(f"head: entry {head.sequence:,}{when}, {head.digest}")


def _amount(units: int) -> str:
    return f"{to_amount(units):.9g}"


def _print_json(table: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(table, indent=2, ensure_ascii=False) + "\n")


def _say(line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
