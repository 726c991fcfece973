"""What a client remembers of its releases: the newest round of each run, and all that they cost;
and the newest receipt of the ledger that debited them.

The file has two lines: a title with the SHA-256 of the second line, and JSON. The checksum finds
damage, and edits by hand. It is no signature: somebody who may write the file can forge it, put
back an older copy, or delete it. A client cannot tell a deleted file from one that never was,
except in the Flower run whose context remembers it.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Self

from flwr.app import ConfigRecord, RecordDict

from fedmuster.core.errors import InUseError, StateError
from fedmuster.core.files import sync_folder

_TITLE: Final = "fedmuster-client-vault-1"
_RECORD: Final = "fedmuster.vault"  # in the context's state
_MOST_RUNS: Final = 1_000
_PATIENCE_SECONDS: Final = 10.0  # a write takes milliseconds
_RETRY_SECONDS: Final = 0.005


@dataclass(frozen=True, kw_only=True, slots=True)
class VaultContents:
    """What a vault holds.

    Args:
        sequence: how often the vault was written.
        rounds: by run, the newest released round; the run that released last stands last.
        released: by key of the currency, the total of all releases, in units of the ledger.
        receipt: the newest that a server's ledger gave, as JSON; empty where none did.
    """

    sequence: int = 0
    rounds: Mapping[str, int] = field(default_factory=dict)
    released: Mapping[str, int] = field(default_factory=dict)
    receipt: str = ""

    def after(self, *, run: str, round_: int, currency: str, units: int) -> Self:
        """The contents after one more release; of the runs, the newest 1,000 are kept."""
        rounds = {**{name: n for name, n in self.rounds.items() if name != run}, run: round_}
        rounds = dict(list(rounds.items())[-_MOST_RUNS:])
        total = self.released.get(currency, 0) + units
        return replace(self, rounds=rounds, released={**self.released, currency: total})

    def to_bytes(self) -> bytes:
        """The whole file."""
        table = asdict(self)
        if not self.receipt:
            del table["receipt"]  # as in versions without receipts
        body = json.dumps(table).encode() + b"\n"
        return f"{_TITLE} {sha256(body).hexdigest()}\n".encode() + body

    @classmethod
    def of(cls, image: bytes) -> Self:
        """The contents of a file; a ValueError where it is damaged or no vault."""
        title, _, body = image.partition(b"\n")
        if title != f"{_TITLE} {sha256(body).hexdigest()}".encode():
            return cls._of_notes(image)
        table = json.loads(body)
        known = isinstance(table, dict) and table.keys() | {"receipt"} == set(cls.__slots__)
        if not known:
            raise ValueError("its fields are not those of this version of fedmuster")
        if not _is_count(table["sequence"]):
            raise ValueError("its sequence number is none")
        receipt = table.get("receipt", "")
        if not isinstance(receipt, str):
            raise ValueError("its receipt is none")
        counts = {name: _counts(table[name]) for name in _COUNTS}
        return cls(sequence=table["sequence"], receipt=receipt, **counts)

    @classmethod
    def _of_notes(cls, image: bytes) -> Self:
        """The release notes of fedmuster 0.1, which had rounds and no totals."""
        try:
            rounds = _counts(json.loads(image))
        except (ValueError, RecursionError):
            rounds = {}
        if not rounds:
            raise ValueError("it is damaged, was edited, or is of another version of fedmuster")
        return cls(rounds=rounds)


_COUNTS: Final = ("rounds", "released")


def _counts(table: Any) -> dict[str, int]:
    if not isinstance(table, dict) or not all(_is_count(value) for value in table.values()):
        raise ValueError("it holds something else than counts")
    return table


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_new_to(state: RecordDict) -> bool:
    """Whether no release is on record in the ``state`` of a context."""
    return _RECORD not in state


class ClientVault:
    """Keeps :class:`VaultContents` in a file on the client's disk, and in the app's context.

    The ``state`` of a context lasts as long as Flower's run and the SuperNode do. A file lasts
    longer, and processes that share it take turns. Where both are there, the file counts, and it
    must not be older than what the context remembers of it.

    Args:
        state: of the ClientApp's context.
        file: an absolute path in a folder that exists; None to keep everything in the context.
    """

    def __init__(self, state: RecordDict, file: str | None) -> None:
        self._state = state
        if file is not None and not Path(file).is_absolute():
            raise StateError(
                f"the path {file!r} of the releases is relative, expected one that starts with /: "
                "what was released must not depend on the folder in which a process happens to be"
            )
        # Two names of a file must not give it two locks.
        self._file = None if file is None else Path(os.path.realpath(file))

    def contents(self) -> VaultContents:
        """What is remembered."""
        record = self._state.config_records.get(_RECORD)
        image = None if record is None else record.get("image")
        known = VaultContents()
        if isinstance(image, bytes):
            known = _parsed(image, "the context of this Flower run")
        if self._file is None:
            return known
        stored = self._stored(self._file)
        if stored.sequence < known.sequence:
            raise StateError(
                f"{self._file} was deleted, or replaced by an older copy, since this client's last "
                "release: put the newest copy back"
            )
        return stored

    def change(self, changed: Callable[[VaultContents], VaultContents]) -> None:
        """Put ``changed(contents)`` in place of the contents; on disk when this returns.

        An error of ``changed`` leaves everything as it is.
        """
        if self._file is None:
            image = self._next_image(changed)
        else:
            with _locked(self._file):
                image = self._next_image(changed)
                _write(self._file, image)
        self._state[_RECORD] = ConfigRecord({"image": image})

    def keep_evidence(self, text: str) -> None:
        """Put a refused receipt beside the file, for an auditor; the first one stays."""
        if self._file is None:
            return
        evidence = self._file.with_name(f"{self._file.name}.refused")
        with _locked(self._file):
            if not evidence.exists():
                _write(evidence, text.encode())

    def _next_image(self, changed: Callable[[VaultContents], VaultContents]) -> bytes:
        before = self.contents()
        return replace(changed(before), sequence=before.sequence + 1).to_bytes()

    @staticmethod
    def _stored(file: Path) -> VaultContents:
        try:
            if file.exists() and not file.is_file():  # a pipe would be read for ever
                raise StateError(f"{file} is no file: name one, or one that does not exist yet")
            image = file.read_bytes()
        except FileNotFoundError:
            return VaultContents()
        except OSError as error:
            raise StateError(
                f"{file}, with this client's releases, cannot be read: {error}"
            ) from None
        return _parsed(image, str(file))


def _parsed(image: bytes, source: str) -> VaultContents:
    try:
        return VaultContents.of(image)
    except (ValueError, RecursionError) as error:
        raise StateError(
            f"{source} cannot be read as a record of this client's releases: {error}; restore the "
            "newest copy. A client that begins with a new file forgets what it has released"
        ) from None


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Keep other processes out; the lock file stays, because a new one could be locked twice."""
    lock = file.with_name(f"{file.name}.lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StateError(
            f"{lock} cannot be opened: {error}; the folder must exist and be writable"
        ) from None
    try:
        end = time.monotonic() + _PATIENCE_SECONDS
        while not _try_lock(handle):
            if time.monotonic() > end:
                raise InUseError(f"{file} is locked by another process: see what it waits for")
            time.sleep(_RETRY_SECONDS)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(file: Path, image: bytes) -> None:
    """Replace the file, readable by its owner alone; durable when this returns.

    The name of the temporary file is always the same, so a crash leaves one at most.
    """
    temporary = file.with_name(f".{file.name}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as written:
            written.write(image)
            written.flush()
            os.fsync(handle)
        temporary.replace(file)
        sync_folder(file.parent)
    except OSError as error:
        raise StateError(f"{file} cannot be written, so nothing is released: {error}") from None
