"""Jobs: what clients were asked to do, when they are done, and what they have sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from heapq import heappop, heappush
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.records import Feedback, Selection
from fedmuster.core.state import Array, with_prefix
from fedmuster.privacy.budget import Grant
from fedmuster.training.servers import Starts, some
from fedmuster.training.trainer import Sent
from fedmuster.training.training_records import Parameters, Updates

_COLUMNS = ("clients", "edges", "inclusion", "features", "tickets")


@dataclass(kw_only=True, eq=False, slots=True)
class Decision:
    """The jobs of clients that were chosen together.

    Args:
        number: the number of the decision: 1, 2, …
        version: how often the server that asked had aggregated.
        asked_at_seconds: the simulated time of the decision.
        selection: the chosen clients.
        feedback: what will come back, with a row for each client; the server learns it row by row.
        latency_seconds: [n], when each client is done, also if the server does not wait for it.
        keys: int64[n], the round whose learning rate and order of samples each client takes.
        starts: the model from which each client trains; empty without a model.
        grant: the debit that lets clients send, where privacy is kept.
        cost: [n], what the operator pays for each client at its edge server; None without edges.
        position_km: [n, 2], where the clients were; None in worlds without places.
        sent: what each client has sent, as a row of what several have sent together; None for a
            client that has not trained yet.
    """

    number: int
    version: int
    asked_at_seconds: float
    selection: Selection
    feedback: Feedback
    latency_seconds: FloatArray
    keys: IntArray
    starts: Starts = ()
    grant: Grant | None = None
    cost: FloatArray | None = None
    position_km: FloatArray | None = None
    sent: list[tuple[Sent, int] | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sent = [None] * len(self.selection.clients)

    def arrays(self, models: dict[int, tuple[int, Parameters]]) -> dict[str, Array]:
        """To be saved, but for what clients have sent, see :func:`sent_arrays`.

        ``models`` numbers the models from which clients train; those that are new are added.
        """
        for start in self.starts:
            models.setdefault(id(start), (len(models), start))
        numbers = [models[id(start)][0] for start in self.starts]
        columns = {
            "number": np.array(self.number),
            "version": np.array(self.version),
            "asked_at_seconds": np.array(self.asked_at_seconds),
            "round": np.array(self.selection.round),
            "latency_seconds": self.latency_seconds,
            "keys": self.keys,
            "starts": np.array(numbers, dtype=np.int64),
            "heard.latency_seconds": self.feedback.latency_seconds,
            "heard.completed": self.feedback.answered,
        }
        if self.selection.deadline_seconds is not None:
            columns["deadline_seconds"] = np.array(self.selection.deadline_seconds)
        told = {name: getattr(self.selection, name) for name in _COLUMNS}
        columns |= {f"selection.{name}": a for name, a in told.items() if a is not None}
        columns |= {f"signal.{name}": a for name, a in self.feedback.signals.items()}
        for name in ("cost", "position_km"):
            if (values := getattr(self, name)) is not None:
                columns[name] = values
        if self.grant is not None:
            columns |= {
                "grant.round": np.array(self.grant.round),
                "grant.amounts": self.grant.amounts,
                "grant.releasable": self.grant.releasable,
            }
        return columns

    @classmethod
    def of(cls, arrays: Mapping[str, Array], models: Sequence[Parameters]) -> "Decision":
        """The decision of which :meth:`arrays` told."""
        told: dict[str, Any] = {name: arrays.get(f"selection.{name}") for name in _COLUMNS}
        if "deadline_seconds" in arrays:
            told["deadline_seconds"] = float(arrays["deadline_seconds"])
        selection = Selection(round=int(arrays["round"]), **told)
        grant = None
        if "grant.round" in arrays:
            releasable = arrays["grant.releasable"]
            grant = Grant(
                int(arrays["grant.round"]),
                selection.clients,
                arrays["grant.amounts"],
                releasable,
                set(selection.clients[releasable].tolist()),
            )
        return cls(
            number=int(arrays["number"]),
            version=int(arrays["version"]),
            asked_at_seconds=float(arrays["asked_at_seconds"]),
            selection=selection,
            feedback=Feedback(
                clients=selection.clients,
                latency_seconds=arrays["heard.latency_seconds"],
                completed=arrays["heard.completed"],
                signals=with_prefix("signal.", arrays),
                tickets=selection.tickets,
            ),
            latency_seconds=arrays["latency_seconds"],
            keys=arrays["keys"],
            starts=[models[number] for number in arrays["starts"].tolist()],
            grant=grant,
            cost=arrays.get("cost"),
            position_km=arrays.get("position_km"),
        )


class Job(NamedTuple):
    """One client's part of a decision."""

    decision: Decision
    row: int

    @property
    def client(self) -> int:
        """Whose job it is."""
        return int(self.decision.selection.clients[self.row])

    @property
    def edge(self) -> int:
        """At which edge server; 0 in flat learning."""
        edges = self.decision.selection.edges
        return 0 if edges is None else int(edges[self.row])

    @property
    def identity(self) -> tuple[int, int]:
        """What tells it from all other open jobs."""
        return self.decision.number, self.row

    @property
    def inclusion(self) -> float:
        """The probability with which the client was chosen, where the policy knows it."""
        inclusion = self.decision.selection.inclusion
        assert inclusion is not None
        return float(inclusion[self.row])

    @property
    def start(self) -> Parameters:
        """The model from which the client trains."""
        return self.decision.starts[self.row]


