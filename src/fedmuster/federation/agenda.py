"""The agenda: what will happen to jobs, and when."""

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Literal, NamedTuple

import numpy as np

from fedmuster.core.state import Array, numbered, with_prefix
from fedmuster.federation.jobs import Decision, Job
from fedmuster.training.training_records import Parameters

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
        self._heap: list[Event] = []  # no two have the same number, so decisions do not compare
        self._number = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_seconds(self) -> float:
        """When something happens next; infinite if nothing does."""
        return self._heap[0].at_seconds if self._heap else np.inf

    def add(self, at_seconds: float, kind: Kind, decision: Decision | None, row: int = -1) -> None:
        """Schedule an event."""
        heappush(self._heap, Event(at_seconds, self._number, kind, decision, row))
        self._number += 1

    def next(self) -> Event:
        """Take the next event from the agenda."""
        return heappop(self._heap)

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
            Event(at, number, kind, None if place < 0 else decisions[place], row)
            for at, number, kind, place, row in zip(*columns, arrays["row"].tolist(), strict=True)
        ]
        self._number = int(arrays["next"])

    @property
    def events(self) -> list[Event]:
        """What will happen, in order."""
        return sorted(self._heap)

    @property
    def jobs(self) -> list[Job]:
        """The jobs that are open, in no order."""
        return [Job(each.decision, each.row) for each in self._heap if each.decision is not None]


def saved_jobs(agenda: Agenda, ended: Sequence[Job]) -> dict[str, Array]:
    """Everything on the agenda and these jobs that have ended, to be saved.

    Decisions and the models that clients train from are saved once each.
    """
    found = {id(job.decision): job.decision for job in (*agenda.jobs, *ended)}
    decisions = sorted(found.values(), key=lambda decision: decision.number)
    places = {id(decision): place for place, decision in enumerate(decisions)}
    models: dict[int, tuple[int, Parameters]] = {}
    columns: dict[str, Array] = {}
    for place, decision in enumerate(decisions):
        told = decision.arrays(models)
        columns |= {f"decision.{place}.{name}": a for name, a in told.items()}
    columns |= {f"model.{number}": model for number, model in models.values()}
    columns |= {f"agenda.{name}": a for name, a in agenda.arrays(places).items()}
    columns["ended.decision"] = np.array([places[id(job.decision)] for job in ended], np.int64)
    columns["ended.row"] = np.array([job.row for job in ended], np.int64)
    return columns


def load_jobs(arrays: Mapping[str, Array]) -> tuple[Agenda, list[Job]]:
    """The agenda of a saved loop, and the jobs that ended and are in no journal row yet."""
    saved = with_prefix("model.", arrays)
    models = [saved[str(number)] for number in range(len(saved))]
    told = numbered(with_prefix("decision.", arrays))
    decisions = [Decision.of(told[place], models) for place in range(len(told))]
    agenda = Agenda()
    agenda.load(with_prefix("agenda.", arrays), decisions)
    ended = zip(arrays["ended.decision"].tolist(), arrays["ended.row"].tolist(), strict=True)
    return agenda, [Job(decisions[place], row) for place, row in ended]
