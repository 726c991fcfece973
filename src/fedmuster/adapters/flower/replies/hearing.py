"""What the server believes of what clients tell: times, losses, and the direction of updates."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import ArrayRecord

from fedmuster.adapters.flower.metrics import signals_of
from fedmuster.adapters.flower.replies.clock import Clock
from fedmuster.adapters.flower.replies.credibility import Credibility
from fedmuster.adapters.flower.replies.sorting import Answer
from fedmuster.core.policy import fill_quota
from fedmuster.core.records import BoolArray, Feedback, FloatArray, IntArray, Selection
from fedmuster.training.combine import sketch

_TIMES = frozenset({"compute_seconds", "upload_seconds"})
"""Signals of time, for which nobody's word is taken: the clock decides."""
_OF_REPORTS = frozenset({"accuracy_before", "accuracy_gain"})
"""What the mod measures; more is not taken from a report."""


class Hearing:
    """From answers to feedback, with a memory of what is usual in this federation."""

    def __init__(self, clock: Clock | None = None, credibility: Credibility | None = None) -> None:
        self._clock = clock or Clock()
        self._credibility = credibility or Credibility()
        self._doubted_times = self._clock.disbelieved
        self._doubted_signals = Counter(self._credibility.refused)

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
        for name, claimed in _claims(answers).items():
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
            used=_used(selection, answers),
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

    def new_doubts(self) -> tuple[IntArray, dict[str, int]]:
        """What was not believed since this was last asked: whose times, and how many signals."""
        times, signals = self._clock.disbelieved, Counter(self._credibility.refused)
        before = np.pad(self._doubted_times, (0, len(times) - len(self._doubted_times)))
        liars, others = np.flatnonzero(times > before), signals - self._doubted_signals
        self._doubted_times, self._doubted_signals = times, signals
        return liars, dict(others)

    def believed_losses(self, clients: IntArray, claimed: FloatArray) -> FloatArray:
        """The same of losses that clients were asked for."""
        return self._credibility.believable("asked loss", clients, claimed)

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


def _claims(answers: Sequence[Answer]) -> dict[str, FloatArray]:
    """What at least half of them say beside their model: a number a row, NaN where one does not."""
    rows = []
    for answer in answers:
        told = {n: value for n, value in signals_of(answer.metrics).items() if n not in _TIMES}
        if answer.report is not None:
            told |= {n: v for n, v in answer.report.signals.items() if n in _OF_REPORTS}
        rows.append(told)
    names = Counter(name for told in rows for name in told)
    usual = sorted(name for name, count in names.items() if 2 * count >= len(rows))
    return {name: np.array([told.get(name, np.nan) for told in rows]) for name in usual}


def _used(selection: Selection, answers: Sequence[Answer]) -> BoolArray | None:
    """Whose answers enter the model, where the policy prefers some."""
    if selection.preferred is None or selection.quota is None:
        return None
    came = sorted(answers, key=lambda answer: answer.elapsed_seconds)
    clients = np.array([answer.client for answer in came], dtype=np.int64)
    arrivals = np.searchsorted(selection.clients, clients)
    return fill_quota(arrivals, selection.preferred, selection.quota)


def _update(answer: Answer, sent: ArrayRecord) -> FloatArray:
    """What the client changed, as one vector of all that is a floating-point number."""
    changes = [
        (array.numpy() - sent[name].numpy()).ravel()
        for name, array in answer.model.items()
        if name in sent and np.issubdtype(array.numpy().dtype, np.floating)
    ]
    return np.concatenate([np.zeros(0), *changes])
