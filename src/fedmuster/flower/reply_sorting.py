"""Sorts Flower's replies into what a strategy may aggregate and what is refused.

The arrays of a reply must fit the model and be finite. ``numpy.load`` would take longer to parse
the header of a small array than everything else that is done with it. Arrays of one type and shape
have the same header, so headers are compared. The strategy does not parse an array that fits
either, which saves more time than all of fedmuster takes in a round.
"""

import math
import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.app.message import make_message
from flwr.common.constant import SType
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from fedmuster.core.errors import DataError
from fedmuster.flower.strategy_loop import layers, setting_of
from fedmuster.flower.wire import HeldReceipt, Release, Report, loss_names, strip

_MAGIC: Final = b"\x93NUMPY\x01\x00"


class _Form(NamedTuple):
    """Header and length of an array on the wire, and of what it is."""

    header: bytes
    length: int
    kind: np.dtype[np.generic]
    shape: tuple[int, ...]
    order: Literal["C", "F"]

    @classmethod
    def of(cls, array: Array) -> "_Form | None":
        """The form; None for other arrays than numpy's, and for data after the numbers."""
        if array.stype != SType.NUMPY or not array.data.startswith(_MAGIC):
            return None
        header = array.data[: 10 + int.from_bytes(array.data[8:10], "little")]
        parsed = array.numpy()
        if parsed.itemsize == 0 or len(header) + parsed.nbytes != len(array.data):
            return None
        order: Literal["C", "F"] = "F" if parsed.flags.fnc else "C"
        return cls(header, len(array.data), parsed.dtype, parsed.shape, order)

    def fits(self, data: bytes) -> bool:
        return len(data) == self.length and data.startswith(self.header)

    def numbers(self, data: bytes) -> NDArray[np.generic]:
        """A flat view of the numbers; not to be written to."""
        return np.frombuffer(data, self.kind, offset=len(self.header))


class Forms:
    """What the arrays of a model look like on the wire."""

    def __init__(self, model: ArrayRecord) -> None:
        self._shapes = {name: tuple(array.shape) for name, array in model.items()}
        forms = {name: _Form.of(array) for name, array in model.items()}
        self._known = {name: form for name, form in forms.items() if form is not None}

    @property
    def names(self) -> frozenset[str]:
        """Names of the model's arrays."""
        return frozenset(self._shapes)

    def of(self, model: ArrayRecord) -> "Forms":
        """The forms of another model; most often the same, and then nothing is parsed."""
        fits = self._known.keys() == model.keys() and all(
            form.fits(model[name].data) for name, form in self._known.items()
        )
        return self if fits else Forms(model)

    def check(self, arrays: ArrayRecord, *, like_model: bool = True) -> None:
        """Refuse arrays that are not finite, not numbers, or not of the model's shape."""
        with np.errstate(over="ignore", invalid="ignore"):
            for name, array in arrays.items():
                self._check(name, array, like_model)

    def ease(self, arrays: ArrayRecord) -> None:
        """Let arrays that have passed be read without parsing."""
        for name, array in arrays.items():
            form = self._known.get(name)
            if form is not None and form.fits(array.data):
                # Of the instance, not of a class of ours: by its class Flower would not know it.
                # And weakly, as a large array must be gone as soon as nobody needs it.
                vars(array)["numpy"] = _Eased(form, array, array.data)

    def _check(self, name: str, array: Array, like_model: bool) -> None:
        form = self._known.get(name)
        numbers: NDArray[np.generic]
        if form is not None and form.fits(array.data):
            numbers = form.numbers(array.data)
        else:
            try:
                numbers = array.numpy()
            except (TypeError, ValueError, EOFError, OSError, MemoryError, SyntaxError) as error:
                raise DataError(f"its array {name!r} cannot be read: {error}") from None
            shape = self._shapes.get(name, numbers.shape)
            bytes_of_a_booster = numbers.dtype == np.uint8 and numbers.ndim == 1
            if like_model and numbers.shape != shape and not bytes_of_a_booster:
                raise DataError(
                    f"its array {name!r} has shape {numbers.shape}, the model's has {shape}"
                )
            if numbers.dtype.kind not in "fiub":
                raise DataError(f"its array {name!r} holds {numbers.dtype}, expected numbers")
        if numbers.dtype.kind == "f" and not _all_finite(numbers.ravel()):
            raise DataError(f"its array {name!r} is not finite")


