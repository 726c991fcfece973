"""What a ledger may hold after a recorded history: a model that knows no code of the ledger.

A debit is one atomic step between its question and its answer. A process that was killed, or told
"unknown", leaves a question whose debit is on record whole, or not at all.
"""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

Key = tuple[str, int]
NEVER = 2**63


@dataclass
class Question:
    """A debit that somebody asked for, maybe more than once."""

    payments: dict[int, int]
    asked_at: int
    told: str = "nothing"
    told_at: int = NEVER
    asked_again: list[dict[int, int]] = field(default_factory=list)


class Record(NamedTuple):
    """A debit's entry."""

    sequence: int
    account: int
    units: int


def questions_in(lines: Iterable[str]) -> dict[Key, Question]:
    """The questions of one process, with what it was told."""
    found: dict[Key, Question] = {}
    for event in map(json.loads, lines):
        if event["type"] == "unknown":
            continue
        key = event["run"], event["round"]
        if event["type"] == "ask":
            payments = dict(zip(event["accounts"], event["units"], strict=True))
            if key in found:
                found[key].asked_again.append(payments)
            else:
                found[key] = Question(payments, event["at"])
        else:
            found[key].told, found[key].told_at = event["type"], event["at"]
    return found


def records_in(path: Path) -> tuple[dict[Key, list[Record]], list[tuple[Any, ...]]]:
    """Debits by run and round, and the balances, as they stand in the file."""
    debits: dict[Key, list[Record]] = defaultdict(list)
    with closing(sqlite3.connect(path)) as database:
        runs = dict(database.execute("SELECT sequence, text FROM entries WHERE kind = 'run'"))
        for sequence, run, number, account, units in database.execute(
            "SELECT sequence, run, round, account, units FROM entries WHERE kind = 'debit'"
        ):
            debits[runs[run], number].append(Record(sequence, account, units))
        balances = database.execute("SELECT account, cap_units, spent_units FROM accounts")
        return dict(debits), balances.fetchall()


def violations(
    questions: dict[Key, Question], debits: dict[Key, list[Record]], balances: list[tuple[Any, ...]]
) -> list[str]:
    """What cannot be, in sentences; none for a history that the ledger may have had."""
    found = []
    for key, question in questions.items():
        paid = {record.account: record.units for record in debits.get(key, [])}
        if len(paid) < len(debits.get(key, [])):
            found.append(f"{key}: paid twice")
        if any(again != question.payments for again in question.asked_again):
            found.append(f"{key}: the history is none: a repetition asks for something else")
        if question.told == "ok" and paid != question.payments:
            found.append(f"{key}: lost or changed: told ok, and {paid} is on record")
        if question.told == "refused" and paid:
            found.append(f"{key}: told that nobody paid, and {paid} is on record")
        if paid and paid != question.payments:
            found.append(f"{key}: in parts")
    found += (f"{key}: nobody asked for it" for key in debits.keys() - questions.keys())
    spent: dict[int, int] = defaultdict(int)
    for records in debits.values():
        for record in records:
            spent[record.account] += record.units
    for account, cap, balance in balances:
        if spent[account] > cap:
            found.append(f"account {account}: spent {spent[account]} of {cap}")
        if spent[account] != balance:
            found.append(f"account {account}: balance {balance}, debits {spent[account]}")
    caps = {account: cap for account, cap, _ in balances}
    return found + _out_of_order(questions, debits) + _refused_in_vain(questions, debits, caps)


def _out_of_order(questions: dict[Key, Question], debits: dict[Key, list[Record]]) -> list[str]:
    """A debit that was answered before another was asked for stands before it."""
    on_record = [
        (question.asked_at, question.told_at, debits[key][0].sequence, debits[key][-1].sequence)
        for key, question in questions.items()
        if key in debits
    ]
    return [
        f"entry {last} was answered before entry {first} was asked for"
        for _, told_at, _, last in on_record
        for asked_at, _, first, _ in on_record
        if told_at < asked_at and last > first
    ]


def _refused_in_vain(
    questions: dict[Key, Question], debits: dict[Key, list[Record]], caps: dict[int, int]
) -> list[str]:
    """A refusal for lack of budget, where everything that could have come before leaves enough."""
    found = []
    for key, question in questions.items():
        if question.told != "refused":
            continue
        before: dict[int, int] = defaultdict(int)
        for other in debits.keys() & questions.keys():
            if questions[other].asked_at < question.told_at:
                for record in debits[other]:
                    before[record.account] += record.units
        if all(before[a] + units <= caps[a] for a, units in question.payments.items()):
            found.append(f"{key}: refused, and everybody could have paid")
    return found
