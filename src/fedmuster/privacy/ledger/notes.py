"""Signed notes and checkpoints: C2SP's signed-note, tlog-checkpoint and tlog-cosignature.

A note is text, an empty line, and a line for each signature. A checkpoint is a note whose text is
the log's name, its size, and its root; anybody can verify it without fedmuster. Signatures are
Ed25519, by ``cryptography`` (the extra ``ledger``), which is imported when one is made or verified.
"""

import os
import time
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from fedmuster.core.errors import DataError, LedgerError, MissingExtraError
from fedmuster.core.files import sync_folder
from fedmuster.privacy.ledger.chain import OWNER_ONLY, plain_errors
from fedmuster.privacy.ledger.merkle import HASH_BYTES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_LOG, _WITNESS = 1, 4
"""The kinds of keys: Ed25519 over the note's text, and over a witness's timestamp and the text."""
_ID_BYTES, _TIME_BYTES, _KEY_BYTES = 4, 8, 32
_DASH: Final = "— "
_LONGEST_NOTE: Final = 16_000
_MOST_SIGNATURES: Final = 32
_LONGEST_SIZE: Final = 18


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """A public key, and the name of the log or witness that it belongs to."""

    name: str
    kind: int
    public: bytes

    def __str__(self) -> str:
        """As ``name+id+key``, the form in which keys are handed out."""
        return f"{self.name}+{self.id.hex()}+{_text(bytes([self.kind]) + self.public)}"

    @classmethod
    def of(cls, text: str) -> Self:
        """The key with this text form; a :class:`DataError` where it is none."""
        name, _, rest = text.strip().partition("+")
        id_, _, image = rest.partition("+")
        data = _bytes(image)
        key = cls(name, data[0] if data else 0, data[1:])
        fits = _is_name(name) and key.kind in (_LOG, _WITNESS) and len(key.public) == _KEY_BYTES
        if not fits or id_ != key.id.hex():
            raise DataError(f"{text[:200]!r} is no public key, expected the form name+id+key")
        return key

    @property
    def id(self) -> bytes:
        """Which key of that name it is, in signatures."""
        line = f"{self.name}\n".encode()
        return sha256(line + bytes([self.kind]) + self.public).digest()[:_ID_BYTES]

    @property
    def is_witness(self) -> bool:
        """Whether it signs what others log."""
        return self.kind == _WITNESS

    def verifies(self, note: "Note") -> bool:
        """Whether the note bears a good signature by this key."""
        return any(self._fits(note.text, each) for each in note.signatures if each.of(self))

    def _fits(self, text: str, signature: "Signature") -> bool:
        key = _ed25519().Ed25519PublicKey.from_public_bytes(self.public)
        from cryptography.exceptions import InvalidSignature

        proof, message = signature.data, text.encode()
        if self.is_witness:
            time_, proof = proof[:_TIME_BYTES], proof[_TIME_BYTES:]
            message = _timed(message, int.from_bytes(time_))
        try:
            key.verify(proof, message)
        except InvalidSignature:
            return False
        return True


class Signature(NamedTuple):
    """One line under a note."""

    name: str
    id: bytes
    data: bytes

    def of(self, key: VerifierKey) -> bool:
        """Whether it claims to be by this key."""
        return (self.name, self.id) == (key.name, key.id)

    def __str__(self) -> str:
        return f"{_DASH}{self.name} {_text(self.id + self.data)}\n"

    @classmethod
    def parse(cls, line: str) -> "Signature":
        """The signature in a line; a :class:`DataError` where there is none."""
        name, _, image = line.removeprefix(_DASH).rstrip("\n").partition(" ")
        data = _bytes(image)
        if not line.startswith(_DASH) or not _is_name(name) or len(data) <= _ID_BYTES:
            raise DataError("a note's signature cannot be read: it was cut off or changed")
        return cls(name, data[:_ID_BYTES], data[_ID_BYTES:])


class Note(NamedTuple):
    """A text that others have signed."""

    text: str
    signatures: tuple[Signature, ...]

    def __str__(self) -> str:
        return f"{self.text}\n{''.join(map(str, self.signatures))}"

    @classmethod
    def parse(cls, image: str) -> Self:
        """The note; a :class:`DataError` where it is none."""
        if len(image) > _LONGEST_NOTE:
            raise DataError(f"a note of {len(image):,} characters, expected {_LONGEST_NOTE:,}")
        try:
            image.encode()  # it is bytes that are signed
        except UnicodeEncodeError:
            raise DataError("a note with characters that are none") from None
        text, gap, lines = image.rpartition("\n\n")
        if not gap or not lines.endswith("\n"):
            raise DataError("this is no signed note: it was cut off, or is something else")
        parts = lines.splitlines()
        if len(parts) > _MOST_SIGNATURES:
            raise DataError(f"a note with {len(parts)} signatures, at most {_MOST_SIGNATURES}")
        return cls(f"{text}\n", tuple(map(Signature.parse, parts)))

    def cosigned(self, signature: Signature) -> "Note":
        """The note with one more signature."""
        return Note(self.text, (*self.signatures, signature))


