"""How long something takes each client, where no answer counts as the longest time of all."""

import math
from dataclasses import dataclass

import numpy as np

from fedmuster.core.records import LONGEST_SECONDS, BoolArray, Feedback, FloatArray, IntArray
from fedmuster.core.state import shared
from fedmuster.estimators.mean import MeanEstimator, MeanState


@dataclass(slots=True)
class SecondsState:
    """Of each client the mean; of all answers the longest time, the sum and their number."""

    of_client: MeanState
    longest: FloatArray = shared()
    total: FloatArray = shared()
    answers: IntArray = shared()


@dataclass(frozen=True, kw_only=True, slots=True)
class Seconds:
    """The mean seconds of each client.

    If failures were not counted, a client that never answers would stay as attractive as it was.

    Args:
        mean: of which samples.
    """

    mean: MeanEstimator

    def init(self, num_clients: int) -> SecondsState:
        """Nobody observed yet."""
        return SecondsState(
            of_client=self.mean.init(num_clients),
            longest=np.array(0.0),
            total=np.array(0.0),
            answers=np.array(0),
        )

    def update(
        self,
        state: SecondsState,
        clients: IntArray,
        seconds: FloatArray,
        answered: BoolArray,
        *,
        round_: int,
        round_seconds: float,
    ) -> None:
        """One new sample for each of ``clients``; ``seconds`` means nothing without an answer.

        Who did not answer counts as the longest time seen so far, or ``round_seconds`` as long as
        nobody has ever answered.
        """
        heard = seconds[answered]
        state.longest[...] = heard.max(initial=float(state.longest))
        state.total += math.fsum(heard)  # the same in whatever order the answers are
        state.answers += len(heard)
        silent = state.longest if state.answers > 0 else round_seconds
        counted = np.where(answered, seconds, silent)
        self.mean.update(state.of_client, clients, counted, round_=round_)


def typical_seconds(*states: SecondsState) -> float:
    """The mean over all answers so far, and over ``states``; 1 as long as that is 0."""
    means = [float(state.total) / max(int(state.answers), 1) for state in states]
    return math.fsum(means) / len(means) or 1.0


def reported_seconds(feedback: Feedback) -> tuple[FloatArray, FloatArray]:
    """What each row says of update and upload: the signals "compute_seconds", "upload_seconds".

    Without them the whole latency counts as update. A time below 0 or above 30 years was not
    measured, and counts as the nearest that could be.
    """
    update = feedback.signals.get("compute_seconds")
    upload = feedback.signals.get("upload_seconds")
    if update is None or upload is None:
        return feedback.latency_seconds, np.zeros_like(feedback.latency_seconds)
    return np.clip(update, 0.0, LONGEST_SECONDS), np.clip(upload, 0.0, LONGEST_SECONDS)
