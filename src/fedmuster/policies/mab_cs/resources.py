"""What FedCS and MAB-CS share: the times of each client, the resource request, upload order."""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.means import MeanEstimator, MeanState, confidence_radius, log_rounds
from fedmuster.core.arrays import FloatArray, IntArray, ceil_of
from fedmuster.core.config import check_types, require
from fedmuster.core.records import LONGEST_SECONDS, Feedback, RoundView, Selection
from fedmuster.core.state import shared
from fedmuster.policies.random import draw

PLANS_UPLOADS: Final = "it plans the order in which the clients of a whole cohort upload"
"""Why these policies need rounds."""


@dataclass(slots=True)
class SecondsState:
    """Of each client the mean; of all answers the longest time, the sum and their number."""

    of_client: MeanState
    longest: FloatArray = shared()
    total: FloatArray = shared()
    answers: IntArray = shared()


def blank_seconds(mean: MeanEstimator, num_clients: int) -> SecondsState:
    """No client observed yet."""
    return SecondsState(
        of_client=mean.init(num_clients),
        longest=np.array(0.0),
        total=np.array(0.0),
        answers=np.array(0),
    )


def learn_seconds(
    mean: MeanEstimator, state: SecondsState, feedback: Feedback, seconds: FloatArray
) -> None:
    """One new sample for each row of ``feedback``; ``seconds`` mean nothing without an answer.

    A missing answer counts as the longest time so far, or as the length of the round before the
    first answer. If failures did not count, a client that never answers would stay attractive.
    """
    answered = feedback.answered
    heard = seconds[answered]
    state.longest[...] = heard.max(initial=float(state.longest))
    state.total += math.fsum(heard)  # the same in whatever order the answers are
    state.answers += len(heard)
    silent = state.longest if state.answers > 0 else feedback.lasted_seconds
    counted = np.where(answered, seconds, silent)
    mean.update(state.of_client, feedback.clients, counted, round_=feedback.round)


def typical_seconds(*states: SecondsState) -> float:
    """The mean over all answers so far and over ``states``; 1 where that mean is 0."""
    means = [float(state.total) / max(int(state.answers), 1) for state in states]
    return math.fsum(means) / len(means) or 1.0


def reported_seconds(feedback: Feedback) -> tuple[FloatArray, FloatArray]:
    """Update and upload times of each row: the signals "compute_seconds" and "upload_seconds".

    Without them the whole latency counts as update. Times are clipped to 0 … 30 years.
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


def selection_bonus(count: IntArray, rows: IntArray | slice) -> FloatArray:
    """``sqrt(ln(sum N) / (2 N_k))`` of ``rows``; infinite for clients never selected."""
    return confidence_radius(count[rows], 0.5 * log_rounds(float(count.sum())))


def check_request(config: Any) -> None:
    """Check the types of all hyper-parameters, and ``request_fraction``."""
    check_types(config)
    fraction = config.request_fraction
    require(0 < fraction <= 1, config, "request_fraction", "a number in (0, 1]")


def requested(view: RoundView, fraction: float, rng: Generator) -> IntArray | slice:
    """The clients that the resource request reaches: ``ceil(K C)`` random available clients.

    Never fewer than the round can use; C is ``fraction``. Policies call this before they draw
    anything else, so that all of them ask the same clients under the same seed.
    """
    count = max(ceil_of(fraction * len(view.available)), view.num_to_choose)
    if count >= view.num_available:
        return view.candidates()
    return np.flatnonzero(view.available)[draw(np.array(1.0), view, count, rng)]


def in_order(view: RoundView, rows: IntArray | slice, positions: IntArray) -> Selection:
    """The cohort of the clients at ``positions`` of ``rows``, which upload in this order."""
    chosen = positions if isinstance(rows, slice) else rows[positions]
    cohort = Selection.of(view, rows, positions)
    return replace(cohort, order=np.searchsorted(cohort.clients, chosen))
