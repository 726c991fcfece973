"""Check what came back from a cohort before a policy may learn from it.

A message that cannot be read at all (wrong round, columns of different length) is refused
whole, and the round stays open. A bad row costs only its own client: it is dropped, counted by
reason, and the client is taken as not completed; the good rows count.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.errors import FeedbackError
from fedmuster.core.records import (
    LONGEST_SECONDS,
    SHORTEST_SECONDS,
    Feedback,
    Selection,
    is_integer,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedbackReport:
    """What became of a feedback message.

    Args:
        round: the round it closed; with tickets, the round in which it was heard.
        accepted: rows that counted.
        refused: rows that did not, by reason; those of late answers begin with "late: ".
        not_completed: the selected clients of which no valid answer came.
        accepted_late: rows of ``Feedback.late`` that counted.
        distrusted: the clients whose updates point against those of the others, so that they
            should not enter the model; nobody where reports are not checked.
    """

    round: int
    accepted: int
    refused: Mapping[str, int]
    not_completed: IntArray
    accepted_late: int = 0
    distrusted: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))


NOT_AWAITED = "no earlier invitation of the client is unanswered"


class Message(NamedTuple):
    """What a message says, row by row, each column of the right type and length."""

    clients: IntArray
    latency: FloatArray
    completed: BoolArray
    signals: dict[str, FloatArray]
    sketches: FloatArray | None
    output_bias: FloatArray | None
    used: BoolArray | None
    round_seconds: float | None
    reported: FloatArray | None = None

    @property
    def vectors(self) -> dict[str, FloatArray]:
        """What it says of each update, [n, …] by name."""
        told = {"sketch": self.sketches, "output bias": self.output_bias}
        return {name: rows for name, rows in told.items() if rows is not None}

    def part(self, rows: IntArray) -> "Message":
        """These rows alone."""
        if len(rows) == len(self.clients):
            return self
        return Message(
            clients=self.clients[rows],
            latency=self.latency[rows],
            completed=self.completed[rows],
            signals={name: values[rows] for name, values in self.signals.items()},
            sketches=None if self.sketches is None else self.sketches[rows],
            output_bias=None if self.output_bias is None else self.output_bias[rows],
            used=None if self.used is None else self.used[rows],
            round_seconds=self.round_seconds,
            reported=None if self.reported is None else self.reported[rows],
        )


def clean(
    feedback: Feedback, selection: Selection, *, sketch_size: int = 0, num_classes: int = 0
) -> tuple[Feedback, FeedbackReport]:
    """What came back from the cohort of a round, as :func:`clean_rows` has it.

    Args:
        feedback: what came.
        selection: who was asked.
        sketch_size: how long sketches are; where it is 0 nobody wants them, and they are dropped.
        num_classes: how many biases the output layer has; likewise.
    """
    if not isinstance(feedback, Feedback):
        raise FeedbackError(f"feedback is {type(feedback).__name__}, expected a Feedback")
    if not is_integer(feedback.round, least=1) or feedback.round != selection.round:
        raise FeedbackError(
            f"feedback is for round {feedback.round!r}, but round {selection.round} is open: it "
            "came late or was sent twice; drop it"
        )
    message = read(feedback, sketch_size, num_classes)
    return clean_rows(message, selection, heard_in=selection.round)


def clean_rows(
    message: Message, selection: Selection, *, heard_in: int
) -> tuple[Feedback, FeedbackReport]:
    """One row for each selected client, in the order of the selection, and what was refused.

    Clients without a valid answer get ``completed = False``, an infinite latency (speed 0) and
    signals, sketches and biases of NaN, which a policy must not read where ``completed`` is False.

    Args:
        message: what came.
        selection: who was asked.
        heard_in: the round in which it came.
    """
    clients, latency, completed, signals, sketches, output_bias, used, *_ = message
    refused: dict[str, int] = {}
    everything = _is_clean(message, selection)
    row = np.arange(len(clients)) if everything else np.searchsorted(selection.clients, clients)
    good = completed if everything else _good_rows(row, message, selection, refused)
    answered = good & completed

    def spread(values: NDArray[Any], missing: float | bool) -> NDArray[Any]:
        """One row for each selected client: ``missing`` for clients without a valid answer.

        A copy in any case, because the sender may go on to change what it sent.
        """
        if everything:
            return values.copy()
        full = np.full((len(selection.clients), *values.shape[1:]), missing, dtype=values.dtype)
        full[row[answered]] = values[answered]
        return full

    done = spread(completed, False)
    report = FeedbackReport(
        round=selection.round,
        accepted=int(np.count_nonzero(good)),
        refused=refused,
        not_completed=selection.clients[~done],
    )
    cleaned = Feedback(
        round=heard_in,
        clients=selection.clients,
        latency_seconds=spread(latency, np.inf),
        completed=done,
        signals={name: spread(values, np.nan) for name, values in signals.items()},
        sketches=None if sketches is None else spread(sketches, np.nan),
        output_bias=None if output_bias is None else spread(output_bias, np.nan),
        used=None if used is None else spread(used, False),
        round_seconds=message.round_seconds,
        reported_seconds=None if message.reported is None else spread(message.reported, np.nan),
    )
    return cleaned, report


def clean_late(late: Any, awaited: IntArray, *, heard_in: int) -> tuple[Feedback, dict[str, int]]:
    """The rows of late answers that count, by increasing client, and the others by reason.

    Rows without an answer get an infinite latency and signals of NaN.

    Args:
        late: what came, ``Feedback.late``.
        awaited: int64[n], increasing: the clients with an unanswered earlier invitation.
        heard_in: the round in which it came.
    """
    if not isinstance(late, Feedback):
        raise FeedbackError(f"feedback.late is {type(late).__name__}, expected a Feedback")
    if late.tickets is not None or late.late is not None:
        raise FeedbackError("feedback.late has tickets or late answers of its own: leave them out")
    try:
        message = read(late, 0, 0)._replace(used=None)
    except FeedbackError as error:
        raise FeedbackError(f"late answers: {error}") from None
    refused: dict[str, int] = {}
    row = np.searchsorted(awaited, message.clients)
    asked = Selection(round=heard_in, clients=awaited)
    good = np.flatnonzero(_good_rows(row, message, asked, refused, stranger=NOT_AWAITED))
    rows = good[np.argsort(message.clients[good])]
    answered = message.completed[rows]
    cleaned = Feedback(
        round=heard_in,
        clients=message.clients[rows],
        latency_seconds=np.where(answered, message.latency[rows], np.inf),
        completed=answered,
        signals={
            name: np.where(answered, values[rows], np.nan)
            for name, values in message.signals.items()
        },
        reported_seconds=None if message.reported is None else message.reported[rows],
    )
    return cleaned, {f"late: {reason}": count for reason, count in refused.items()}


def _good_rows(
    row: IntArray,
    columns: Message,
    selection: Selection,
    refused: dict[str, int],
    *,
    stranger: str = "not selected",
) -> BoolArray:
    """bool[n], the rows that count; the others are counted by reason.

    ``stranger`` is the reason for clients that are not in the selection.
    """
    clients, latency, completed, signals, *_ = columns
    good = row < len(selection.clients)
    good[good] = selection.clients[row[good]] == clients[good]
    _count(refused, stranger, ~good)
    wrong = good & completed & ~((latency >= SHORTEST_SECONDS) & (latency <= LONGEST_SECONDS))
    _count(refused, "latency not finite and positive", wrong)
    good &= ~wrong
    for name, values in signals.items():
        wrong = good & completed & ~np.isfinite(values)
        _count(refused, f"signal {name!r} not finite", wrong)
        good &= ~wrong
    for name, vectors in columns.vectors.items():
        wrong = good & completed & ~np.isfinite(vectors).all(axis=1)
        _count(refused, f"{name} not finite", wrong)
        good &= ~wrong
    return _without_duplicates(row, good, columns, refused)


def _is_clean(columns: Message, selection: Selection) -> bool:
    """Whether every client answered, in order, with sane numbers: the usual case."""
    clients, latency, completed, signals, *_ = columns
    if len(clients) != len(selection.clients) or len(clients) == 0:
        return False
    return bool(
        completed.all()
        and latency.min() >= SHORTEST_SECONDS
        and latency.max() <= LONGEST_SECONDS
        and (clients == selection.clients).all()
        and all(np.isfinite(values).all() for values in signals.values())
        and all(np.isfinite(vectors).all() for vectors in columns.vectors.values())
    )


def read(feedback: Feedback, sketch_size: int, num_classes: int) -> Message:
    """The columns of a message; a :class:`FeedbackError` where they do not fit together.

    Sketches and output biases that nobody wants (0) are dropped.
    """
    clients = _as_array("clients", feedback.clients)
    if clients.ndim != 1 or not (np.issubdtype(clients.dtype, np.integer) or clients.size == 0):
        raise FeedbackError(
            f"feedback.clients is {clients.dtype}{clients.shape}, expected a list of client indices"
        )
    size = len(clients)
    latency = _column("latency_seconds", feedback.latency_seconds, np.float64, size)
    completed = _flags("completed", feedback.completed, size)
    if completed is None:
        completed = np.ones(size, dtype=np.bool_)
    if not isinstance(feedback.signals, Mapping):
        raise FeedbackError(
            f"feedback.signals is {type(feedback.signals).__name__}, expected a mapping from names"
        )
    signals = {
        name: _column(f"signals[{name!r}]", values, np.float64, size)
        for name, values in feedback.signals.items()
    }
    return Message(
        clients=clients.astype(np.int64, copy=False),
        latency=latency,
        completed=completed,
        signals=signals,
        sketches=_vectors(
            "sketches",
            feedback.sketches,
            (size, sketch_size),
            "the policy wants (wanted_sketch_size)",
        ),
        output_bias=_vectors(
            "output_bias", feedback.output_bias, (size, num_classes), "the problem has num_classes"
        ),
        used=_flags("used", feedback.used, size),
        round_seconds=_duration(feedback.round_seconds),
        reported=None
        if feedback.reported_seconds is None
        else _column("reported_seconds", feedback.reported_seconds, np.float64, size),
    )


def _flags(name: str, values: Any, size: int) -> BoolArray | None:
    if values is None:
        return None
    flags = _as_array(name, values)
    if flags.dtype != np.bool_ and flags.size:
        raise FeedbackError(f"feedback.{name} is of type {flags.dtype}, expected booleans")
    return _column(name, flags, np.bool_, size)


def _duration(seconds: Any) -> float | None:
    if seconds is None:
        return None
    number = isinstance(seconds, Real) and not isinstance(seconds, bool)
    if not number or not 0 <= seconds <= LONGEST_SECONDS:  # which NaN is not
        raise FeedbackError(
            f"feedback.round_seconds is {seconds!r}, expected a number in [0, {LONGEST_SECONDS:g}]"
        )
    return float(seconds)


def _vectors(name: str, values: Any, shape: tuple[int, int], why: str) -> FloatArray | None:
    if values is None or shape[1] == 0:
        return None
    vectors = _as_array(name, values)
    if vectors.dtype.kind not in "iuf" or vectors.shape != shape:
        raise FeedbackError(
            f"feedback.{name} is {vectors.dtype}{vectors.shape}, expected numbers of shape "
            f"{shape}: as many for each row of feedback.clients as {why}"
        )
    return vectors.astype(np.float64, copy=False)


def _as_array(name: str, values: Any) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:
        raise FeedbackError(f"feedback.{name} is no list of values: {error}") from None


def _column(name: str, values: Any, dtype: type, size: int) -> NDArray[Any]:
    column: NDArray[Any]
    try:
        column = np.asarray(values)
    except ValueError:  # ragged: some cells are lists
        column = _cell_by_cell(values)
    if column.dtype.kind not in "iufb" and column.ndim == 1:
        column = _cell_by_cell(values)  # not of column: one string makes numpy turn all to strings
    if column.shape != (size,):
        raise FeedbackError(
            f"feedback.{name} has shape {column.shape}, expected one value for each of the {size} "
            "rows of feedback.clients"
        )
    return column.astype(dtype, copy=False)


def _cell_by_cell(values: Any) -> FloatArray:
    """What is no number becomes NaN, which costs only its own row."""
    return np.array([_number(cell) for cell in values], dtype=np.float64)


def _number(cell: object) -> float:
    if not isinstance(cell, Real) or isinstance(cell, bool):
        return np.nan
    try:
        return float(cell)
    except OverflowError:  # an integer or a fraction beyond all floats
        return np.nan


def _without_duplicates(
    row: IntArray, good: BoolArray, columns: Message, refused: dict[str, int]
) -> BoolArray:
    """Copies of one answer count once; answers that contradict each other count not at all."""
    rows = np.flatnonzero(good)
    if np.all(row[rows[1:]] > row[rows[:-1]]):
        return good  # in increasing order, as they mostly come: no need to sort
    _, first, inverse, counts = np.unique(
        row[rows], return_index=True, return_inverse=True, return_counts=True
    )
    if len(first) == len(rows):
        return good
    original = rows[first][inverse]
    latency, completed, used = columns.latency, columns.completed, columns.used
    same = completed[rows] == completed[original]
    for column in (latency, *columns.signals.values()):
        same &= (column[rows] == column[original]) | ~completed[rows]
    if used is not None:
        same &= (used[rows] == used[original]) | ~completed[rows]
    for vectors in columns.vectors.values():
        same &= (vectors[rows] == vectors[original]).all(axis=1) | ~completed[rows]
    consistent = np.ones(len(first), dtype=np.bool_)
    np.logical_and.at(consistent, inverse, same)
    _count(refused, "duplicate", counts[consistent] - 1)
    _count(refused, "contradictory duplicates", counts[~consistent])
    kept = np.zeros_like(good)
    kept[rows[first[consistent]]] = True
    return kept


def _count(refused: dict[str, int], reason: str, rows: BoolArray | IntArray) -> None:
    if number := int(rows.sum()):
        refused[reason] = number
