"""How long each client takes to update the model, and to upload it."""

from dataclasses import dataclass

from fedmuster.core.records import Feedback, FloatArray, IntArray
from fedmuster.estimators.mean import MeanEstimator
from fedmuster.estimators.seconds import Seconds, SecondsState, reported_seconds


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
