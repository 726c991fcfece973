"""How many clients are at work in a run, also those that the server no longer waits for."""

from typing import Any, NamedTuple

import numpy as np

from fedmuster.core.errors import PolicyError
from fedmuster.core.records import FloatArray, IntArray, Selection
from fedmuster.federation import Simulation
from fedmuster.federation.jobs import Decision
from fedmuster.worlds.world import WorldRound

_MOST_EMPTY = 1000
"""How often in a row a policy may choose nobody while clients are available."""


class AtWork(NamedTuple):
    """The number of clients at work in a run.

    Args:
        mean: over the simulated time.
        peak: the largest number at any time.
    """

    mean: float
    peak: float


class Asked(NamedTuple):
    """What clients were asked to do together.

    Args:
        clients: int64[n].
        at_seconds: when they were asked.
        latency_seconds: [n], how long each takes; infinite if it never answers. It is not a copy:
            with queued uploads the simulation changes this array later.
    """

    clients: IntArray
    at_seconds: float
    latency_seconds: FloatArray


class ObservedSimulation(Simulation[Any]):
    """A simulation that keeps what it asks clients to do, and ends if nobody is asked any more."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.asked: list[Asked] = []
        """The jobs of all clients, in the order in which they were asked."""
        self._empty = 0

    def select(self, drawn: WorldRound, **settings: Any) -> Selection:
        """See :meth:`Simulation.select`.

        Raises:
            PolicyError: the policy chose nobody too often in a row.
        """
        selection = super().select(drawn, **settings)
        free = settings.get("count", settings.get("cohort_size"))
        idle = len(selection.clients) == 0 and free != 0 and drawn.available.any()
        self._empty = self._empty + 1 if idle else 0
        if self._empty >= _MOST_EMPTY:
            raise PolicyError(f"it chose nobody {_MOST_EMPTY:,} times in a row")
        return selection

    def dispatch(self, *args: Any, **settings: Any) -> Decision:
        """See :meth:`Simulation.dispatch`."""
        one = super().dispatch(*args, **settings)
        self.asked.append(Asked(one.selection.clients, one.asked_at_seconds, one.latency_seconds))
        return one

    def at_work(self, until_seconds: float) -> AtWork:
        """The clients at work from the start until then; see :func:`clients_at_work`."""
        return clients_at_work(self.asked, self.world.time.deadline_seconds, until_seconds)


def clients_at_work(asked: list[Asked], deadline: float, until: float) -> AtWork:
    """The clients at work from the start until then.

    A client works until it has answered, also if that is after the deadline, or until it is asked
    again. A client that never answers works until the deadline.
    """
    clients, begin, end = _jobs(asked, deadline)
    order = np.lexsort((begin, clients))
    clients, begin, end = clients[order], begin[order], end[order]
    again = np.flatnonzero(clients[1:] == clients[:-1])
    end[again] = np.minimum(end[again], begin[again + 1])
    return _mean_and_peak(begin, end, until)


def _jobs(asked: list[Asked], deadline: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """[jobs], the client, the beginning and the end of each job."""
    columns: list[list[FloatArray]] = [[np.zeros(0)], [np.zeros(0)], [np.zeros(0)]]
    for one in asked:
        latency = np.where(np.isfinite(one.latency_seconds), one.latency_seconds, deadline)
        begin = np.full(len(latency), one.at_seconds)
        for column, values in zip(columns, (one.clients, begin, begin + latency), strict=True):
            column.append(np.asarray(values, dtype=np.float64))
    clients, begin, end = (np.concatenate(column) for column in columns)
    return clients, begin, end


def _mean_and_peak(begin: FloatArray, end: FloatArray, until: float) -> AtWork:
    begin, end = np.minimum(begin, until), np.minimum(end, until)
    busy = end > begin
    times = np.concatenate([end[busy], begin[busy]])  # at one time, ends come before beginnings
    steps = np.repeat([-1.0, 1.0], busy.sum())
    level = np.cumsum(steps[np.argsort(times, kind="stable")])
    mean = float((end - begin).sum() / until) if until > 0 else 0.0
    return AtWork(mean, float(level.max(initial=0.0)))
