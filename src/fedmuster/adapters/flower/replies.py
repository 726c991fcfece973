"""From Flower's replies to what a policy may learn and a strategy may aggregate."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from flwr.app import ArrayRecord, Error, Message, MetricRecord, RecordDict

from fedmuster.adapters.flower.array_forms import Forms
from fedmuster.adapters.flower.metrics import signals_of
from fedmuster.adapters.flower.wire import Release, Report, strip
from fedmuster.core.errors import DataError
from fedmuster.core.records import FloatArray

REFUSED = 199
"""The code of errors in place of replies that were refused; Flower's own are smaller."""


class Answer(NamedTuple):
    """A reply that counts."""

    client: int
    reply: Message
    metrics: MetricRecord
    report: Report | None
    elapsed_seconds: float


class Promise(NamedTuple):
    """In a private run every update must be released for what its client has paid."""

    run: str
    round: int
    amounts: Mapping[int, float]

    def check(self, client: int, content: RecordDict) -> None:
        """Refuse an update that nobody has made private, or for another round."""
        release = Release.of(content)
        if release is None:
            raise DataError(
                "it is not private, though its client has paid: put PrivateMod() into the mods of "
                "the ClientApp"
            )
        if release != Release(run=self.run, round=self.round, amount=self.amounts[client]):
            raise DataError(f"it was released for something else: {release}")


@dataclass(kw_only=True, slots=True)
class Sorted:
    """The replies of a round, told apart.

    Args:
        answers: those that count, by client.
        failures: error replies, with the client that failed.
        refused: replies that cannot be right, with their client and why; the last in words.
        strangers: replies to no message of this round, or second ones: how many, by reason.
    """

    answers: list[Answer] = field(default_factory=list)
    failures: list[tuple[int, Message]] = field(default_factory=list)
    refused: list[tuple[int, Message, str]] = field(default_factory=list)
    strangers: Counter[str] = field(default_factory=Counter)


def sort_replies(
    replies: Iterable[Message],
    *,
    client_of: Mapping[str, int],
    arrived: Mapping[str, float],
    sent: ArrayRecord,
    weighted_by: str | None,
    promise: Promise | None = None,
) -> Sorted:
    """Tell answers from failures, nonsense, copies and latecomers.

    By the message that they answer, and not by who sent them: errors that the SuperLink makes bear
    its own name.

    Args:
        replies: of the round, in any order.
        client_of: who was asked, by message id.
        arrived: when each answer came, by the id of the message; seconds after it was sent.
        sent: the model that the clients were given.
        weighted_by: the metric by which the strategy weighs updates, if it does.
        promise: what was promised to clients; None where nothing was.
    """
    found = Sorted()
    forms = Forms(sent)
    seen: set[str] = set()
    for reply in replies:
        asked = reply.metadata.reply_to_message_id
        if asked not in client_of:
            found.strangers["to no message of this round"] += 1
        elif asked in seen:
            found.strangers["a second one to the same message"] += 1
        elif reply.has_error():
            found.failures.append((client_of[asked], reply))
        else:
            client = client_of[asked]
            try:
                if promise is not None:
                    promise.check(client, reply.content)
                answer = _answer(reply, client, arrived[asked], forms, weighted_by)
                found.answers.append(answer)
            except DataError as error:
                found.refused.append((client, reply, str(error)))
        seen.add(asked)
    _, odd = alike([answer.reply for answer in found.answers])
    strange = {reply.metadata.reply_to_message_id: reason for reply, reason in odd}
    for answer in found.answers:
        if (asked := answer.reply.metadata.reply_to_message_id) in strange:
            found.refused.append((answer.client, answer.reply, strange[asked]))
    found.answers = sorted(
        (a for a in found.answers if a.reply.metadata.reply_to_message_id not in strange),
        key=lambda answer: answer.client,
    )
    return found


def as_failure(asked: Message, reason: str) -> Message:
    """An error in place of a reply that was refused, so that the strategy counts it as one."""
    return Message(Error(code=REFUSED, reason=f"refused by fedmuster: {reason}"), reply_to=asked)


def signals_by_name(answers: Sequence[Answer]) -> dict[str, FloatArray]:
    """What clients say beside their model: one number a row, NaN where one says nothing of it."""
    rows = [
        {**signals_of(answer.metrics), **(answer.report.signals if answer.report else {})}
        for answer in answers
    ]
    names = sorted({name for row in rows for name in row})
    return {name: np.array([row.get(name, math.nan) for row in rows]) for name in names}


def _answer(
    reply: Message, client: int, elapsed: float, forms: Forms, weighted_by: str | None
) -> Answer:
    content = reply.content
    report = Report.of(content)
    strip(content)  # it is between us: strategies and their loggers need not know
    arrays = [record for record in content.values() if isinstance(record, ArrayRecord)]
    metrics = [record for record in content.values() if isinstance(record, MetricRecord)]
    if len(arrays) != 1 or len(metrics) != 1:
        raise DataError(
            f"it holds {len(arrays)} ArrayRecords and {len(metrics)} MetricRecords, expected one "
            "of each"
        )
    forms.check(arrays[0])
    for name, value in metrics[0].items():
        values = value if isinstance(value, list) else (value,)
        if not all(map(math.isfinite, values)):
            raise DataError(f"its metric {name!r} is not finite")
    if weighted_by is not None and weighted_by in metrics[0]:
        weight = metrics[0][weighted_by]
        if isinstance(weight, list) or weight <= 0:
            raise DataError(f"its {weighted_by!r} is {weight}, expected a number > 0")
    return Answer(client, reply, metrics[0], report, elapsed)


def alike(replies: Sequence[Message]) -> tuple[list[Message], list[tuple[Message, str]]]:
    """The replies with the same keys as most, errors among them, and the others with why not.

    One odd key in one reply, and Flower's strategies would give up the whole run.
    """
    keys = [None if reply.has_error() else _keys(reply.content) for reply in replies]
    kinds = Counter(each for each in keys if each is not None)
    if len(kinds) <= 1:
        return list(replies), []
    usual = max(kinds, key=lambda each: (kinds[each], sorted(each)))
    good, odd = [], []
    for reply, its in zip(replies, keys, strict=True):
        if its is None or its == usual:
            good.append(reply)
        else:
            strange = sorted({key for _, key in its ^ usual})
            odd.append((reply, f"it differs from the others in its keys: {', '.join(strange)}"))
    return good, odd


def _keys(content: RecordDict) -> frozenset[tuple[str, str]]:
    """What Flower wants to be the same in all replies of a round: records and what they hold."""
    return frozenset(
        (name, key)
        for name, record in content.items()
        if isinstance(record, ArrayRecord | MetricRecord)
        for key in record
    )
