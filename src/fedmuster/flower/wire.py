"""How fedmuster's data travel in Flower's messages: one ``ConfigRecord`` under its own key.

Metrics would not do: Flower's strategies stop the run if one client sends a metric that another
does not. Data come from another machine, so everything is checked: types, lengths, numbers that are
not finite. A server takes the record out (:func:`strip`) before a strategy sees the reply, a mod
before the app sees the message.

The :func:`question` which client a node is travels as a *train* message without arrays, because a
ClientApp wraps its mods around the functions that are registered with it: Flower refuses a query to
an app without a query function before any mod hears of it, and nearly every app trains. An app
without a plain training function is asked in other ways (``node_messages.py``).

Metrics have the names that the app gives them; :func:`loss_of` and :func:`accuracy_of` find these
two. Exact names come first, then names that end in one of them ("eval_accuracy", "train-loss").
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from numbers import Real
from typing import Any, ClassVar, Final, Self, TypeGuard

from flwr.app import (
    ConfigRecord,
    ConfigRecordValues,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)

from fedmuster.core.config import to_table
from fedmuster.core.errors import ConfigError, DataError
from fedmuster.privacy.ledger.receipts import LONGEST_RECEIPT
from fedmuster.privacy.mechanisms import Mechanism, received_mechanism

RECORD: Final = "fedmuster"
"""The key of the ``ConfigRecord`` in messages and replies."""

MOST_SIGNALS: Final = 64
LONGEST_NAME: Final = 200
_MOST_EDGES: Final = 64
_LONGEST_MECHANISM: Final = 4_000
_LARGEST: Final = 2**62  # more than anything that is counted, and less than Flower's integers hold

Values = dict[str, ConfigRecordValues]


class _Received:
    """Values of one kind of data that came from another machine, checked as they are read."""

    def __init__(self, kind: str, values: Mapping[str, ConfigRecordValues]) -> None:
        self._kind = kind
        self.values = values

    def number(self, key: str, *, least: float = 0.0) -> float:
        value = self.values.get(key)
        if _is_integer(value):
            value = float(value)
        if not isinstance(value, float) or not math.isfinite(value) or value < least:
            expected = "a finite number" + (", not negative" if least == 0 else "")
            raise self.misfit(key, value, expected)
        return value

    def count(self, key: str, *, least: int = 0) -> int:
        value = self.values.get(key)
        if not _is_integer(value) or value < least:
            raise self.misfit(key, value, f"a whole number from {least}")
        return value

    def flag(self, key: str) -> bool:
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            raise self.misfit(key, value, "true or false")
        return value

    def text(self, key: str, *, longest: int = LONGEST_NAME) -> str:
        return self.printable(key, self.values.get(key), longest=longest)

    def printable(self, what: str, value: Any, *, longest: int = LONGEST_NAME) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= longest or not value.isprintable():
            raise self.misfit(what, value, f"1 … {longest} printable characters")
        return value

    def misfit(self, key: str, value: object, expected: str) -> DataError:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "…"
        return DataError(f"{self._kind}: {key} is {shown}, expected {expected}")


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST


class _Carried(ABC):
    """Data that travel under a prefix of their own in fedmuster's record."""

    __slots__ = ()
    PREFIX: ClassVar[str]

    @abstractmethod
    def _values(self) -> Values: ...

    @classmethod
    @abstractmethod
    def _from(cls, received: _Received) -> Self: ...

    def into(self, content: RecordDict) -> None:
        """Add the data to the content of a message or reply, in place of older ones."""
        record = content.get(RECORD)
        if not isinstance(record, ConfigRecord):
            record = content[RECORD] = ConfigRecord()
        for key in [key for key in record if key.startswith(self.PREFIX)]:
            del record[key]
        for key, value in self._values().items():
            record[self.PREFIX + key] = value

    @classmethod
    def of(cls, content: RecordDict) -> Self | None:
        """The data that a content carries; None where it carries none."""
        record = content.get(RECORD)
        if record is None:
            return None
        if not isinstance(record, ConfigRecord):
            raise DataError(f"{RECORD!r} is a {type(record).__name__}, expected a ConfigRecord")
        prefix = cls.PREFIX
        found = {k.removeprefix(prefix): v for k, v in record.items() if k.startswith(prefix)}
        return cls._from(_Received(cls.__name__.lower(), found)) if found else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Question(_Carried):
    """Server to client: which client are you? The mod answers with :class:`Facts`, not the app."""

    PREFIX: ClassVar[str] = "question."

    wanted: str = "facts"

    def _values(self) -> Values:
        return {"wanted": self.wanted}

    @classmethod
    def _from(cls, received: _Received) -> Self:
        return cls(wanted=received.text("wanted"))


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivacyGrant:
    """The debited amount for a release, and the mechanism that makes it.

    Args:
        amount: in the mechanism's currency, as the ledger has it.
        mechanism: as JSON of its table.
        receipt: of the debit, as JSON; empty from servers whose ledger gives none.
    """

    amount: float
    mechanism: str
    receipt: str = ""

    @classmethod
    def on(cls, mechanism: Mechanism, amount: float, receipt: str = "") -> Self:
        """The grant of ``amount`` for a release by ``mechanism``."""
        return cls(amount=amount, mechanism=json.dumps(to_table(mechanism)), receipt=receipt)

    def parsed_mechanism(self) -> Mechanism:
        """The mechanism; a :class:`DataError` where the JSON describes none."""
        try:
            return received_mechanism(json.loads(self.mechanism))
        except (ValueError, RecursionError, ConfigError) as error:
            raise DataError(f"grant: the mechanism cannot be read: {error}") from None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask(_Carried):
    """Server to client: what a train message asks for beyond training.

    Added only where it is needed, because some apps and mods count the records that they get.

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

    def _values(self) -> Values:
        values: Values = {"run": self.run, "round": self.round, "measure-gain": self.measure_gain}
        if self.grant is not None:
            values |= {"amount": self.grant.amount, "mechanism": self.grant.mechanism}
            if self.grant.receipt:
                values["receipt"] = self.grant.receipt
        return values

    @classmethod
    def _from(cls, received: _Received) -> Self:
        grant = None
        if not received.values.keys().isdisjoint({"amount", "mechanism"}):
            mechanism = received.text("mechanism", longest=_LONGEST_MECHANISM)
            receipt = ""
            if "receipt" in received.values:
                receipt = received.text("receipt", longest=LONGEST_RECEIPT)
            amount = received.number("amount")
            grant = PrivacyGrant(amount=amount, mechanism=mechanism, receipt=receipt)
        return cls(
            run=received.text("run"),
            round=received.count("round", least=1),
            measure_gain=received.flag("measure-gain"),
            grant=grant,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Report(_Carried):
    """Client to server, with every train reply; the client may lie in all of it.

    Args:
        compute_seconds: that the app took, on the client's monotonic clock.
        trained_before: train calls that this process had answered before; 0 is a cold start.
        signals: other measurements, by name.
    """

    PREFIX: ClassVar[str] = "report."
    SIGNAL: ClassVar[str] = "signal."

    compute_seconds: float
    trained_before: int
    signals: Mapping[str, float] = field(default_factory=dict)

    def _values(self) -> Values:
        values: Values = {self.SIGNAL + name: value for name, value in self.signals.items()}
        values["compute-seconds"] = self.compute_seconds
        return values | {"trained-before": self.trained_before}

    @classmethod
    def _from(cls, received: _Received) -> Self:
        sent = [key for key in received.values if key.startswith(cls.SIGNAL)]
        if len(sent) > MOST_SIGNALS:
            raise received.misfit("signals", len(sent), f"at most {MOST_SIGNALS}")
        names = {
            key: received.printable("name of a signal", key.removeprefix(cls.SIGNAL))
            for key in sent
        }
        return cls(
            compute_seconds=received.number("compute-seconds"),
            trained_before=received.count("trained-before"),
            signals={name: received.number(key, least=-math.inf) for key, name in names.items()},
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Release(_Carried):
    """Client to server: the update in this reply is clipped and noisy, for what was granted.

    A reply of a private run without it was sent by an app that lacks the ``PrivateMod``.
    """

    PREFIX: ClassVar[str] = "release."

    run: str
    round: int
    amount: float

    def _values(self) -> Values:
        return {"run": self.run, "round": self.round, "amount": self.amount}

    @classmethod
    def _from(cls, received: _Received) -> Self:
        run, round_ = received.text("run"), received.count("round", least=1)
        return cls(run=run, round=round_, amount=received.number("amount"))


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldReceipt(_Carried):
    """Client to server: the newest receipt that the client holds; the next must lead on from it.

    Args:
        log_size: how many leaves the ledger's log had in it; 0 for none.
    """

    PREFIX: ClassVar[str] = "held."

    log_size: int

    def _values(self) -> Values:
        return {"log-size": self.log_size}

    @classmethod
    def _from(cls, received: _Received) -> Self:
        return cls(log_size=received.count("log-size"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts(_Carried):
    """Client to server: the answer to a :class:`Question`; the client may lie in all of it.

    Args:
        client_id: the name under which the client wants to be known when it comes back.
        edges: the edge servers, or groups of nodes, that the client belongs to.
        num_samples: how much data the client has.
        log_size: as in :class:`HeldReceipt`.
    """

    PREFIX: ClassVar[str] = "facts."

    client_id: str | None = None
    edges: tuple[str, ...] = ()
    num_samples: int | None = None
    log_size: int = 0

    def _values(self) -> Values:
        values: Values = {"known": True}  # also where nothing is
        if self.edges:  # Flower cannot measure the size of a message with an empty list
            values["edges"] = list(self.edges)
        if self.client_id is not None:
            values["client-id"] = self.client_id
        if self.num_samples is not None:
            values["num-samples"] = self.num_samples
        if self.log_size > 0:
            values["log-size"] = self.log_size
        return values

    @classmethod
    def _from(cls, received: _Received) -> Self:
        edges = received.values.get("edges", [])
        if not isinstance(edges, list) or len(edges) > _MOST_EDGES:
            raise received.misfit("edges", edges, f"a list of at most {_MOST_EDGES} names")
        known = received.values.keys()
        return cls(
            client_id=received.text("client-id") if "client-id" in known else None,
            edges=tuple(received.printable("name of an edge", edge) for edge in edges),
            num_samples=received.count("num-samples") if "num-samples" in known else None,
            log_size=received.count("log-size") if "log-size" in known else 0,
        )


def question(node_id: int, *, kind: str = MessageType.TRAIN, ttl: float | None = None) -> Message:
    """The message that asks a node which client it is; the answer holds :class:`Facts`.

    An app without fedmuster's mod fails, because the message brings no model, and answers an error.
    """
    content = RecordDict()
    Question().into(content)
    return Message(content, node_id, kind, ttl=ttl)


def strip(content: RecordDict) -> None:
    """Take fedmuster's record out of a content."""
    content.pop(RECORD, None)