def gathered(jobs: Sequence[Job], *, deltas: bool = True) -> Sent:
    """What these jobs have sent, in their order; no copy where they are all that was sent once.

    Without ``deltas`` it has no updates, only their signals and whether they are finite.
    """
    whole = [cast(tuple[Sent, int], job.decision.sent[job.row]) for job in jobs]
    if not whole:
        nothing = np.empty((0, 0), dtype=np.float32)
        clients = np.empty(0, dtype=np.int64)
        updates = Updates(clients=clients, deltas=nothing, signals={})
        return Sent(updates, np.ones(0, dtype=np.bool_))
    first, places = whole[0][0], np.array([place for _, place in whole])
    if deltas and all(sent is first for sent, _ in whole) and np.all(places[1:] > places[:-1]):
        chosen = np.zeros(len(first.usable), dtype=np.bool_)
        chosen[places] = True
        return Sent(some(first.updates, chosen), first.usable[chosen])
    updates = Updates(
        clients=np.array([job.client for job in jobs], dtype=np.int64),
        deltas=np.stack([sent.updates.deltas[place] for sent, place in whole])
        if deltas
        else np.empty((len(jobs), 0), dtype=np.float32),
        signals={
            name: np.array([sent.updates.signals[name][place] for sent, place in whole])
            for name in first.updates.signals
        },
    )
    return Sent(updates, np.array([sent.usable[place] for sent, place in whole]))


def sent_arrays(jobs: Sequence[Job]) -> dict[str, Array]:
    """What these jobs have sent, to be saved: the server has it, and no client sends it again."""
    updates = gathered(jobs).updates
    signals = {f"signal.{name}": values for name, values in updates.signals.items()}
    return {"deltas": updates.deltas, **signals}


def load_sent(jobs: Sequence[Job], arrays: Mapping[str, Array]) -> None:
    """Give jobs what :func:`sent_arrays` tells of them."""
    updates = Updates(
        clients=np.array([job.client for job in jobs], dtype=np.int64),
        deltas=arrays["deltas"],
        signals=with_prefix("signal.", arrays),
    )
    sent = Sent(updates, np.ones(len(jobs), dtype=np.bool_))
    for place, job in enumerate(jobs):
        job.decision.sent[job.row] = sent, place


Kind = Literal[0, 1, 2]
BACK: Kind = 0
"""Jobs are back: the server has their answers, or has stopped waiting for them."""
READY: Kind = 1
"""A client has trained, and its upload may begin when the channel is free."""
WAKE: Kind = 2
"""Clients may be available again."""


