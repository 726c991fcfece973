"""A ledger as a log that outsiders can check: its tree, its key, checkpoints and receipts.

Leaf 0 is the ledger itself, leaf n the line of entry n. The tree follows from the entries, so no
file keeps it, and none can disagree with them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from fedmuster.core.arrays import IntArray
from fedmuster.core.errors import LedgerError
from fedmuster.core.files import write_file
from fedmuster.privacy.ledger.chain import Chain, Entry, Info, line_of, reading, require_there
from fedmuster.privacy.ledger.guards import state_folder
from fedmuster.privacy.ledger.merkle import MerkleTree, leaf_hash
from fedmuster.privacy.ledger.notes import Checkpoint, Note, SigningKey, VerifierKey
from fedmuster.privacy.ledger.receipts import Proven, Receipt, origin_of
from fedmuster.privacy.ledger.witness import WitnessRequest

_COLUMNS: Final = ", ".join(Entry._fields)
_CHUNK: Final = 10_000


class LedgerLog:
    """The tree over a ledger's entries; it grows with them."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.origin = origin_of(chain.info.id)
        self._tree = MerkleTree(self._leaves)
        self._first_accounts: list[int] = []
        self._registrations: list[int] = []  # the entry of each
        self._newest: dict[
            int, bytes
        ] = {}  # lines that were read last, most of them asked for next
        self._tree.extend([leaf_hash(chain.info.line)])

    def checkpoint(self) -> Checkpoint:
        """The state with all entries of now."""
        self._catch_up()
        return Checkpoint(self.origin, self._tree.size, self._tree.root(self._tree.size))

    def root(self, size: int) -> bytes:
        """The root of the tree when it had ``size`` leaves; no more than there are."""
        return self._tree.root(size)

    def consistency(self, old: int, size: int) -> bytes:
        """The proof that the tree of ``size`` leaves begins with that of ``old``."""
        return self._tree.consistency(old, size)

    def receipts(
        self,
        run: str,
        number: int,
        accounts: IntArray,
        *,
        key: SigningKey,
        held: Mapping[int, Sequence[int]],
    ) -> list[Receipt]:
        """A receipt for each account that paid for a round of the run, in order.

        Args:
            run: its id.
            number: of the round.
            accounts: int64[n].
            key: that signs.
            held: by account, the sizes of the logs whose receipts its client may hold.
        """
        state = self.checkpoint()
        text = str(Note(state.text, (key.sign(state.text),)))
        run_entry = self.chain.run_number(run) or 0
        found = self.chain.integers(
            "SELECT account, sequence FROM entries "
            "WHERE kind = 'debit' AND run = ? AND round = ? ORDER BY account",
            run_entry,
            number,
            width=2,
        )
        places = np.searchsorted(found[:, 0], accounts)
        paid = places < len(found)
        paid[paid] = found[places[paid], 0] == accounts[paid]
        if not paid.all():
            raise LedgerError(
                f"{self.chain.path}: account {accounts[~paid][0]} has not paid for round "
                f"{number:,} of run {run}, so there is no receipt"
            )
        debits = found[places, 1].tolist()
        registered = np.searchsorted(self._first_accounts, accounts, side="right") - 1
        common = [0, run_entry, *{self._registrations[row] for row in registered.tolist()}]
        lines = self._lines([*debits, *common])
        proven = {
            index: Proven(index, lines[index], self._tree.inclusion(index, state.size))
            for index in lines
        }
        wanted = {size for sizes in held.values() for size in sizes if 0 < size < state.size}
        links = {size: (size, self.consistency(size, state.size)) for size in wanted}
        name = str(key.verifier)
        return [
            Receipt(
                key=name,
                checkpoint=text,
                entries=(
                    proven[0],
                    proven[self._registrations[row]],
                    proven[run_entry],
                    proven[debit],
                ),
                since=tuple(links[size] for size in held.get(account, ()) if size in links),
            )
            for account, row, debit in zip(
                accounts.tolist(), registered.tolist(), debits, strict=True
            )
        ]

    def _catch_up(self) -> None:
        rows = self.chain.database.execute(
            f"SELECT {_COLUMNS} FROM entries WHERE sequence >= ? ORDER BY sequence",
            (self._tree.size,),
        )
        while some := rows.fetchmany(_CHUNK):
            if (some[0][0], some[-1][0]) != (self._tree.size, self._tree.size + len(some) - 1):
                raise LedgerError(
                    f"{self.chain.path} is damaged: entries are missing near {some[0][0]:,}; see "
                    "fedmuster ledger verify"
                )
            self._newest = {row[0]: line_of(row) for row in some}
            self._tree.extend(map(leaf_hash, self._newest.values()))
            for row in some:
                if row[2] == "accounts":
                    entry = Entry._make(row)
                    self._first_accounts.append(entry.account)
                    self._registrations.append(entry.sequence)

    def _lines(self, indices: Sequence[int]) -> dict[int, bytes]:
        """The lines of leaves, by index."""
        known = {0: self.chain.info.line, **self._newest}
        lines = {index: known[index] for index in indices if index in known}
        wanted = sorted(set(indices) - lines.keys())
        for first, last in _spans(wanted):
            rows = self.chain.database.execute(
                f"SELECT {_COLUMNS} FROM entries WHERE sequence BETWEEN ? AND ?", (first, last)
            )
            lines |= {row[0]: line_of(row) for row in rows}
        return lines

    def _leaves(self, first: int, end: int) -> list[bytes]:
        rows = self.chain.database.execute(
            f"SELECT {_COLUMNS} FROM entries WHERE sequence >= ? AND sequence < ? "
            "ORDER BY sequence",
            (first, end),
        )
        start = [leaf_hash(self.chain.info.line)] if first == 0 else []
        return start + [leaf_hash(line_of(row)) for row in rows]


