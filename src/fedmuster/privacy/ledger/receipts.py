"""What a client gets of the ledger with a grant, and how it checks that nothing was rewritten.

A receipt proves that the client's debit is in a log whose root the ledger's key has signed, and
that this log goes on from the one of the client's last receipt. It needs nothing but the receipt
before it, so a client with one small file can hold an operator to all that was ever signed.
"""

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self

from fedmuster.core.errors import DataError, LedgerError
from fedmuster.privacy.ledger.chain import Entry, Info
from fedmuster.privacy.ledger.merkle import leaf_hash, proves_consistency, proves_inclusion
from fedmuster.privacy.ledger.notes import Checkpoint, Note, VerifierKey

_TITLE: Final = "fedmuster-receipt-1"
LONGEST_RECEIPT: Final = 60_000
_PARTS: Final = ("ledger", "accounts", "run", "debit")


def origin_of(ledger: str) -> str:
    """The name of a ledger's log, and of its key, by the ledger's id."""
    return f"fedmuster/ledger/{ledger}"


class Proven(NamedTuple):
    """A line of the log, and the proof that the signed tree has it."""

    leaf: int
    line: bytes
    proof: bytes


class Statement(NamedTuple):
    """What a receipt says, proven: who was debited, for what, and with which cap."""

    ledger: Info
    accounts: Entry
    run: Entry
    debit: Entry

    @property
    def cap_units(self) -> int:
        """The cap of the account."""
        return self.accounts.units


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """A signed checkpoint, the entries that concern one client, and proofs.

    Args:
        key: the ledger's public key, as text.
        checkpoint: the signed note.
        entries: the ledger itself, the registration, the run and the debit.
        since: consistency proofs, by the size from which they lead to the checkpoint.
        received_us: when the client accepted it, by the client's clock; 0 on the way there.
    """

    key: str
    checkpoint: str
    entries: tuple[Proven, Proven, Proven, Proven]
    since: tuple[tuple[int, bytes], ...] = ()
    received_us: int = 0

    def to_json(self) -> str:
        """As it travels, and as a client keeps it."""
        parts = zip(_PARTS, map(_entry_as_json, self.entries), strict=True)
        since = [[size, b64encode(proof).decode()] for size, proof in self.since]
        return (
            _head_as_json(self.key, self.checkpoint)
            + "".join(f'"{part}": {entry}, ' for part, entry in parts)
            + f'"since": {json.dumps(since)}, "received_us": {self.received_us}}}'
        )

    @classmethod
    def of_json(cls, text: str) -> Self:
        """The receipt; a :class:`DataError` where the text is none."""
        if len(text) > LONGEST_RECEIPT:
            raise DataError(f"receipt: {len(text):,} characters, at most {LONGEST_RECEIPT:,}")
        try:
            table = json.loads(text)
            if table["title"] != _TITLE:
                raise ValueError("it has another format")
            ledger, accounts, run, debit = (_proven(table[part]) for part in _PARTS)
            return cls(
                key=_text(table["key"]),
                checkpoint=_text(table["checkpoint"]),
                entries=(ledger, accounts, run, debit),
                since=tuple((_size(size), _hashes(proof)) for size, proof in table["since"]),
                received_us=_size(table["received_us"]),
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DataError(f"receipt: it cannot be read: {error}") from None

    def kept(self, received_us: int) -> "Receipt":
        """As a client keeps it: without the proofs that are needed once, and with the time."""
        return replace(self, since=(), received_us=received_us)

    @property
    def state(self) -> Checkpoint:
        """The state of the log that the receipt was made from."""
        return Checkpoint.of(Note.parse(self.checkpoint))

    @property
    def verifier(self) -> VerifierKey:
        """The key that the receipt names."""
        return VerifierKey.of(self.key)

    def statement(self) -> Statement:
        """What the receipt proves; a :class:`DataError` where it does not fit together.

        Whether its key is the right one, and its log the one that the client knows, is not asked.
        """
        key, note = self.verifier, Note.parse(self.checkpoint)
        state = Checkpoint.of(note)
        if key.is_witness or not key.verifies(note):
            raise DataError(f"receipt: its checkpoint is not signed by {key.name}")
        for proven in self.entries:
            leaf, line, proof = proven
            if not proves_inclusion(proof, leaf_hash(line), leaf, state.size, state.root):
                raise DataError(f"receipt: entry {leaf:,} is not in the tree that was signed")
        ledger, *lines = self.entries
        try:
            info = Info.of_line(ledger.line)
            accounts, run, debit = (Entry.of_line(proven.line) for proven in lines)
        except (ValueError, TypeError) as error:
            raise DataError(f"receipt: a line of it cannot be read: {error}") from None
        places = [0, accounts.sequence, run.sequence, debit.sequence]
        account = debit.account
        fits = (
            [proven.leaf for proven in self.entries] == places
            and key.name == state.origin == origin_of(info.id)
            and (accounts.kind, run.kind, debit.kind) == ("accounts", "run", "debit")
            and accounts.account <= account < accounts.account + accounts.clients
            and debit.run == run.sequence
        )
        if not fits:
            raise DataError("receipt: its entries do not belong together")
        return Statement(info, accounts, run, debit)

    def require_follows(self, held: "Receipt") -> None:
        """Refuse a receipt of another log, or of one that does not begin as ``held`` says.

        A refusal means that somebody has rewritten the ledger, or keeps two versions of it.
        """
        old, new = held.state, self.state
        before, now = held.statement(), self.statement()
        if old.origin != new.origin:
            raise LedgerError(
                f"this client's receipts are of the ledger {old.origin}, and this one is of "
                f"{new.origin}: what was spent there would be forgotten"
            )
        if held.key != self.key:
            raise LedgerError(
                f"the ledger {new.origin} signs with another key than it did: it was copied, "
                "forged, or moved without its key"
            )
        if old.size > new.size:
            raise LedgerError(
                f"the ledger {new.origin} has {new.size - 1:,} entries, and had {old.size - 1:,} "
                "when it signed this client's last receipt: an old copy was put in its place"
            )
        proof = dict(self.since).get(old.size, b"")
        if old.size < new.size and not proof:
            raise MissingProofError(
                f"no proof leads from entry {old.size - 1:,}, which this client knows, to entry "
                f"{new.size - 1:,} of the ledger: the server has to ask again"
            )
        if not proves_consistency(proof, old.size, old.root, new.size, new.root):
            raise LedgerError(
                f"the ledger {new.origin} was rewritten: entries up to {old.size - 1:,} are not "
                "those that it had signed before"
            )
        if before.debit.account != now.debit.account or before.accounts != now.accounts:
            raise LedgerError(
                f"the receipt is of account {now.debit.account:,} with the cap {now.cap_units:,}, "
                f"this client's account is {before.debit.account:,} with {before.cap_units:,}"
            )
        if now.debit.sequence <= before.debit.sequence:
            raise LedgerError(
                f"the receipt is of entry {now.debit.sequence:,}, and the last one was of entry "
                f"{before.debit.sequence:,}: nothing new was paid"
            )


class MissingProofError(LedgerError):
    """The server does not know which receipt a client holds; nothing shows that anybody lies."""


# The receipts of a round have most of their parts in common.


@lru_cache(16)
def _head_as_json(key: str, checkpoint: str) -> str:
    head = {"title": _TITLE, "key": key, "checkpoint": checkpoint}
    return json.dumps(head, ensure_ascii=False)[:-1] + ", "


@lru_cache(64)
def _entry_as_json(entry: Proven) -> str:
    row = [entry.leaf, entry.line.decode(), b64encode(entry.proof).decode()]
    return json.dumps(row, ensure_ascii=False)


def _proven(row: Any) -> Proven:
    leaf, line, proof = row
    return Proven(_size(leaf), _text(line).encode(), _hashes(proof))


def _hashes(text: Any) -> bytes:
    return b64decode(_text(text), validate=True)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is missing")
    return value


def _size(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**62:
        raise ValueError("an entry's number is none")
    return value
