"""What the server believes of what clients tell: times, losses, and the direction of updates."""

from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import ArrayRecord

from fedmuster.adapters.flower.clock import Clock
from fedmuster.adapters.flower.credibility import Credibility
from fedmuster.adapters.flower.replies import Answer, signals_by_name
from fedmuster.core.records import Feedback, FloatArray, IntArray, Selection
from fedmuster.learning.sketch import sketch


class Hearing:
    """From answers to feedback, with a memory of what is usual in this federation."""

    def __init__(self, clock: Clock | None = None, credibility: Credibility | None = None) -> None:
        self._clock = clock or Clock()
        self._credibility = credibility or Credibility()

    def feedback(
        self,
        selection: Selection,
        answers: Sequence[Answer],
        *,
        lasted_seconds: float,
        sent: ArrayRecord,
        sketch_size: int,
        seed: int,
    ) -> Feedback:
        """One row for each of the cohort, in its order; without an answer it did not complete.

        Args:
            selection: who was asked.
            answers: in the order of clients.
            lasted_seconds: how long the round was open.
            sent: the model that was trained from.
            sketch_size: how many numbers of each update's direction the policy wants; 0 for none.
            seed: of sketches.
        """
        clients = np.array([answer.client for answer in answers], dtype=np.int64)
        completed = np.isin(selection.clients, clients)
        latency = np.ones(len(completed))
        if answers:
            latency[completed] = self._latency(answers, clients)
        signals = {}
        for name, claimed in signals_by_name(answers).items():
            values = self._credibility.believable(name, clients, claimed)
            if np.isfinite(values).all():  # else nobody knows yet what is usual
                signals[name] = np.full(len(completed), np.nan)
                signals[name][completed] = values
        sketches = None
        if sketch_size > 0:
            sketches = np.full((len(completed), sketch_size), np.nan)
            if answers:
                updates = np.stack([_update(answer, sent) for answer in answers])
                sketches[completed] = sketch(updates, size=sketch_size, seed=seed)
        return Feedback(
            round=selection.round,
            clients=selection.clients,
            completed=completed,
            latency_seconds=latency,
            signals=signals,
            sketches=sketches,
            round_seconds=lasted_seconds,
        )

    def _latency(self, answers: Sequence[Answer], clients: IntArray) -> FloatArray:
        reports = [answer.report for answer in answers]
        return self._clock.latency_seconds(
            clients,
            np.array([answer.elapsed_seconds for answer in answers]),
            np.array([np.nan if r is None else r.compute_seconds for r in reports]),
            np.array([r is not None and r.trained_before == 0 for r in reports], dtype=np.bool_),
        )

    def usual_seconds(self, num_clients: int) -> FloatArray:
        """[K], how long each client usually takes; NaN where it has never answered."""
        known = self._clock.usual_seconds
        return np.pad(known, (0, num_clients - len(known)), constant_values=np.nan)

    def to_parts(self) -> dict[str, bytes]:
        """An image, in parts."""
        return {"clock": self._clock.to_bytes(), "credibility": self._credibility.to_bytes()}

    @classmethod
    def from_parts(cls, parts: Mapping[str, bytes]) -> "Hearing":
        """Whose image :meth:`to_parts` made."""
        return cls(Clock.from_bytes(parts["clock"]), Credibility.from_bytes(parts["credibility"]))


def _update(answer: Answer, sent: ArrayRecord) -> FloatArray:
    """What the client changed, as one vector of all that is a floating-point number."""
    (arrays,) = answer.reply.content.array_records.values()
    changes = [
        (array.numpy() - sent[name].numpy()).ravel()
        for name, array in arrays.items()
        if name in sent and np.issubdtype(array.numpy().dtype, np.floating)
    ]
    return np.concatenate([np.zeros(0), *changes])
