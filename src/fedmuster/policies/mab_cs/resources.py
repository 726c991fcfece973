"""How long each client takes to update the model, and to upload it."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.means import MeanEstimator, MeanState
from fedmuster.core.arrays import BoolArray, FloatArray, IntArray, ceil_of
from fedmuster.core.records import LONGEST_SECONDS, Feedback, RoundView, Selection
from fedmuster.core.state import shared
from fedmuster.policies.random import draw


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


@dataclass(slots=True)
class ResourceState:
    """What is known of each client's update and upload times."""

    update: SecondsState
    upload: SecondsState

    @property
    def count(self) -> IntArray:
        """[K], how often each was asked to take part."""
        return self.update.of_client.count

    def of(self, rows: IntArray | slice) -> tuple[FloatArray, FloatArray]:
        """Mean seconds of update and of upload; 0 of the unseen."""
        return self.update.of_client.mean[rows], self.upload.of_client.mean[rows]


@dataclass(frozen=True, kw_only=True, slots=True)
class Resources:
    """The means of both times.

    Args:
        mean: of which samples.
    """

    mean: MeanEstimator

    def init(self, num_clients: int) -> ResourceState:
        """Nobody observed yet."""
        seconds = Seconds(mean=self.mean)
        return ResourceState(update=seconds.init(num_clients), upload=seconds.init(num_clients))

    def observe(self, state: ResourceState, feedback: Feedback) -> None:
        """Learn the times of a round."""
        times = reported_seconds(feedback)
        for part, seconds in zip((state.update, state.upload), times, strict=True):
            Seconds(mean=self.mean).update(
                part,
                feedback.clients,
                seconds,
                feedback.answered,
                round_=feedback.round,
                round_seconds=feedback.lasted_seconds,
            )


def requested(view: RoundView, fraction: float, rng: Generator) -> IntArray | slice:
    """Whom the resource request reaches: ``ceil(K C)`` random clients, if so many are available.

    Never fewer than the round can use. To be called before anything else is drawn, so that all
    policies ask the same clients under the same seed.

    Args:
        view: of the round.
        fraction: C.
        rng: the policy's.
    """
    count = max(ceil_of(fraction * len(view.available)), view.num_to_choose)
    if count >= view.num_available:
        return view.candidates()
    return np.flatnonzero(view.available)[draw(np.array(1.0), view, count, rng)]


def in_order(view: RoundView, rows: IntArray | slice, positions: IntArray) -> Selection:
    """The clients of ``rows`` at ``positions``, who upload in this order."""
    chosen = positions if isinstance(rows, slice) else rows[positions]
    cohort = Selection.of(view, rows, positions)
    return replace(cohort, order=np.searchsorted(cohort.clients, chosen))
