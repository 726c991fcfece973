"""A witness: a machine of others, which signs a checkpoint only if it adds to the last one.

Two histories of one ledger cannot both be signed by an honest witness. Requests have the form that
C2SP's tlog-witness gives to ``add-checkpoint``, so other witnesses can serve a ledger, too.
"""

import fcntl
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from fedmuster.core.errors import DataError, LedgerError, StateError
from fedmuster.core.files import write_file
from fedmuster.privacy.ledger.chain import OWNER_ONLY, plain_errors
from fedmuster.privacy.ledger.merkle import hashes_in, proves_consistency
from fedmuster.privacy.ledger.notes import Checkpoint, Note, SigningKey, VerifierKey

_LONGEST_REQUEST: Final = 30_000
_MOST_HASHES: Final = 63


class WitnessRequest(NamedTuple):
    """Please sign this checkpoint; the proof leads to it from ``old`` entries."""

    old: int
    proof: bytes
    note: Note

    def __str__(self) -> str:
        lines = "".join(f"{b64encode(each).decode()}\n" for each in hashes_in(self.proof))
        return f"old {self.old}\n{lines}\n{self.note}"

    @classmethod
    def parse(cls, image: str) -> Self:
        """The request; a :class:`DataError` where it is none."""
        head, _, note = image.partition("\n\n")
        first, *hashes = head.split("\n")
        word, _, old = first.partition(" ")
        fits = word == "old" and old.isascii() and old.isdecimal() and len(old) < 19
        if not fits or len(image) > _LONGEST_REQUEST or len(hashes) > _MOST_HASHES:
            raise DataError("this asks no witness for anything: see fedmuster ledger checkpoint")
        try:
            proof = b"".join(b64decode(each, validate=True) for each in hashes)
        except ValueError as error:
            raise DataError(f"a proof that cannot be read: {error}") from None
        return cls(int(old), proof, Note.parse(note))


class Witness:
    """Remembers the newest checkpoint of each log, and signs what adds to it.

    Args:
        folder: for its key and its memory; made, for its owner alone, if it is not there.
        name: of its key.
    """

    def __init__(self, folder: Path, *, name: str = "witness") -> None:
        self._folder = folder
        self._memory = folder / "logs.json"
        self._key = SigningKey.load_or_make(folder / "witness.key", name, witness=True)

    @property
    def verifier(self) -> VerifierKey:
        """The public key, to be given to auditors."""
        return self._key.verifier

    def trust(self, key: VerifierKey) -> None:
        """Serve the log that signs with this key; another key for the same log is refused."""
        if key.is_witness:
            raise DataError(f"{key.name} is the key of a witness, expected that of a ledger")
        with self._logs() as logs:
            known = logs.setdefault(key.name, {"key": str(key), "size": 0, "root": ""})
            if known["key"] != str(key):
                raise LedgerError(f"{key.name} signed with another key before: {known['key']}")

    def cosign(self, request: WitnessRequest) -> Note:
        """The note with this witness's signature; what was signed is on disk by then."""
        state = Checkpoint.of(request.note)
        with self._logs() as logs:
            known = logs.get(state.origin)
            if known is None:
                raise LedgerError(f"{state.origin} is not served here: name its key first")
            if not VerifierKey.of(known["key"]).verifies(request.note):
                raise LedgerError(f"the checkpoint is not signed with the key of {state.origin}")
            self._require_growth(state, request, known)
            known |= {"size": state.size, "root": state.root.hex()}
        return request.note.cosigned(self._key.sign(state.text))

    @staticmethod
    def _require_growth(state: Checkpoint, request: WitnessRequest, known: dict[str, Any]) -> None:
        size, root = known["size"], bytes.fromhex(known["root"])
        if state.size < size:
            raise LedgerError(
                f"{state.origin} has {state.size:,} leaves, and had {size:,}: entries are missing"
            )
        if state.size == size:
            if state.root != root:
                raise LedgerError(f"{state.origin} has two histories of {size:,} leaves")
            return
        if request.old != size:
            raise LedgerError(
                f"the proof begins at {request.old:,}, this witness knows {size:,} leaves of "
                f"{state.origin}: ask with --since {size}"
            )
        grown = proves_consistency(request.proof, size, root, state.size, state.root)
        if size > 0 and not grown:
            raise LedgerError(
                f"{state.origin} was rewritten: its first {size:,} leaves are not those that this "
                "witness has signed"
            )

    @contextmanager
    def _logs(self) -> Iterator[dict[str, dict[str, Any]]]:
        """What is known of each log; changes are on disk at the end."""
        with plain_errors(self._memory), (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = self._memory.read_text() if self._memory.exists() else "{}"
            try:
                logs = json.loads(before)
                for known in logs.values():
                    VerifierKey.of(known["key"])
                    bytes.fromhex(known["root"])
                    known["size"] += 0
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise StateError(
                    f"{self._memory} is damaged: restore the newest copy, or this witness would "
                    f"sign what it has refused ({error})"
                ) from None
            yield logs
            if (after := json.dumps(logs, indent=1)) != before:
                write_file(self._memory, after.encode(), mode=OWNER_ONLY)