class _Eased:
    """Stands in for ``Array.numpy``, which returns an array of the caller's own.

    After ``copy.copy`` the copy reads the data of the array from which it was made.
    """

    def __init__(self, form: _Form, array: Array | None, data: bytes) -> None:
        self._form = form
        self._of = None if array is None else weakref.ref(array)
        self._data = data

    def __call__(self) -> NDArray[np.generic]:
        array = None if self._of is None else self._of()
        if array is not None and array.data is not self._data:  # somebody has put something else in
            return Array.numpy(array)
        form = self._form
        return form.numbers(self._data).reshape(form.shape, order=form.order).copy(order="K")

    def __reduce__(self) -> tuple[Any, ...]:
        """Apps keep replies with pickle or deepcopy, which cannot take the weak reference."""
        return _Eased, (self._form, None if self._of is None else self._of(), self._data)


def _all_finite(numbers: NDArray[np.generic]) -> bool:
    """A sum of squares is finite only if all are, and the fastest to compute; it may overflow."""
    return bool(np.isfinite(np.dot(numbers, numbers))) or bool(np.isfinite(numbers).all())


REFUSED = 199
"""The code of errors in place of refused replies; Flower's own codes are smaller."""
_LARGEST_WEIGHT = 2.0**53
"""More than any client has samples, and small enough that sums of weights do not overflow."""


class Answer(NamedTuple):
    """A reply that counts."""

    client: int
    reply: Message
    metrics: MetricRecord
    report: Report | None
    elapsed_seconds: float
    model: ArrayRecord


class ReplyRule(NamedTuple):
    """What a strategy expects of replies.

    ``weighted_by`` is the metric by which it weighs updates. Flower's own aggregations want one
    ArrayRecord and one MetricRecord; a user's own are ``free`` to want others, beside the model
    under ``model_key``.
    """

    weighted_by: str | None = None
    free: bool = False
    model_key: str | None = None

    @classmethod
    def of(cls, strategy: Strategy, method: Literal["train", "evaluate"]) -> "ReplyRule":
        """The rule of the innermost strategy, which aggregates."""
        innermost = list(layers(strategy))[-1]
        own = getattr(type(innermost), f"aggregate_{method}").__module__
        return cls(
            weighted_by=getattr(innermost, "weighted_by_key", None),
            free=own.partition(".")[0] != "flwr",
            model_key=setting_of(strategy, "arrayrecord_key", None),
        )


class Promise(NamedTuple):
    """In a private run every update must be released for the amount that its client has paid."""

    run: str
    round: int
    amounts: Mapping[int, float]

    def check(self, client: int, content: RecordDict) -> None:
        """Refuse an update that is not private, or was released for another round."""
        release = Release.of(content)
        if release is None and HeldReceipt.of(content) is not None:
            raise DataError(
                "it holds a newer receipt of the ledger than this server knew of, and waits for a "
                "proof that leads on from there; it gets one when it is asked next"
            )
        if release is None:
            raise DataError(
                "it is not private, though its client has paid: put PrivateMod() into the mods of "
                "the ClientApp"
            )
        if release != Release(run=self.run, round=self.round, amount=self.amounts[client]):
            raise DataError(f"it was released for something else: {release}")


class Passed(NamedTuple):
    """The content of a usable reply: all its arrays, the model among them, and its metrics."""

    arrays: tuple[ArrayRecord, ...]
    model: ArrayRecord
    metrics: MetricRecord