class Event(NamedTuple):
    """Something that happens to a row of a decision; -1 stands for all of its rows."""

    at_seconds: float
    number: int
    kind: Kind
    decision: Decision | None
    row: int


class Agenda:
    """What will happen, in the order of time; at the same time, in the order in which it began."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Kind, Decision | None, int]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_seconds(self) -> float:
        """When something happens next; infinite if nothing does."""
        return self._heap[0][0] if self._heap else np.inf

    def add(self, at_seconds: float, kind: Kind, decision: Decision | None, row: int = -1) -> None:
        """Schedule an event."""
        heappush(self._heap, (at_seconds, self._number, kind, decision, row))
        self._number += 1

    def next(self) -> Event:
        """Take the next event from the agenda."""
        return Event(*heappop(self._heap))

    def arrays(self, numbers: Mapping[int, int]) -> dict[str, Array]:
        """Everything, to be saved; ``numbers`` says the position of each decision, by id."""
        events = self.events
        places = [-1 if each.decision is None else numbers[id(each.decision)] for each in events]
        return {
            "at_seconds": np.array([each.at_seconds for each in events], dtype=np.float64),
            "number": np.array([each.number for each in events], dtype=np.int64),
            "kind": np.array([each.kind for each in events], dtype=np.int64),
            "decision": np.array(places, dtype=np.int64),
            "row": np.array([each.row for each in events], dtype=np.int64),
            "next": np.array(self._number),
        }

    def load(self, arrays: Mapping[str, Array], decisions: Sequence[Decision]) -> None:
        """Continue from :meth:`arrays`."""
        columns = (arrays[name].tolist() for name in ("at_seconds", "number", "kind", "decision"))
        self._heap = [
            (at, number, kind, None if place < 0 else decisions[place], row)
            for at, number, kind, place, row in zip(*columns, arrays["row"].tolist(), strict=True)
        ]
        self._number = int(arrays["next"])

    @property
    def events(self) -> list[Event]:
        """What will happen, in order."""
        return [Event(*entry) for entry in sorted(self._heap, key=lambda entry: entry[:2])]

    @property
    def jobs(self) -> list[Job]:
        """The jobs that are open, in no order."""
        return [Job(entry[3], entry[4]) for entry in self._heap if entry[3] is not None]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class JobRows:
    """The jobs that ended between two aggregations, for the journal; one entry a job.

    A job without an answer ended when the server stopped waiting for it. ``version`` is the number
    of the model that the client trained on, ``age`` how often the server had aggregated since then
    when it used the answer.
    """

    client: IntArray
    edge: IntArray
    decision: IntArray
    asked_at_seconds: FloatArray
    ended_at_seconds: FloatArray
    answered: BoolArray
    used: BoolArray
    version: IntArray
    age: IntArray

    @classmethod
    def of(
        cls, ended: Sequence[tuple[Job, float]], used: BoolArray, ages: Sequence[int]
    ) -> "JobRows":
        """The rows of these jobs and their end times; ``used`` are the answers in the model."""
        jobs = [job for job, _ in ended]
        versions = np.array([job.decision.version for job in jobs], dtype=np.int64)
        return cls(
            client=np.array([job.client for job in jobs], dtype=np.int64),
            edge=np.array([job.edge for job in jobs], dtype=np.int64),
            decision=np.array([job.decision.number for job in jobs], dtype=np.int64),
            asked_at_seconds=np.array([job.decision.asked_at_seconds for job in jobs]),
            ended_at_seconds=np.array([at for _, at in ended], dtype=np.float64),
            answered=np.array([j.decision.feedback.answered[j.row] for j in jobs], dtype=np.bool_),
            used=used,
            version=versions,
            age=np.array(ages, dtype=np.int64),
        )

    def arrays(self) -> dict[str, Array]:
        """The columns, by name."""
        return {item.name: getattr(self, item.name) for item in fields(self)}
