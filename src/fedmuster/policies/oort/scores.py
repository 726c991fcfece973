"""Oort's parts: the pacer, the blacklist, the track record of clients, and their score."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray, blocks
from fedmuster.core.config import check_types, require
from fedmuster.core.records import SHORTEST_SECONDS, Feedback, Problem
from fedmuster.core.state import shared
from fedmuster.solvers.top_k import top_k


@dataclass(slots=True)
class PacerState:
    """The percentile R, and the utility that this window and the last have brought."""

    percentile: FloatArray = shared()
    this_window: FloatArray = shared()
    last_window: FloatArray = shared()


@dataclass(frozen=True, kw_only=True, slots=True)
class Pacer:
    """Clients up to the R-th percentile of durations are quick enough; R follows their utility.

    A round counts with the mean utility of its exploited clients. Every W rounds the sum A of the
    last window is compared with the sum B of this one. If both are nearly the same,
    ``|B - A| <= flat A``, quick clients teach little more, and R rises by a step; if they differ
    sharply, ``|B - A| >= sharp A``, R falls.

    Args:
        first_percentile: R at first. Authors' code: 30.
        window: W, in rounds. Paper: 20.
        step: by which R rises and falls; it is the lowest R, and 100 the highest. Authors' code: 5.
        flat: authors' code: 0.1.
        sharp: authors' code: 5.
    """

    first_percentile: float = 30.0
    window: int = 20
    step: float = 5.0
    flat: float = 0.1
    sharp: float = 5.0

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("first_percentile", "step"):
            require(0 < getattr(self, name) <= 100, self, name, "a number in (0, 100]")
        require(self.window >= 1, self, "window", "an integer >= 1")
        require(0 <= self.flat < self.sharp < np.inf, self, "flat", "a number >= 0 below sharp")

    def init(self) -> PacerState:
        """Nothing brought yet."""
        return PacerState(
            percentile=np.array(float(self.first_percentile)),
            this_window=np.array(0.0),
            last_window=np.array(0.0),
        )

    def update(
        self, state: PacerState, utility: float, *, round_: int, until: int | None = None
    ) -> None:
        """Add the ``utility`` of ``round_``; at the end of a window, move R.

        ``until`` is the last round that is over, where rounds after ``round_`` brought nothing.
        """
        state.this_window += utility
        over = round_ if until is None else until
        end = over - over % self.window  # of the last window that is over
        if end < round_:
            return
        last, this = float(state.last_window), float(state.this_window)
        change, percentile = abs(this - last), float(state.percentile)
        if end >= 2 * self.window:  # before, there is no window to compare with
            # As in the authors' code; Oort Alg. 1 adds to T itself when utility falls.
            if change <= self.flat * last:
                percentile = min(100.0, percentile + self.step)
            elif change >= self.sharp * last:
                percentile = max(self.step, percentile - self.step)
        state.percentile[...] = percentile
        state.last_window[...] = this
        state.this_window[...] = 0.0


def not_too_often(times: IntArray, most: int | None, share: float, rng: Generator) -> BoolArray:
    """bool[K]: clients that were asked at most ``most`` times (None: all clients).

    At most ``share`` of all clients are left out: those that were asked most often.

    Example:
        >>> not_too_often(np.array([9, 1, 8, 7]), 5, 0.5, np.random.default_rng(0))
        array([False,  True, False,  True])
    """
    allowed = np.ones(len(times), dtype=np.bool_)
    if most is not None:
        tired = np.flatnonzero(times > most)
        count = min(len(tired), int(share * len(times)))
        allowed[tired[top_k(times[tired].astype(np.float64), count, rng)]] = False
    return allowed


@dataclass(slots=True)
class TrackRecord:
    """Of each client: last utility, last duration (0: unknown), last round (0: none), times."""

    utility: FloatArray
    seconds: FloatArray
    last_round: IntArray
    times: IntArray

    def of(self, rows: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
        """Utility, duration and last round of ``rows`` (increasing); no copy where that is all."""
        index: IntArray | slice = slice(None) if len(rows) == len(self.times) else rows
        return self.utility[index], self.seconds[index], self.last_round[index]

    def columns(self, rows: IntArray) -> dict[str, FloatArray]:
        """Utility, duration and times of ``rows``, for reports."""
        return {
            "utility": self.utility[rows],
            "duration_seconds": self.seconds[rows],
            "times_asked": self.times[rows].astype(np.float64),
        }

    def expected_speed(self, rows: IntArray) -> FloatArray:
        """One by the duration; the same for all where none is known, and while nobody was asked."""
        seconds = self.seconds[rows] if (self.last_round > 0).any() else np.zeros(len(rows))
        return np.asarray(1.0 / np.maximum(seconds, SHORTEST_SECONDS))


def blank_record(problem: Problem) -> TrackRecord:
    """Nobody asked yet; a duration may be expected."""
    clients, expected = problem.num_clients, problem.expected_seconds
    return TrackRecord(
        utility=np.zeros(clients),
        seconds=np.zeros(clients) if expected is None else expected.copy(),
        last_round=np.zeros(clients, dtype=np.int64),
        times=np.zeros(clients, dtype=np.int64),
    )


def learn_record(record: TrackRecord, feedback: Feedback, utility: FloatArray) -> float:
    """Enter a round; returns the mean utility of the answering clients that were asked before.

    A client that did not answer gets the mean ``utility`` [n] of those that did (or keeps its own,
    if none did), and the duration of the round, or its own if that is longer.
    """
    clients, answered = feedback.clients, feedback.answered
    again = answered & (record.last_round[clients] > 0)
    brought = _mean(utility[again])
    guessed = _mean(utility[answered]) if answered.any() else record.utility[clients]
    _enter(record, feedback, utility, guessed, feedback.lasted_seconds)
    return brought


def learn_answers(record: TrackRecord, feedback: Feedback, utility: FloatArray) -> None:
    """Enter answers that come without rounds.

    For a client that did not answer, the clients heard of in this round and in the one before
    stand in for its round: it gets their mean utility, and their longest duration, or its own if
    that is longer. If there are none, it keeps its own.
    """
    clients, answered = feedback.clients, feedback.answered
    recent = record.last_round >= max(feedback.round - 1, 1)
    recent[clients] = False
    values = np.concatenate([record.utility[recent], utility[answered]])
    seconds = np.concatenate([record.seconds[recent], feedback.latency_seconds[answered]])
    guessed = _mean(values) if len(values) else record.utility[clients]
    _enter(record, feedback, utility, guessed, float(seconds.max(initial=0.0)))


def _enter(
    record: TrackRecord,
    feedback: Feedback,
    utility: FloatArray,
    guessed: FloatArray | float,
    seconds: float,
) -> None:
    """Clients without an answer get the ``guessed`` utility, and a duration of ``seconds`` at
    least."""
    clients, answered = feedback.clients, feedback.answered
    record.utility[clients] = np.where(answered, utility, guessed)
    at_least = np.maximum(record.seconds[clients], seconds)
    record.seconds[clients] = np.where(answered, feedback.latency_seconds, at_least)
    record.last_round[clients] = feedback.round
    record.times[clients] += 1


def brought_in(record: TrackRecord, round_: int) -> float:
    """The mean utility of clients last heard of in ``round_`` that had been asked before."""
    return _mean(record.utility[(record.last_round == round_) & (record.times > 1)])


def _mean(values: FloatArray) -> float:
    """0 of nothing; in one order, whatever the order of the rows was."""
    return float(np.sort(values).mean()) if len(values) else 0.0


_BELOW = 0.999
"""So that the least useful is not worth nothing, and equals are all worth 1 (authors' code)."""


class Known(NamedTuple):
    """What the score of n clients in a round is made from.

    Attributes:
        utility: [n], when each client was last asked.
        seconds: [n], D, how long that took; 0 if unknown.
        last_round: [n], L, when that was.
        round: t.
        preferred_seconds: T; +inf if no client is too slow.
    """

    utility: FloatArray
    seconds: FloatArray
    last_round: IntArray
    round: int
    preferred_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class GuidedScore:
    """``(u + sqrt(staleness ln t / L)) (T / D)^alpha``, the last factor only where ``D > T``.

    What Alg. 1 of Oort calls Util: u is the utility, clipped and scaled to (0, 1] among the scored
    clients.

    Args:
        clip: utility is clipped at the value that this share of all are below.
        staleness: weight of the second term.
        slow_penalty: alpha.

    Example:
        >>> known = Known(np.array([4.0, 4.0]), np.array([1.0, 2.0]), np.array([1, 1]), 1, 1.0)
        >>> score = GuidedScore(clip=0.95, staleness=0.1, slow_penalty=2.0)
        >>> score.of(known).round(6)
        array([1.  , 0.25])
        >>> list(score.terms(known))
        ['score', 'statistical_utility', 'staleness_bonus', 'speed_factor']
    """

    clip: float
    staleness: float
    slow_penalty: float

    def of(self, known: Known) -> FloatArray:
        """[n], the scores."""
        utility, seconds, last_round, round_, preferred_seconds = known
        score = np.empty(len(utility))
        low, high = self._range(utility)
        for block in blocks(len(utility)):
            part = _scaled(utility[block], low, high)
            part += self._staleness(last_round[block], round_)
            if preferred_seconds < math.inf:
                part *= self._speed_factor(seconds[block], preferred_seconds)
            score[block] = part
        return score

    def terms(self, known: Known) -> dict[str, FloatArray]:
        """[n] by name: "score", and what it is made of: two terms add up, the third multiplies."""
        utility, seconds, last_round, round_, preferred_seconds = known
        factor = np.ones(len(utility))
        if preferred_seconds < math.inf:
            factor = self._speed_factor(seconds, preferred_seconds)
        return {
            "score": self.of(known),
            "statistical_utility": _scaled(utility, *self._range(utility)),
            "staleness_bonus": self._staleness(last_round, round_),
            "speed_factor": factor,
        }

    def _range(self, utility: FloatArray) -> tuple[float, float]:
        """Which utilities count as 0 and as 1."""
        return _BELOW * float(utility.min(initial=math.inf)), value_at(utility, self.clip)

    def _staleness(self, last_round: IntArray, round_: int) -> FloatArray:
        """``sqrt(staleness ln t / L)`` (Oort Alg. 1): how long ago."""
        urgency = self.staleness * math.log(round_)
        return np.asarray(np.sqrt(urgency / last_round))

    def _speed_factor(self, seconds: FloatArray, preferred_seconds: float) -> FloatArray:
        """``(T / D)^alpha`` where ``D > T`` (Oort Alg. 1): how slow."""
        slowness = preferred_seconds / np.maximum(seconds, preferred_seconds)
        return np.asarray(slowness**self.slow_penalty)


def _scaled(utility: FloatArray, low: float, high: float) -> FloatArray:
    """u, clipped and scaled as in the authors' code."""
    part = np.minimum(utility, high)
    part -= low
    part /= (high - low) or 1.0  # 0 if all are
    return part


def preferred_seconds(seconds: FloatArray, percentile: float) -> float:
    """T, the R-th percentile of all known durations (> 0); +inf, nobody is too slow, from 100 on.

    Example:
        >>> preferred_seconds(np.array([0.0, 4.0, 1.0, 3.0, 2.0]), 50.0)
        3.0
    """
    if percentile >= 100.0:
        return math.inf
    known = seconds > 0
    return value_at(seconds if known.all() else seconds[known], percentile / 100)


def value_at(values: FloatArray, share: float) -> float:
    """The value that this share of the ``values`` are below, without sorting them.

    It is one of them: number ``min(floor(share n), n - 1)`` in increasing order, counted from 0;
    ``+inf`` where there are none.

    Example:
        >>> value_at(np.array([4.0, 1.0, 3.0, 2.0]), 0.5)
        3.0
    """
    if len(values) == 0:
        return math.inf
    rank = min(int(share * len(values)), len(values) - 1)
    return float(np.partition(values, rank)[rank])
