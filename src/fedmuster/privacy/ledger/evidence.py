"""What others hold of a ledger, against the ledger: clients' receipts, witnesses' signatures."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from fedmuster.core.errors import DataError
from fedmuster.privacy.ledger.chain import plain_errors
from fedmuster.privacy.ledger.guards import utc
from fedmuster.privacy.ledger.log import LedgerLog, public_key_file
from fedmuster.privacy.ledger.notes import Checkpoint, Note, VerifierKey, witnessed_at
from fedmuster.privacy.ledger.receipts import LONGEST_RECEIPT, Receipt

_LARGEST_FILE: Final = 1_000_000
_DAY_US: Final = 24 * 3600 * 1_000_000


class Evidence(NamedTuple):
    """Files that outsiders bring.

    Args:
        receipts: of clients, as receipts or as the files in which ``PrivateMod`` keeps them.
        checkpoints: notes that the ledger, and perhaps witnesses, have signed.
        key: the ledger's public key; None for the file beside the ledger.
        witnesses: whose signatures each of the checkpoints must bear.
    """

    receipts: Sequence[Path] = ()
    checkpoints: Sequence[Path] = ()
    key: VerifierKey | None = None
    witnesses: Sequence[VerifierKey] = ()


def read_receipt(path: Path) -> Receipt:
    """The newest receipt in a client's file; a :class:`DataError` where there is none."""
    for line in _image(path).splitlines():
        try:
            table = json.loads(line)
        except (ValueError, RecursionError):
            continue  # the first line of a client's file
        if isinstance(table, dict):
            kept = table.get("receipt", line if "title" in table else None)
            if isinstance(kept, str) and len(kept) <= LONGEST_RECEIPT:
                return Receipt.of_json(kept)
    raise DataError(f"{path} holds no receipt of a ledger")


def faults_of(log: LedgerLog, evidence: Evidence) -> list[str]:
    """What contradicts the ledger, one sentence each."""
    if not evidence.receipts and not evidence.checkpoints:
        return []
    size = log.checkpoint().size
    key, faults = evidence.key, []
    beside = public_key_file(log.chain.path)
    if key is None and beside.exists():
        try:
            key = VerifierKey.of(_image(beside))
        except DataError as error:
            faults.append(f"{beside}: {error}")
    for path in evidence.receipts:
        try:
            receipt = read_receipt(path)
            faults += (f"{path}: {fault}" for fault in _of_receipt(log, size, receipt, key))
        except DataError as error:
            faults.append(f"{path}: {error}")
    for path in evidence.checkpoints:
        try:
            note = Note.parse(_image(path))
            found = _of_note(log, size, note, key, evidence.witnesses)
            faults += (f"{path}: {fault}" for fault in found)
        except DataError as error:
            faults.append(f"{path}: {error}")
    return faults


def _of_receipt(log: LedgerLog, size: int, receipt: Receipt, key: VerifierKey | None) -> list[str]:
    said = receipt.statement()
    faults = _of_state(log, size, receipt.state)
    if key is not None and receipt.key != str(key):
        faults.append(f"it is signed with another key than the ledger's: {receipt.key}")
    apart = abs(receipt.received_us - said.debit.time_us)
    if receipt.received_us and apart > _DAY_US:
        faults.append(
            f"entry {said.debit.sequence:,} says {utc(said.debit.time_us)}, the client received "
            f"its receipt at {utc(receipt.received_us)}: one of the clocks was wrong"
        )
    if faults and said.ledger.id == log.chain.info.id:
        account = said.debit.account
        here = log.chain.database.execute(
            "SELECT units, account FROM entries WHERE sequence = ?", (said.debit.sequence,)
        ).fetchone()
        if here != (said.debit.units, account):
            faults.append(
                f"entry {said.debit.sequence:,} was signed as a debit of {said.debit.units:,} "
                f"units from account {account:,}; here it is not"
            )
    return faults


def _of_note(
    log: LedgerLog, size: int, note: Note, key: VerifierKey | None, witnesses: Sequence[VerifierKey]
) -> list[str]:
    faults = _of_state(log, size, Checkpoint.of(note))
    if key is None or not key.verifies(note):
        faults.append("it is not signed with the ledger's key")
    faults += (
        f"{witness.name} has not signed it"
        for witness in witnesses
        if witnessed_at(note, witness) is None
    )
    return faults


def _of_state(log: LedgerLog, size: int, signed: Checkpoint) -> list[str]:
    if signed.origin != log.origin:
        return [f"it is of another ledger: {signed.origin}"]
    if signed.size > size:
        return [
            f"the ledger had signed {signed.size - 1:,} entries, and has {size - 1:,}: an old copy "
            "was put in its place"
        ]
    if log.root(signed.size) != signed.root:
        return [
            f"the ledger was rewritten: its first {signed.size - 1:,} entries are not those "
            "that it had signed"
        ]
    return []


def _image(path: Path) -> str:
    with plain_errors(path):
        if path.stat().st_size > _LARGEST_FILE:
            raise DataError(f"{path} is too large to be what it should be")
        return path.read_bytes().decode(errors="replace")
