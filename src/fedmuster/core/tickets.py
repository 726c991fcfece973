"""Tickets: jobs that were given out one after the other, and whose answers come in any order.

A ticket is a number. A client has at most one open ticket, so a client with an open ticket is busy.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from fedmuster.core.arrays import BoolArray, IntArray
from fedmuster.core.errors import FeedbackError
from fedmuster.core.records import Selection
from fedmuster.core.state import Array, numbered

_MOST_GIVEN_UP: Final = 1_000_000
"""The tickets that were given up last and may be answered late; older ones count as closed."""

UNKNOWN = "unknown ticket"
LATE = "late: the ticket was given up"
AGAIN = "the ticket was closed before"
OTHER = "the ticket belongs to another client"


class Part(NamedTuple):
    """The open tickets of one selection that a message is about, and its rows in the message."""

    selection: Selection
    rows: IntArray


class Tickets:
    """The open tickets of ``num_clients`` clients, by the selection that opened them."""

    def __init__(self, num_clients: int) -> None:
        self.next = 0
        """The number of the next ticket; also how many have been given out."""
        self._open: dict[int, Selection] = {}  # by first ticket; each with its open rows alone
        self._selection_of: dict[int, int] = {}  # of each open ticket, the key above
        self._given_up: dict[int, int] = {}  # the client of each ticket that may be answered late
        self.busy: BoolArray = np.zeros(num_clients, dtype=np.bool_)
        """bool[K], the clients with an open ticket."""

    def __len__(self) -> int:
        return len(self._selection_of)

    @property
    def numbers(self) -> IntArray:
        """int64[n], increasing: the open tickets."""
        return np.array(sorted(self._selection_of), dtype=np.int64)

    def num_idle(self, available: BoolArray) -> int:
        """How many of the available clients have no open ticket."""
        count = int(np.count_nonzero(available))
        if count == len(available) or len(self) == 0:
            return count - len(self)  # saves a second pass
        return int(np.count_nonzero(available > self.busy))

    def open(self, selection: Selection) -> Selection:
        """Give each client of the selection a ticket."""
        numbers = np.arange(self.next, self.next + len(selection.clients))
        selection = replace(selection, tickets=numbers)
        if len(numbers) > 0:
            # Answers are learned from one by one: what is about the whole of them is left out.
            kept = replace(selection, order=None, quota=None, preferred=None, wanted=None)
            self._open[self.next] = kept
            self._selection_of.update(dict.fromkeys(numbers.tolist(), self.next))
            self.busy[selection.clients] = True
            self.next += len(numbers)
        return selection

    def match(self, tickets: Any, clients: IntArray | None) -> tuple[list[Part], dict[str, int]]:
        """Group the rows of a message by selection, and count those that are refused, by reason.

        Args:
            tickets: int[n], as they came; the same may stand there twice.
            clients: int[n], the client that sent each row; None when tickets are given up.
        """
        numbers = _numbers(tickets)
        if clients is not None and numbers.shape != clients.shape:
            raise FeedbackError(
                f"feedback.tickets has shape {numbers.shape}, expected one ticket for each of the "
                f"{len(clients)} rows of feedback.clients"
            )
        refused: dict[str, int] = {}
        rows: dict[int, list[int]] = {}
        for row, number in enumerate(numbers.tolist()):
            client = None if clients is None else int(clients[row])
            reason = self._fault(number, client)
            if reason is None:
                rows.setdefault(self._selection_of[number], []).append(row)
            else:
                refused[reason] = refused.get(reason, 0) + 1
        parts = []
        for key in sorted(rows):
            selection, places = self._open[key], np.array(rows[key])
            assert selection.tickets is not None
            if len(selection.tickets) > 1:
                here = np.isin(selection.tickets, numbers[places])
                selection = selection.part(np.flatnonzero(here))
            parts.append(Part(selection, places))
        return parts, refused

    def close(self, selection: Selection, *, given_up: bool = False) -> None:
        """Close the tickets of a :class:`Part`; those that are given up may be answered late."""
        assert selection.tickets is not None
        key = self._selection_of[int(selection.tickets[0])]
        for number in selection.tickets.tolist():
            del self._selection_of[number]
        whole = self._open.pop(key)
        assert whole.tickets is not None
        if len(whole.tickets) > len(selection.tickets):
            rest = ~np.isin(whole.tickets, selection.tickets)
            self._open[key] = whole.part(np.flatnonzero(rest))
        self.busy[selection.clients] = False
        if given_up:
            owners = zip(selection.tickets.tolist(), selection.clients.tolist(), strict=True)
            self._given_up.update(owners)
            while len(self._given_up) > _MOST_GIVEN_UP:
                del self._given_up[next(iter(self._given_up))]

    def grow(self, num_clients: int) -> None:
        """Let clients join."""
        more = num_clients - len(self.busy)
        self.busy = np.concatenate([self.busy, np.zeros(more, dtype=np.bool_)])

    def arrays(self) -> dict[str, Array]:
        """Everything, to be saved; nothing if no ticket was ever given out."""
        if self.next == 0:
            return {}
        late = np.array([*self._given_up.items()], dtype=np.int64).reshape(-1, 2)
        columns: dict[str, Array] = {"next": np.array(self.next), "given_up": late}
        for key, selection in self._open.items():
            columns |= {f"{key}.{name}": a for name, a in selection.arrays().items()}
        return columns

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from :meth:`arrays`."""
        if not arrays:
            return
        self.next, self._given_up = int(arrays["next"]), dict(arrays["given_up"].tolist())
        for key, columns in numbered(arrays).items():
            self._open[key] = Selection.of_arrays(columns)
            self._selection_of.update(dict.fromkeys(columns["tickets"].tolist(), key))
            self.busy[columns["clients"]] = True

    def _fault(self, number: int, client: int | None) -> str | None:
        """Why this row does not count.

        A late answer is recognised once: its ticket is forgotten here.
        """
        if not 0 <= number < self.next:
            return UNKNOWN
        key = self._selection_of.get(number)
        if key is None:
            if client is None or number not in self._given_up:
                return AGAIN
            if client != self._given_up[number]:
                return OTHER
            del self._given_up[number]
            return LATE
        tickets = self._open[key].tickets
        assert tickets is not None
        owner = self._open[key].clients[np.searchsorted(tickets, number)]
        return OTHER if client is not None and client != owner else None


def _numbers(tickets: Any) -> IntArray:
    try:
        numbers = np.asarray(tickets)
    except ValueError as error:  # lists of different lengths
        raise FeedbackError(f"tickets is no list of numbers: {error}") from None
    if numbers.ndim != 1 or not (np.issubdtype(numbers.dtype, np.integer) or not numbers.size):
        raise FeedbackError(
            f"tickets is {numbers.dtype}{numbers.shape}, expected a list of ticket numbers"
        )
    return numbers
