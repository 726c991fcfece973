"""Check what came back from a cohort before a policy may learn from it.

A message that cannot be read at all (wrong round, columns of different length) is refused
whole, and the round stays open. A bad row costs only its own client: it is dropped, counted by
reason, and the client is taken as not completed; the good rows count.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.errors import FeedbackError
from fedmuster.core.records import (
    LONGEST_SECONDS,
    SHORTEST_SECONDS,
    BoolArray,
    Feedback,
    FloatArray,
    IntArray,
    Selection,
    is_integer,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedbackReport:
    """What became of a feedback message.

    Args:
        round: the round it closed.
        accepted: rows that counted.
        refused: rows that did not, by reason.
        not_completed: the selected clients of which no valid answer came.
    """

    round: int
    accepted: int
    refused: Mapping[str, int]
    not_completed: IntArray


def clean(feedback: Feedback, selection: Selection) -> tuple[Feedback, FeedbackReport]:
    """One row for each selected client, in the order of the selection, and what was refused.

    Clients without a valid answer get ``completed = False``, an infinite latency (speed 0) and
    signals of NaN, which a policy must not read where ``completed`` is False.
    """
    if not isinstance(feedback, Feedback):
        raise FeedbackError(f"feedback is {type(feedback).__name__}, expected a Feedback")
    if not is_integer(feedback.round, least=1) or feedback.round != selection.round:
        raise FeedbackError(
            f"feedback is for round {feedback.round!r}, but round {selection.round} is open: it "
            "came late or was sent twice; drop it"
        )
    clients, latency, completed, signals = _columns(feedback)
    if _is_clean(clients, latency, completed, signals, selection):
        return _as_it_came(latency, completed, signals, selection)
    refused: dict[str, int] = {}
    row = np.searchsorted(selection.clients, clients)
    good = row < len(selection.clients)
    good[good] = selection.clients[row[good]] == clients[good]
    _count(refused, "not selected", ~good)

    wrong = good & completed & ~((latency >= SHORTEST_SECONDS) & (latency <= LONGEST_SECONDS))
    _count(refused, "latency not finite and positive", wrong)
    good &= ~wrong
    for name, values in signals.items():
        wrong = good & completed & ~np.isfinite(values)
        _count(refused, f"signal {name!r} not finite", wrong)
        good &= ~wrong
    good = _without_duplicates(row, good, completed, latency, signals, refused)

    size = len(selection.clients)
    done = np.zeros(size, dtype=np.bool_)
    done[row[good]] = completed[good]
    answered = good & completed
    full_latency = np.full(size, np.inf)
    full_latency[row[answered]] = latency[answered]
    full_signals = {}
    for name, values in signals.items():
        full_signals[name] = np.full(size, np.nan)
        full_signals[name][row[answered]] = values[answered]
    report = FeedbackReport(
        round=selection.round,
        accepted=int(np.count_nonzero(good)),
        refused=refused,
        not_completed=selection.clients[~done],
    )
    cleaned = Feedback(
        round=selection.round,
        clients=selection.clients,
        latency_seconds=full_latency,
        completed=done,
        signals=full_signals,
    )
    return cleaned, report


def _is_clean(
    clients: IntArray,
    latency: FloatArray,
    completed: BoolArray,
    signals: Mapping[str, FloatArray],
    selection: Selection,
) -> bool:
    """The usual case, cheaply told apart: everybody answered, in order, with sane numbers."""
    if len(clients) != len(selection.clients) or len(clients) == 0:
        return False
    return bool(
        completed.all()
        and latency.min() >= SHORTEST_SECONDS
        and latency.max() <= LONGEST_SECONDS
        and (clients == selection.clients).all()
        and all(np.isfinite(values).all() for values in signals.values())
    )


def _as_it_came(
    latency: FloatArray,
    completed: BoolArray,
    signals: Mapping[str, FloatArray],
    selection: Selection,
) -> tuple[Feedback, FeedbackReport]:
    """Copies, for whoever sent the message may go on to change it."""
    cleaned = Feedback(
        round=selection.round,
        clients=selection.clients,
        latency_seconds=latency.copy(),
        completed=completed.copy(),
        signals={name: values.copy() for name, values in signals.items()},
    )
    report = FeedbackReport(
        round=selection.round,
        accepted=len(latency),
        refused={},
        not_completed=selection.clients[:0],
    )
    return cleaned, report


def _columns(
    feedback: Feedback,
) -> tuple[IntArray, FloatArray, BoolArray, dict[str, FloatArray]]:
    clients = _as_array("clients", feedback.clients)
    if clients.ndim != 1 or not (np.issubdtype(clients.dtype, np.integer) or clients.size == 0):
        raise FeedbackError(
            f"feedback.clients is {clients.dtype}{clients.shape}, expected a list of client indices"
        )
    size = len(clients)
    latency = _column("latency_seconds", feedback.latency_seconds, np.float64, size)
    if feedback.completed is None:
        completed = np.ones(size, dtype=np.bool_)
    else:
        completed = _as_array("completed", feedback.completed)
        if completed.dtype != np.bool_ and completed.size:
            raise FeedbackError(
                f"feedback.completed is of type {completed.dtype}, expected booleans"
            )
        completed = _column("completed", completed, np.bool_, size)
    if not isinstance(feedback.signals, Mapping):
        raise FeedbackError(
            f"feedback.signals is {type(feedback.signals).__name__}, expected a mapping from names"
        )
    signals = {
        name: _column(f"signals[{name!r}]", values, np.float64, size)
        for name, values in feedback.signals.items()
    }
    return clients.astype(np.int64, copy=False), latency, completed, signals


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
    numbers = [
        float(cell) if isinstance(cell, Real) and not isinstance(cell, bool) else np.nan
        for cell in values
    ]
    return np.array(numbers, dtype=np.float64)


def _without_duplicates(
    row: IntArray,
    good: BoolArray,
    completed: BoolArray,
    latency: FloatArray,
    signals: Mapping[str, FloatArray],
    refused: dict[str, int],
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
    same = completed[rows] == completed[original]
    for column in (latency, *signals.values()):
        same &= (column[rows] == column[original]) | ~completed[rows]
    consistent = np.ones(len(first), dtype=np.bool_)
    np.logical_and.at(consistent, inverse, same)
    refused["duplicate"] = int((counts[consistent] - 1).sum())
    refused["contradictory duplicates"] = int(counts[~consistent].sum())
    for reason in ("duplicate", "contradictory duplicates"):
        if not refused[reason]:
            del refused[reason]
    kept = np.zeros_like(good)
    kept[rows[first[consistent]]] = True
    return kept


def _count(refused: dict[str, int], reason: str, rows: BoolArray) -> None:
    number = int(np.count_nonzero(rows))
    if number:
        refused[reason] = number
