"""Triggers: when a server that asks clients one by one aggregates what has come.

In rounds the server waits for a cohort together; :mod:`fedmuster.worlds.round_time` says for how
long: for all answers, the first m, a quota, Z of them, or until a deadline.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import numpy as np

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.errors import ConfigError
from fedmuster.core.registry import Registry


class Waiting(NamedTuple):
    """What a server has, and what it waits for.

    Attributes:
        now_seconds: the time.
        since_seconds: the time of the last aggregation.
        answers: how many answers have come since.
        quota: how many answers the policy wants to wait for, by its last decision; None if it does
            not say. For triggers that count answers.
        running_seconds: of each open job, how long the last job of its client took; NaN if it has
            done none.
        running_ages: of each open job, how often the server has aggregated since it was asked.
        slots: how many jobs may be open at once.
    """

    now_seconds: float
    since_seconds: float
    answers: int
    quota: int | None
    running_seconds: FloatArray
    running_ages: IntArray
    slots: int


class Trigger(ABC):
    """Says when the server aggregates."""

    __slots__ = ()

    name: ClassVar[str]
    rests: ClassVar[bool] = False
    """Whether a client is not asked again while its answer waits to be aggregated, nor at the
    moment in which its answer enters the model."""
    looks_at_jobs: ClassVar[bool] = False
    """Whether it must know of each open job (``Waiting.running_seconds``, ``running_ages``)."""

    @abstractmethod
    def due_seconds(self, waiting: Waiting) -> float:
        """When the server aggregates, if nothing happens before then; infinite for not before."""

    @property
    def least_answers(self) -> int:
        """The number of answers that the server has at least when it aggregates."""
        return 1

    def require_reachable(self, slots: int) -> None:
        """Complain if it can never fire with this number of jobs open at once."""
        return


TRIGGERS: Final[Registry[Trigger]] = Registry(
    "trigger",
    Trigger,
    modules=(__name__,),
    methods=("due_seconds", "require_reachable"),
    group="fedmuster.triggers",
)


@TRIGGERS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Buffer(Trigger):
    """Aggregates when ``answers`` answers have come (FedBuff), or as many as the policy asks for.

    With 1 every answer changes the model (FedAsync).

    References:
        J. Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022.
    """

    name: ClassVar[str] = "buffer"

    answers: int = 10

    def __post_init__(self) -> None:
        check_types(self)
        require(self.answers >= 1, self, "answers", "an integer >= 1")

    @property
    def least_answers(self) -> int:
        """See :class:`Trigger`."""
        return self.answers

    def due_seconds(self, waiting: Waiting) -> float:
        """See :class:`Trigger`."""
        wanted = self.answers if waiting.quota is None else waiting.quota
        return waiting.now_seconds if waiting.answers >= wanted else np.inf

    def require_reachable(self, slots: int) -> None:
        """See :class:`Trigger`."""
        if self.answers > slots:
            raise ConfigError(
                f"Buffer: answers = {self.answers} can never be reached with {slots} jobs open at "
                f"once: write at most {slots}, or a larger concurrency",
                key=("federation", "trigger"),
            )


@TRIGGERS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Interval(Trigger):
    """Aggregates at every multiple of ``seconds`` by which an answer has come."""

    name: ClassVar[str] = "interval"

    seconds: float = 60.0

    def __post_init__(self) -> None:
        check_types(self)
        require(0 < self.seconds < np.inf, self, "seconds", "a number > 0")

    def due_seconds(self, waiting: Waiting) -> float:
        """See :class:`Trigger`."""
        if waiting.answers == 0:
            return np.inf
        next_time = np.floor(waiting.since_seconds / self.seconds) + 1
        return float(self.seconds * max(next_time, np.ceil(waiting.now_seconds / self.seconds)))


@TRIGGERS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Pace(Trigger):
    """Pisces' pace: the slower the running clients, the longer the server waits.

    The server aggregates when ``L / b`` seconds have passed since the last aggregation, L being the
    longest of the last latencies of the clients that are running. While a job that runs has the age
    b, the server waits for it, so no answer is ever older than b. A client whose answer waits is
    not asked. Its slot goes to another client, or stays free until the aggregation if no other is
    idle.

    Args:
        bound: b, the largest age of an answer; None for the concurrency, as the paper has it.

    Deviations:
        1. The authors' server looks at its clock every five seconds; here the time is exact.
        2. Clients whose latency nobody knows do not count in L. Without any other the server
           aggregates with the next answer. The authors' code takes 180 s for them, the longest
           latency of its experiments.
        3. The authors' code has the wait for jobs of the age b as an option, which their runs leave
           out. A job that never answers would hold the server up for ever; the deadline of the
           world ends it.

    References:
        Z. Jiang, W. Wang, B. Li, B. Li, Pisces: Efficient Federated Learning via Guided
        Asynchronous Training, SoCC 2022, section 5.
    """

    name: ClassVar[str] = "pace"
    rests: ClassVar[bool] = True
    looks_at_jobs: ClassVar[bool] = True

    bound: int | None = None

    def __post_init__(self) -> None:
        check_types(self)
        require(self.bound is None or self.bound >= 1, self, "bound", "an integer >= 1")

    def due_seconds(self, waiting: Waiting) -> float:
        """See :class:`Trigger`."""
        bound = waiting.slots if self.bound is None else self.bound
        if waiting.answers == 0 or waiting.running_ages.max(initial=0) >= bound:
            return np.inf
        known = waiting.running_seconds[np.isfinite(waiting.running_seconds)]
        pause = float(known.max(initial=0.0)) / bound
        return max(waiting.since_seconds + pause, waiting.now_seconds)