class Checkpoint(NamedTuple):
    """The state of a log: what a signature under it vouches for."""

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        """As it is signed."""
        return f"{self.origin}\n{self.size}\n{_text(self.root)}\n"

    @classmethod
    def of(cls, note: Note) -> Self:
        """The checkpoint that a note is; a :class:`DataError` where it is none."""
        origin, size, root, *_ = (*note.text.split("\n"), "", "", "")
        counts = size.isascii() and size.isdecimal() and len(size) <= _LONGEST_SIZE
        found = cls(origin, int(size) if counts else 0, _bytes(root))
        if len(found.root) != HASH_BYTES or note.text != found.text:
            raise DataError("the note is no checkpoint: expected a log's name, its size and root")
        return found


class SigningKey:
    """A private key in a file that its owner alone can read."""

    def __init__(self, verifier: VerifierKey, secret: "Ed25519PrivateKey") -> None:
        self.verifier = verifier
        self._secret = secret

    @classmethod
    def load_or_make(cls, path: Path, name: str, *, witness: bool = False) -> Self:
        """The key in the file ``path``; a new one with this name where there is no such file."""
        if not path.exists():
            cls._make(path, name, witness=witness)
        return cls.load(path)

    @staticmethod
    def _make(path: Path, name: str, *, witness: bool) -> None:
        if not _is_name(name):
            raise DataError(f"{name!r} cannot name a key: no spaces and no +")
        secret = _ed25519().Ed25519PrivateKey.generate()
        kind = _WITNESS if witness else _LOG
        key = VerifierKey(name, kind, secret.public_key().public_bytes_raw())
        data = _text(bytes([kind]) + secret.private_bytes_raw())
        unnamed = path.with_name(f".{path.name}.{os.getpid()}.new")
        with plain_errors(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            unnamed.unlink(missing_ok=True)
            handle = os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
            try:
                with os.fdopen(handle, "w", encoding="ascii") as file:
                    file.write(f"PRIVATE+KEY+{name}+{key.id.hex()}+{data}\n")
                    file.flush()
                    os.fsync(handle)
                with suppress(FileExistsError):  # another process was faster: its key counts
                    path.hardlink_to(unnamed)
            finally:
                unnamed.unlink()
            sync_folder(path.parent)

    @classmethod
    def load(cls, path: Path) -> Self:
        """The key in a file; refused where others may read it."""
        with plain_errors(path):
            if path.stat().st_mode & 0o077:
                raise LedgerError(
                    f"{path} holds a private key that others may read: make a new key, or, if "
                    f"nobody has read it: chmod 600 {path}"
                )
            image = path.read_bytes().decode("ascii", errors="replace")
        try:
            private, word, name, id_, text = image.strip().split("+", 4)
            data = _bytes(text)
            secret = _ed25519().Ed25519PrivateKey.from_private_bytes(data[1:])
            public = secret.public_key().public_bytes_raw()
            verifier = VerifierKey.of(str(VerifierKey(name, data[0], public)))
        except (ValueError, IndexError) as error:
            raise LedgerError(f"{path} holds no private key: {error}; restore it") from None
        if (private, word, id_) != ("PRIVATE", "KEY", verifier.id.hex()):
            raise LedgerError(f"{path} holds no private key: restore it")
        return cls(verifier, secret)

    def sign(self, text: str, *, seconds: int | None = None) -> Signature:
        """Sign a note's text; a witness signs what time it is, too."""
        message = prefix = b""
        if self.verifier.is_witness:
            seconds = int(time.time()) if seconds is None else seconds
            prefix, message = seconds.to_bytes(_TIME_BYTES), _timed(text.encode(), seconds)
        else:
            message = text.encode()
        data = prefix + self._secret.sign(message)
        return Signature(self.verifier.name, self.verifier.id, data)


def witnessed_at(note: Note, key: VerifierKey) -> int | None:
    """When the witness has signed, in seconds since 1970; None if it has not."""
    times = [
        int.from_bytes(each.data[:_TIME_BYTES])
        for each in note.signatures
        if each.of(key) and key.verifies(Note(note.text, (each,)))
    ]
    return max(times, default=None) if key.is_witness else None


def _timed(text: bytes, seconds: int) -> bytes:
    return b"cosignature/v1\ntime %d\n" % seconds + text


def _is_name(name: str) -> bool:
    return 0 < len(name) <= 200 and name.isprintable() and not set(name) & {" ", "+"}


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def _bytes(text: str) -> bytes:
    """What base64 stands for; nothing where it is no base64, or not in its one right form."""
    try:
        data = b64decode(text, validate=True)
    except (NotBase64, ValueError):
        return b""
    return data if _text(data) == text else b""


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise MissingExtraError(
            "cryptography", extra="ledger", purpose="signing and verifying what a ledger says"
        ) from error
    return ed25519