class TrainCheck:
    """Checks whether a strategy can aggregate a reply.

    ``forms`` are those of the arrays that clients were given; ``promise`` is None where nothing was
    promised to clients.
    """

    def __init__(self, forms: Forms, *, rule: ReplyRule, promise: Promise | None = None) -> None:
        self._forms = forms
        self._rule = rule
        self._promise = promise

    @property
    def names(self) -> frozenset[str]:
        """Names of the model's arrays."""
        return self._forms.names

    def passed(self, client: int, reply: Message) -> Passed:
        """The content of a reply; a :class:`DataError` says what is wrong with it."""
        content = reply.content
        if self._promise is not None:
            self._promise.check(client, content)
        # Not content.array_records, which takes as long as everything else.
        arrays = {key: each for key, each in content.items() if isinstance(each, ArrayRecord)}
        if len(arrays) != 1 and not self._rule.free:
            raise DataError(f"it holds {len(arrays)} ArrayRecords, expected one")
        # The record that the strategy names; empty where several could be the model.
        model = arrays.get(self._rule.model_key or "", ArrayRecord())
        if len(arrays) == 1:
            (model,) = arrays.values()
        for record in arrays.values():
            # Beside the model there may be anything, under the same names if both come from lists.
            self._forms.check(record, like_model=record is model)
        return Passed(tuple(arrays.values()), model, checked_metrics(content, self._rule))

    def answer(self, client: int, reply: Message, elapsed_seconds: float) -> Answer:
        """The answer that a reply is, with arrays that the strategy need not parse."""
        passed = self.passed(client, reply)
        report = Report.of(reply.content)
        strip(reply.content)  # strategies and their loggers need not know
        for record in passed.arrays:
            self._forms.ease(record)
        return Answer(client, reply, passed.metrics, report, elapsed_seconds, passed.model)

    def usable(self, client: int, reply: Message) -> bool:
        """Whether :meth:`passed` accepts the reply."""
        try:
            return bool(self.passed(client, reply))
        except DataError:
            return False


def checked_metrics(
    content: RecordDict, rule: ReplyRule, *, finite_loss: bool = True
) -> MetricRecord:
    """The metrics of a reply, with a weight and a finite loss.

    Others may be NaN, as the AUC of a client with one class: these are no signals, and the strategy
    decides what becomes of them.
    """
    records = [record for record in content.values() if isinstance(record, MetricRecord)]
    if len(records) != 1 and not rule.free:
        raise DataError(f"it holds {len(records)} MetricRecords, expected one")
    metrics = records[0] if records else MetricRecord()
    for record in records if finite_loss else ():
        for name in loss_names(record):
            value = record[name]
            values = value if isinstance(value, list) else (value,)
            if not all(map(math.isfinite, values)):
                raise DataError(f"its metric {name!r} is not finite")
    if rule.weighted_by is not None and not (rule.free and rule.weighted_by not in metrics):
        weight = metrics.get(rule.weighted_by)
        if weight is None or isinstance(weight, list) or not 0 < weight < _LARGEST_WEIGHT:
            raise DataError(f"its metric {rule.weighted_by!r} is {weight}, expected a number > 0")
    return metrics


@dataclass(kw_only=True, slots=True)
class RoundReplies:
    """The sorted replies of a round.

    Args:
        answers: those that count, by client.
        failures: error replies, with the client that failed.
        refused: replies that cannot be right, with their client and why.
        strangers: replies to no message of this round, or second ones: how many, by reason.
        log_sizes: of the newest receipt that a client says it holds, by client.
    """

    answers: list[Answer] = field(default_factory=list)
    failures: list[tuple[int, Message]] = field(default_factory=list)
    refused: list[tuple[int, Message, str]] = field(default_factory=list)
    strangers: Counter[str] = field(default_factory=Counter)
    log_sizes: dict[int, int] = field(default_factory=dict)

    def for_strategy(self, usable: Collection[int]) -> list[Message]:
        """Good replies, and errors in place of refused ones: some strategies count failures."""
        return [
            *(answer.reply for answer in self.answers if answer.client in usable),
            *(reply for _, reply in self.failures),
            *(refused(reply, reason) for _, reply, reason in self.refused),
        ]