def _spans(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Increasing numbers as ranges, first to last."""
    array = np.array(numbers, dtype=np.int64)
    if len(array) == 0:
        return []
    breaks = np.flatnonzero(np.diff(array) != 1)
    firsts = array[np.concatenate([[0], breaks + 1])]
    lasts = array[np.concatenate([breaks, [len(array) - 1]])]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def checkpoint_request(path: Path, *, since: int = 0) -> WitnessRequest:
    """A signed checkpoint of a real ledger, with the proof that it adds to ``since`` leaves."""
    require_there(path)
    with reading(path) as chain:
        key = signing_key(chain.path, chain.info)
        log = LedgerLog(chain)
        state = log.checkpoint()
        if since > state.size:
            raise LedgerError(
                f"{path} has {state.size:,} leaves, and the witness has signed {since:,}: an old "
                "copy was put in its place"
            )
        note = Note(state.text, (key.sign(state.text),))
        return WitnessRequest(since, log.consistency(since, state.size), note)


def public_key_file(path: Path) -> Path:
    """Where a ledger's public key is, for clients, witnesses and auditors."""
    return path.with_name(f"{path.name}.vkey")


def signing_key(path: Path, info: Info) -> SigningKey:
    """The key of a real ledger, made at its first use; ``STATE/ID.key`` has it.

    A ledger that had a key does not silently get another: its clients would refuse that.
    """
    if info.kind != "real":
        raise LedgerError(f"{path} is of simulated clients, who get no receipts")
    secret, public = state_folder() / f"{info.id}.key", public_key_file(path)
    if public.exists() and not secret.exists():
        raise LedgerError(
            f"{secret} is missing, with which {path} signs its receipts: bring it from the "
            f"machine or backup that has it. If it is lost, delete {public}: the ledger gets a new "
            "key, of which every client must be told"
        )
    key = SigningKey.load_or_make(secret, origin_of(info.id))
    if not public.exists():
        write_file(public, f"{key.verifier}\n".encode())
    elif VerifierKey.of(public.read_text()) != key.verifier:
        raise LedgerError(
            f"{public} is not the key of {secret}: put back the file that belongs to this ledger"
        )
    return key
