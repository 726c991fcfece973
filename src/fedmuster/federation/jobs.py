"""Jobs: what clients were asked to do, and what they have sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import numpy as np

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.records import Feedback, Selection
from fedmuster.core.state import Array, with_prefix
from fedmuster.privacy.budget import Grant
from fedmuster.training.servers import Starts, some
from fedmuster.training.trainer import Sent
from fedmuster.training.training_records import Parameters, Updates


@dataclass(kw_only=True, eq=False, slots=True)
class Decision:
    """The jobs of clients that were chosen together.

    Args:
        number: the number of the decision: 1, 2, …
        version: how often the server that asked had aggregated.
        asked_at_seconds: the simulated time of the decision.
        selection: the chosen clients.
        feedback: what will come back, with a row for each client; the server learns it row by row.
        latency_seconds: [n], how long each client takes, also if the server does not wait for it.
        sample_orders: int64[n], the number that seeds each client's order of samples; the learning
            rate follows ``version``.
        starts: the model from which each client trains; empty without a model.
        grant: the debit that lets clients send, where privacy is kept.
        cost: [n], what the operator pays for each client at its edge server; None without edges.
        position_km: [n, 2], where the clients were; None in worlds without places.
    """

    number: int
    version: int
    asked_at_seconds: float
    selection: Selection
    feedback: Feedback
    latency_seconds: FloatArray
    sample_orders: IntArray
    starts: Starts = ()
    grant: Grant | None = None
    cost: FloatArray | None = None
    position_km: FloatArray | None = None
    sent: list[tuple[Sent, int] | None] = field(init=False)
    """What each client has sent, as a row of what several have sent together; None for a client
    that has not trained yet."""

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
            "latency_seconds": self.latency_seconds,
            "sample_orders": self.sample_orders,
            "starts": np.array(numbers, dtype=np.int64),
            "heard.latency_seconds": self.feedback.latency_seconds,
            "heard.completed": self.feedback.answered,
        }
        columns |= {f"selection.{name}": a for name, a in self.selection.arrays().items()}
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
        """The inverse of :meth:`arrays`."""
        selection = Selection.of_arrays(with_prefix("selection.", arrays))
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
            sample_orders=arrays["sample_orders"],
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
