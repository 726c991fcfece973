"""The jobs of a run without rounds: which client was asked when, and what became of its work."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace

import numpy as np

from fedmuster.core import state as states
from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.state import Array
from fedmuster.experiments.database import connect, plain_errors
from fedmuster.experiments.journal import JournalReader
from fedmuster.federation import JobRows
from fedmuster.federation.agenda import load_jobs
from fedmuster.federation.jobs import Job

_SAME_TIME = 1e-12
"""Times that differ by no larger part of them were the same before they were added up."""
_MOST_READS = 10
"""How often to read the journal of a run that goes on meanwhile."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class JobHistory(JobRows):
    """Every job that was asked for until an aggregation; one entry a job.

    ``ended_at_seconds`` is NaN for a job that is open, or whose edge server has not aggregated
    since its end.

    Args:
        asked_after: the number of aggregations of all servers before it was asked for.
        row: the number of the aggregation before which it ended; one more than there are if it is
            open.
        servers: int64[aggregations], the edge server of each aggregation; 0 in flat learning.
    """

    asked_after: IntArray
    row: IntArray
    servers: IntArray

    def __len__(self) -> int:
        return len(self.client)

    @property
    def open(self) -> BoolArray:
        """bool[n], the jobs that have not ended."""
        return np.isnan(self.ended_at_seconds)

    @property
    def ends_at_seconds(self) -> FloatArray:
        """[n], when each job ended; infinite if it is open."""
        return np.where(self.open, np.inf, self.ended_at_seconds)

    @property
    def lost(self) -> BoolArray:
        """bool[n], the answers that came and were not used: too old, or not finite."""
        return self.answered & ~self.used

    @property
    def given_up(self) -> BoolArray:
        """bool[n], the jobs that ended without an answer."""
        return ~self.answered & ~self.open

    def worked_seconds(self, now_seconds: float) -> FloatArray:
        """[n], how long each client worked; an open job has gone on until now."""
        ends = np.where(self.open, now_seconds, self.ended_at_seconds)
        return np.asarray(ends - self.asked_at_seconds)

    def until(self, aggregations: int) -> "JobHistory":
        """As it was right after this number of aggregations."""
        kept, servers = self._some(self.asked_after < aggregations), self.servers[:aggregations]
        later = kept.row > aggregations
        return replace(
            kept,
            ended_at_seconds=np.where(later, np.nan, kept.ended_at_seconds),
            answered=kept.answered & ~later,
            used=kept.used & ~later,
            age=np.where(later, _times_of(kept.edge, servers) - kept.version, kept.age),
            row=np.minimum(kept.row, aggregations + 1),
            servers=servers,
        )

    def of_decision(self, decision: int) -> "JobHistory":
        """The jobs of one decision, by client."""
        found = self._some(self.decision == decision)
        return found._some(np.argsort(found.client, kind="stable"))

    def _some(self, rows: BoolArray | IntArray) -> "JobHistory":
        names = [item.name for item in fields(self) if item.name != "servers"]
        columns = {name: getattr(self, name)[rows] for name in names}
        return JobHistory(**columns, servers=self.servers)


def read_jobs(reader: JournalReader, rounds: int) -> JobHistory | None:
    """The jobs until the aggregation ``rounds``; None for a run in rounds."""
    if reader.jobs is None:
        return None
    for _ in range(_MOST_READS):
        done, still_open = _open_jobs(reader)
        if done == len(reader):
            break
        reader = JournalReader(reader.path)  # the run has gone on
    assert reader.jobs is not None
    elapsed = np.cumsum(reader.columns["seconds"])
    return _history(reader.jobs, still_open, elapsed).until(rounds)


def _history(
    rows: Sequence[JobRows], still_open: Sequence[Job], elapsed_seconds: FloatArray
) -> JobHistory:
    count = len(still_open)
    nobody = np.zeros(count, dtype=np.bool_)
    last = JobRows.of([(job, np.nan) for job in still_open], nobody, ages=[0] * count)
    parts = [part.arrays() for part in (*rows, replace(last, answered=nobody))]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    numbers = np.arange(1, len(parts) + 1)
    # Answers are all of the server that aggregates; without any it is the first.
    answering = [part.edge[part.answered] for part in rows]
    servers = np.array([edges[0] if len(edges) else 0 for edges in answering], dtype=np.int64)
    return JobHistory(
        **columns,
        asked_after=_asked_after(columns, servers, elapsed_seconds),
        row=np.repeat(numbers, [len(part["client"]) for part in parts]),
        servers=servers,
    )


def _times_of(edges: IntArray, servers: IntArray) -> IntArray:
    """[n], how often each of these edge servers has aggregated."""
    return np.bincount(servers, minlength=int(edges.max(initial=0)) + 1)[edges]


def _asked_after(
    columns: Mapping[str, Array], servers: IntArray, elapsed_seconds: FloatArray
) -> IntArray:
    """[n], the number of aggregations of all servers before each job was asked for.

    A job comes after as many aggregations of its own server as its version says. Where another
    server aggregates in the same instant, clients are asked after that.
    """
    asked, edges, versions = (columns[name] for name in ("asked_at_seconds", "edge", "version"))
    after = np.searchsorted(elapsed_seconds, asked * (1 + _SAME_TIME), side="right")
    for edge in np.unique(edges).tolist():
        (here,) = np.nonzero(edges == edge)
        (own,) = np.nonzero(servers == edge)
        # The places of the aggregations of this server, with those before the first and the last.
        places = np.concatenate([[-1], own, [len(servers)]])
        earliest, latest = places[versions[here]] + 1, places[versions[here] + 1]
        after[here] = np.clip(after[here], earliest, latest)
    return after


def _open_jobs(reader: JournalReader) -> tuple[int, list[Job]]:
    """After how many aggregations the last checkpoint was written, and which jobs were open.

    A job that has ended counts as open until its edge server aggregates.
    """
    with closing(connect(reader.path)) as database, plain_errors(reader.path):
        query = "SELECT round, npz FROM checkpoint JOIN loop USING (id)"
        row = database.execute(query).fetchone()
    if row is None:
        return len(reader), []
    arrays, _ = states.from_bytes(row[1], source=str(reader.path))
    with states.missing_arrays(str(reader.path)):
        agenda, ended = load_jobs(arrays)
    return int(row[0]), sorted([*agenda.jobs, *ended], key=lambda job: job.identity)
