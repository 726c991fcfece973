"""How fedmuster's data travel in Flower's messages: one ``ConfigRecord`` under its own key.

Metrics would not do: Flower's strategies stop the run if one client sends a metric that another
does not. Whatever is read came from another machine, so everything is checked: types, lengths,
numbers that are not finite. A server takes the record out (:func:`strip`) before a strategy sees
the reply, a mod before the app sees the message.

Who a node is, is asked with a :func:`question`. It travels as a *train* message without arrays,
because a ClientApp wraps its mods around the functions that are registered with it: a query to an
app without a query function is refused by Flower before any mod hears of it, and nearly every app
trains; one that does not, under that name, is asked in other ways (``choosing/questions.py``).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self, TypeGuard, get_args

from flwr.app import ConfigRecord, ConfigRecordValues, Message, MessageType, RecordDict

from fedmuster.core.config import named, to_table
from fedmuster.core.errors import ConfigError, DataError
from fedmuster.privacy.mechanism import Mechanism

RECORD: Final = "fedmuster"
"""The key of the ``ConfigRecord`` in messages and replies."""

MOST_SIGNALS: Final = 64
LONGEST_NAME: Final = 200
_MOST_EDGES: Final = 64
_LONGEST_MECHANISM: Final = 4_000
_LARGEST: Final = 2**62  # more than anything that is counted, and less than Flower's integers hold


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """Server to client: who are you? Answered with :class:`Facts` by the mod, not by the app."""

    PREFIX: ClassVar[str] = "question."

    wanted: str = "facts"

    def into(self, content: RecordDict) -> None:
        """Add this to a message's content."""
        _write(content, self.PREFIX, {"wanted": self.wanted})

    @classmethod
    def of(cls, content: RecordDict) -> Self | None:
        """What the content carries; None where it carries none."""
        values = _read(content, cls.PREFIX)
        return None if values is None else cls(wanted=_text(cls, values, "wanted"))


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivacyGrant:
    """What was debited for a release, and how it is to be made.

    Args:
        amount: in the mechanism's currency, as the ledger has it.
        mechanism: as JSON of its table.
    """

    amount: float
    mechanism: str

    @classmethod
    def on(cls, mechanism: Mechanism, amount: float) -> Self:
        """The grant of ``amount`` for a release by ``mechanism``."""
        return cls(amount=amount, mechanism=json.dumps(to_table(mechanism)))

    def parsed_mechanism(self) -> Mechanism:
        """The mechanism.

        Raises:
            DataError: it is none.
        """
        kinds: dict[str, type[Mechanism]] = {kind.name: kind for kind in get_args(Mechanism)}
        try:
            table = json.loads(self.mechanism)
            return named(kinds, table, key=("mechanism",), what="mechanism")
        except (ValueError, RecursionError, ConfigError) as error:
            raise DataError(f"grant: the mechanism cannot be read: {error}") from None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """Server to client: what a train message asks for beyond training.

    Only added where it is needed, for some apps and mods count the records that they get.

    Args:
        run: the run's name in its ledger.
        round: of the run.
        measure_gain: whether the accuracy before and after training is wanted.
        grant: what was debited for the update, in a private run.
    """

    PREFIX: ClassVar[str] = "ask."

    run: str
    round: int
    measure_gain: bool = False
    grant: PrivacyGrant | None = None

    def into(self, content: RecordDict) -> None:
        """Add this to a message's content."""
        values: dict[str, ConfigRecordValues] = {
            "run": self.run,
            "round": self.round,
            "measure-gain": self.measure_gain,
        }
        if self.grant is not None:
            values |= {"amount": self.grant.amount, "mechanism": self.grant.mechanism}
        _write(content, self.PREFIX, values)

    @classmethod
    def of(cls, content: RecordDict) -> Self | None:
        """What the content carries; None where it carries none."""
        values = _read(content, cls.PREFIX)
        if values is None:
            return None
        measure_gain = values.get("measure-gain", False)
        if not isinstance(measure_gain, bool):
            raise _misfit(cls, "measure-gain", measure_gain, "true or false")
        grant = None
        if "amount" in values or "mechanism" in values:
            grant = PrivacyGrant(
                amount=_number(cls, values, "amount"),
                mechanism=_text(cls, values, "mechanism", longest=_LONGEST_MECHANISM),
            )
        return cls(
            run=_text(cls, values, "run"),
            round=_count(cls, values, "round", least=1),
            measure_gain=measure_gain,
            grant=grant,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Client to server, with every train reply. All of it is the client's word.

    Args:
        compute_seconds: that the app took, on the client's monotonic clock.
        trained_before: train calls that this process had answered before; 0 is a cold start.
        signals: whatever else was measured.
    """

    PREFIX: ClassVar[str] = "report."
    SIGNAL: ClassVar[str] = "signal."

    compute_seconds: float
    trained_before: int
    signals: Mapping[str, float] = field(default_factory=dict)

    def into(self, content: RecordDict) -> None:
        """Add this to a reply's content."""
        values: dict[str, ConfigRecordValues] = {
            "compute-seconds": self.compute_seconds,
            "trained-before": self.trained_before,
        }
        values |= {self.SIGNAL + name: value for name, value in self.signals.items()}
        _write(content, self.PREFIX, values)

    @classmethod
    def of(cls, content: RecordDict) -> Self | None:
        """What the content carries; None where it carries none."""
        values = _read(content, cls.PREFIX)
        if values is None:
            return None
        sent = [key for key in values if key.startswith(cls.SIGNAL)]
        if len(sent) > MOST_SIGNALS:
            raise _misfit(cls, "signals", len(sent), f"at most {MOST_SIGNALS}")
        for key in sent:
            _check_text(cls, "name of a signal", key.removeprefix(cls.SIGNAL))
        return cls(
            compute_seconds=_number(cls, values, "compute-seconds"),
            trained_before=_count(cls, values, "trained-before"),
            signals={
                key.removeprefix(cls.SIGNAL): _number(cls, values, key, least=-math.inf)
                for key in sent
            },
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """Client to server: the update in this reply is clipped and noisy, for what was granted.

    A reply of a private run without it was sent by an app that lacks the ``PrivateMod``.
    """

    PREFIX: ClassVar[str] = "release."

    run: str
    round: int
    amount: float

    def into(self, content: RecordDict) -> None:
        """Add this to a reply's content."""
        _write(
            content,
            self.PREFIX,
            {"run": self.run, "round": self.round, "amount": self.amount},
        )

    @classmethod
    def of(cls, content: RecordDict) -> Self | None:
        """What the content carries; None where it carries none."""
        values = _read(content, cls.PREFIX)
        if values is None:
            return None
        return cls(
            run=_text(cls, values, "run"),
            round=_count(cls, values, "round", least=1),
            amount=_number(cls, values, "amount"),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """Client to server: the answer to a :class:`Question`. All of it is the client's word.

    Args:
        client_id: by which it wants to be known when it comes back.
        edges: the edge servers, or groups of nodes, that it belongs to.
        num_samples: how much data it has.
    """

    PREFIX: ClassVar[str] = "facts."

    client_id: str | None = None
    edges: tuple[str, ...] = ()
    num_samples: int | None = None

    def into(self, content: RecordDict) -> None:
        """Add this to a reply's content."""
        values: dict[str, ConfigRecordValues] = {"known": True}  # also where nothing is
        if self.edges:  # Flower cannot measure the size of a message with an empty list
            values["edges"] = list(self.edges)
        if self.client_id is not None:
            values["client-id"] = self.client_id
        if self.num_samples is not None:
            values["num-samples"] = self.num_samples
        _write(content, self.PREFIX, values)

    @classmethod
    def of(cls, content: RecordDict) -> Self | None:
        """What the content carries; None where it carries none."""
        values = _read(content, cls.PREFIX)
        if values is None:
            return None
        edges = values.get("edges", [])
        if not isinstance(edges, list) or len(edges) > _MOST_EDGES:
            raise _misfit(cls, "edges", edges, f"a list of at most {_MOST_EDGES} names")
        return cls(
            client_id=_text(cls, values, "client-id") if "client-id" in values else None,
            edges=tuple(_check_text(cls, "name of an edge", edge) for edge in edges),
            num_samples=_count(cls, values, "num-samples") if "num-samples" in values else None,
        )


def question(node_id: int, *, kind: str = MessageType.TRAIN, ttl: float | None = None) -> Message:
    """The message that asks a node who it is; its answer holds :class:`Facts`.

    An app without fedmuster's mod fails on it, for it brings no model, and answers with an error.
    """
    content = RecordDict()
    Question().into(content)
    return Message(content, node_id, kind, ttl=ttl)


def strip(content: RecordDict) -> None:
    """Take fedmuster's record out, whatever it holds."""
    content.pop(RECORD, None)


def _write(content: RecordDict, prefix: str, values: Mapping[str, ConfigRecordValues]) -> None:
    record = content.get(RECORD)
    if not isinstance(record, ConfigRecord):
        record = content[RECORD] = ConfigRecord()
    for key in [key for key in record if key.startswith(prefix)]:
        del record[key]
    for key, value in values.items():
        record[prefix + key] = value


def _read(content: RecordDict, prefix: str) -> dict[str, ConfigRecordValues] | None:
    record = content.get(RECORD)
    if record is None:
        return None
    if not isinstance(record, ConfigRecord):
        raise DataError(f"{RECORD!r} is a {type(record).__name__}, expected a ConfigRecord")
    found = {
        key.removeprefix(prefix): value for key, value in record.items() if key.startswith(prefix)
    }
    return found or None


def _number(
    owner: type, values: Mapping[str, ConfigRecordValues], key: str, *, least: float = 0.0
) -> float:
    value = values.get(key)
    if _is_integer(value):
        value = float(value)
    if not isinstance(value, float) or not math.isfinite(value) or value < least:
        expected = "a finite number" + (", not negative" if least == 0 else "")
        raise _misfit(owner, key, value, expected)
    return value


def _count(
    owner: type, values: Mapping[str, ConfigRecordValues], key: str, *, least: int = 0
) -> int:
    value = values.get(key)
    if not _is_integer(value) or value < least:
        raise _misfit(owner, key, value, f"a whole number from {least}")
    return value


def _is_integer(value: object) -> TypeGuard[int]:
    """Whether it is a whole number, which true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _text(
    owner: type,
    values: Mapping[str, ConfigRecordValues],
    key: str,
    *,
    longest: int = LONGEST_NAME,
) -> str:
    return _check_text(owner, key, values.get(key), longest=longest)


def _check_text(owner: type, key: str, value: Any, *, longest: int = LONGEST_NAME) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= longest or not value.isprintable():
        raise _misfit(owner, key, value, f"1 … {longest} printable characters")
    return value


def _misfit(owner: type, key: str, value: object, expected: str) -> DataError:
    shown = repr(value)
    if len(shown) > 60:
        shown = shown[:57] + "…"
    return DataError(f"{owner.__name__.lower()}: {key} is {shown}, expected {expected}")
