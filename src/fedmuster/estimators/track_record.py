"""What each client last brought, how long that took, and when and how often it was asked."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.records import SHORTEST_SECONDS, Feedback, FloatArray, IntArray, Problem


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

    def speed_share(self, rows: IntArray) -> FloatArray:
        """The share of each of ``rows`` in their expected speeds."""
        speed = self.expected_speed(rows)
        return np.asarray(speed / speed.sum())


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
    """Enter a round; the mean utility of those who answered and had been asked before.

    Who did not answer is given the mean utility of those who did (or keeps its own, if nobody
    did), and the duration of the round, or its own if that is longer.

    Args:
        record: is changed.
        feedback: of the round.
        utility: [n], of those who answered.
    """
    clients, answered = feedback.clients, feedback.answered
    again = answered & (record.last_round[clients] > 0)
    brought = _mean(utility[again])
    guessed = _mean(utility[answered]) if answered.any() else record.utility[clients]
    record.utility[clients] = np.where(answered, utility, guessed)
    at_least = np.maximum(record.seconds[clients], feedback.lasted_seconds)
    record.seconds[clients] = np.where(answered, feedback.latency_seconds, at_least)
    record.last_round[clients] = feedback.round
    record.times[clients] += 1
    return brought


def _mean(values: FloatArray) -> float:
    """0 of nothing; in one order, whatever the order of the rows was."""
    return float(np.sort(values).mean()) if len(values) else 0.0
