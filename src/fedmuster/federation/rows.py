"""Rows of the journal: a round or an aggregation, its jobs, and what happened at edge servers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, NamedTuple

import numpy as np

from fedmuster.bandits.utility import participated
from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.edges import EdgeView
from fedmuster.core.records import Feedback, Selection
from fedmuster.core.state import Array
from fedmuster.federation.jobs import Job
from fedmuster.privacy.budget import PrivacyRow
from fedmuster.training.trainer import LearningRow


class Checkpoint(NamedTuple):
    """What a simulation needs to continue after the aggregation ``round``, bit for bit."""

    round: int
    elapsed_seconds: float
    selector: bytes
    judge: bytes | None
    trainer: bytes | None
    budget: bytes | None
    loop: bytes | None = None
    """Open jobs and what will happen to them; in rounds, where no job is open then, what the policy
    will hear of late answers, or None if it does not."""


UNLIMITED: Final = 10**9
"""As many rounds as a run can have: its end is up to ``seconds``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Horizon:
    """When a run ends: after ``rounds``, or with the round that reaches ``seconds``."""

    rounds: int
    seconds: float | None = None

    def __str__(self) -> str:
        if self.seconds is None:
            return f"{self.rounds:,} rounds"
        most = "" if self.rounds == UNLIMITED else f" (at most {self.rounds:,} rounds)"
        return f"{self.seconds:g} simulated seconds{most}"

    def reached(self, rounds: int, elapsed_seconds: float) -> bool:
        """Whether a run of this length is over."""
        over_time = self.seconds is not None and elapsed_seconds >= self.seconds
        return over_time or rounds >= self.rounds


@dataclass(frozen=True, kw_only=True, slots=True)
class Watch:
    """The clients whose scores the journal keeps for reports, and how often.

    Args:
        every: the number of rounds from one record to the next, beginning with the first round.
        clients: how many clients, evenly spaced over all; fewer where there are fewer.
    """

    every: int = 1
    clients: int = 100

    def __post_init__(self) -> None:
        check_types(self)
        require(self.every >= 1, self, "every", "an integer >= 1")
        require(self.clients >= 1, self, "clients", "an integer >= 1")

    def watched(self, num_clients: int) -> IntArray:
        """The watched clients."""
        count = min(self.clients, num_clients)
        return np.arange(count) * num_clients // count

    def due(self, round_number: int) -> bool:
        """Whether the scores of this round are kept."""
        return (round_number - 1) % self.every == 0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class EdgeRow:
    """What happened at the edge servers in a round; rows align with the cohort.

    ``edges`` [m] is where each client trained, ``in_time`` [m] whether it answered by the deadline
    (COCS: X), ``context`` [m, d] what the operator saw, ``cost`` [m] what it paid, ``budget`` [M]
    what it could have paid at each edge, ``position_km`` [m, 2] where each client was, None in
    worlds without places.
    """

    edges: IntArray
    in_time: BoolArray
    context: FloatArray
    cost: FloatArray
    budget: FloatArray
    position_km: FloatArray | None = None

    @classmethod
    def of(
        cls,
        network: EdgeView | None,
        selection: Selection,
        feedback: Feedback,
        position_km: FloatArray | None,
    ) -> "EdgeRow | None":
        """Of a cohort that was played, with its feedback in the same order; None without edges."""
        if network is None or selection.edges is None:
            return None
        clients, context = selection.clients, selection.features
        return cls(
            edges=selection.edges,
            in_time=participated(feedback),
            context=np.zeros((len(clients), 0)) if context is None else context,
            cost=network.cost[clients, selection.edges],
            budget=network.budget,
            position_km=None if position_km is None else position_km[clients],
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class JobRows:
    """The jobs that ended between two aggregations, for the journal; one entry a job.

    Args:
        client: whose job it is.
        edge: at which edge server; 0 in flat learning.
        decision: the number of the decision that asked for it.
        asked_at_seconds: when it was asked for.
        ended_at_seconds: when the answer came, or the server stopped waiting.
        answered: whether an answer came.
        used: whether the answer entered the model.
        version: how often its server had aggregated before it was asked for: the number of the
            model that the client trained on.
        age: how often its server has aggregated since then, when the answer was or would be used.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundRow:
    """One round, as the journal keeps it; without rounds, one aggregation.

    Args:
        round: t, the number of this aggregation.
        seconds: simulated time since the last one.
        reward: realised ``min tau_min/tau + alpha Phi_g + gamma Phi_p`` (BSFL Eq. 5; PAUSE Eq. 9),
            or the utility of participants at edge servers (COCS Eq. 8, 19); NaN without a judge.
        regret: expected loss against the best cohort (BSFL Eq. 7; COCS Eq. 11); NaN likewise.
        num_available: the clients that could be asked.
        num_completed: the clients of the cohort that answered; without rounds, the jobs answered
            since the last row.
        num_refused: feedback rows that could not be right.
        clients: the cohort; without rounds, the clients whose jobs have ended since the last row.
        learning: what the round did to the model, if there is one.
        privacy: what clients have spent, if a ledger is kept.
        scores: the policy's scores of the watched clients, by name; None where none are kept.
        network: what happened at the edge servers; None where there are none.
        jobs: the jobs that have ended since the last row; None in rounds.
    """

    round: int
    seconds: float
    num_available: int
    num_completed: int
    num_refused: int
    clients: IntArray
    reward: float = np.nan
    regret: float = np.nan
    learning: LearningRow = field(default_factory=LearningRow)
    privacy: PrivacyRow = field(default_factory=PrivacyRow)
    scores: Mapping[str, FloatArray] | None = None
    network: EdgeRow | None = None
    jobs: JobRows | None = None