def sort_replies(
    replies: Iterable[Message],
    client_of: Mapping[str, int],
    elapsed: Mapping[str, float],
    check: TrainCheck,
) -> RoundReplies:
    """Tell answers from failures, refused replies, copies and late replies.

    A reply is matched by the message that it answers, not by its sender: an error that the
    SuperLink makes carries the SuperLink's own id. ``client_of`` and ``elapsed`` have the client
    and the seconds of each sent message.
    """
    found = RoundReplies()
    seen: set[str] = set()
    for reply in replies:
        asked = reply.metadata.reply_to_message_id
        client = client_of.get(asked)
        if client is None:
            found.strangers["to no message of this round"] += 1
        elif asked in seen:
            found.strangers["a second one to the same message"] += 1
        elif reply.has_error():
            found.failures.append((client, reply))
        else:
            try:
                if (held := HeldReceipt.of(reply.content)) is not None:
                    found.log_sizes[client] = held.log_size
                found.answers.append(check.answer(client, reply, elapsed[asked]))
            except DataError as error:
                found.refused.append((client, reply, str(error)))
        seen.add(asked)
    _, odd = alike([answer.reply for answer in found.answers], model=check.names)
    strange = {reply.metadata.reply_to_message_id: reason for reply, reason in odd}
    for answer in found.answers:
        if (asked := answer.reply.metadata.reply_to_message_id) in strange:
            found.refused.append((answer.client, answer.reply, strange[asked]))
    found.answers = sorted(
        (a for a in found.answers if a.reply.metadata.reply_to_message_id not in strange),
        key=lambda answer: answer.client,
    )
    return found


def refused(reply: Message, reason: str) -> Message:
    """An error in place of a reply, so that the strategy counts it as one."""
    error = Error(code=REFUSED, reason=f"refused by fedmuster: {reason}")
    return make_message(reply.metadata, error=error)


def alike(
    replies: Sequence[Message], *, model: frozenset[str] = frozenset()
) -> tuple[list[Message], list[tuple[Message, str]]]:
    """The replies of the usual form and errors, and the others with the reason.

    Flower's strategies give up the whole run if one reply has an odd key. Usual are the arrays of
    the ``model``, and among these the form that most replies have.
    """
    forms = [None if reply.has_error() else frozenset(_form(reply.content)) for reply in replies]
    kinds = Counter(each for each in forms if each is not None)
    if len(kinds) <= 1:
        return list(replies), []
    usual = max(kinds, key=lambda its: (_arrays(its) == model, kinds[its], sorted(map(str, its))))
    good, odd = [], []
    for reply, its in zip(replies, forms, strict=True):
        if its is None or its == usual:
            good.append(reply)
        else:
            strange = sorted({key for _, key, *_ in its ^ usual})
            odd.append((reply, f"it differs from the others in its keys: {', '.join(strange)}"))
    return good, odd


Part = tuple[str, str, int]
"""A record's name, a key in it, and what that is: an array, a number, or so many numbers."""
_ARRAY, _NUMBER = -2, -1


def _form(content: RecordDict) -> Iterator[Part]:
    """What Flower wants to be the same in all replies of a round."""
    for name, record in content.items():
        if isinstance(record, ArrayRecord):
            for key in record:
                yield name, key, _ARRAY
        elif isinstance(record, MetricRecord):
            for key, value in record.items():
                yield name, key, len(value) if isinstance(value, list) else _NUMBER


def _arrays(form: frozenset[Part]) -> frozenset[str]:
    return frozenset(key for _, key, kind in form if kind == _ARRAY)