# --- Which of an app's own metrics is the loss, and which the accuracy ---------------------------

_WHEN: Final = ("eval", "test", "val", "train")
_ACCURACIES: Final = ("accuracy", "acc")
ACCURACY_NAMES: Final = (
    *_ACCURACIES,
    *(f"{when}_{what}" for when in _WHEN for what in _ACCURACIES),
)
LOSS_NAMES: Final = ("loss", "train_loss", "eval_loss", "val_loss", "test_loss")


def accuracy_of(metrics: MetricRecord) -> float | None:
    """The accuracy among an app's metrics, if there is one.

    Example:
        >>> accuracy_of(MetricRecord({"eval_loss": 0.7, "eval_acc": 0.9}))
        0.9
    """
    return _first_of(metrics, ACCURACY_NAMES)


def loss_of(metrics: MetricRecord) -> float | None:
    """The loss among an app's metrics, if there is one.

    Example:
        >>> loss_of(MetricRecord({"num-examples": 32, "final-train-loss": 0.7}))
        0.7
    """
    return _first_of(metrics, LOSS_NAMES)


def loss_names(metrics: MetricRecord) -> tuple[str, ...]:
    """The metrics that are losses, the likeliest first."""
    return _in_order(tuple(metrics), LOSS_NAMES)


def signals_of(metrics: MetricRecord) -> dict[str, float]:
    """Every metric that is one finite number, and the loss also as "loss", where policies look.

    Example:
        >>> signals_of(MetricRecord({"train_loss": 0.7, "per-class": [0.1, 0.9]}))
        {'train_loss': 0.7, 'loss': 0.7}
    """
    signals = {
        name: float(value)
        for name, value in metrics.items()
        if not isinstance(value, list) and math.isfinite(value)
    }
    loss = loss_of(metrics)
    return signals if loss is None else signals | {"loss": loss}


def finite_metric(metrics: MetricRecord, name: str) -> float | None:
    """One metric as a number; None where it is a list or not finite."""
    value = metrics[name]  # a list, or what else a strategy puts into a dict of its own
    return float(value) if isinstance(value, Real) and math.isfinite(value) else None


def _first_of(metrics: MetricRecord, wanted: tuple[str, ...]) -> float | None:
    values = (finite_metric(metrics, name) for name in _in_order(tuple(metrics), wanted))
    return next((value for value in values if value is not None), None)


@lru_cache(maxsize=256)  # replies of a federation bring the same names again and again
def _in_order(names: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[str, ...]:
    plain = {name: str(name).lower().replace("-", "_") for name in sorted(names, key=str)}
    exact = [name for ending in wanted for name in plain if plain[name] == ending]
    suffixed = [name for ending in wanted for name in plain if plain[name].endswith(f"_{ending}")]
    return tuple(dict.fromkeys(exact + suffixed))
