"""Turns a round's answers into feedback: which losses, times and directions count."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import ArrayRecord

from fedmuster.core.records import BoolArray, Feedback, FloatArray, IntArray, Selection
from fedmuster.core.staleness import fill_quota
from fedmuster.core.trust.clock import Clock
from fedmuster.core.trust.credibility import Credibility
from fedmuster.flower.reply_sorting import Answer
from fedmuster.flower.strategy_loop import say
from fedmuster.flower.wire import signals_of
from fedmuster.training.combine import sketch

_TIMES = frozenset({"compute_seconds", "upload_seconds"})
"""Signals of time: the clock decides, not the client."""
_OF_REPORTS = frozenset({"accuracy_before", "accuracy_gain"})
"""What the mod measures; more is not taken from a report."""


class AnswerFeedback:
    """Turns answers into feedback, and remembers what is usual in this federation."""

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
        output_bias: str | None,
        seed: int,
        shared_workers: bool = False,
    ) -> Feedback:
        """One row for each client of the cohort; a client without an answer did not complete.

        ``answers`` come in the order of clients, ``sent`` is the model that was trained from; the
        policy wants ``sketch_size`` numbers of each update's direction and the changes of the array
        ``output_bias``. For ``shared_workers`` see :meth:`Clock.latency_seconds`.
        """
        clients = np.array([answer.client for answer in answers], dtype=np.int64)
        completed = np.isin(selection.clients, clients)
        latency = np.ones(len(completed))
        if answers:
            latency[completed] = self._latency(answers, clients, shared_workers)
        signals = {}
        for name, claimed in _claims(answers).items():
            values = self._credibility.believable(name, clients, claimed)
            if np.isfinite(values).all():  # else nobody knows yet what is usual
                signals[name] = np.full(len(completed), np.nan)
                signals[name][completed] = values
        sketches = biases = None
        if output_bias is not None:
            biases = np.full((len(completed), *sent[output_bias].shape), np.nan)
            for row, answer in zip(np.flatnonzero(completed), answers, strict=True):
                biases[row] = answer.model[output_bias].numpy() - sent[output_bias].numpy()
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
            output_bias=biases,
            used=_used(selection, answers),
            round_seconds=lasted_seconds,
        )

    def _latency(
        self, answers: Sequence[Answer], clients: IntArray, shared_workers: bool
    ) -> FloatArray:
        reports = [answer.report for answer in answers]
        return self._clock.latency_seconds(
            clients,
            np.array([answer.elapsed_seconds for answer in answers]),
            np.array([np.nan if r is None else r.compute_seconds for r in reports]),
            np.array([r is not None and r.trained_before == 0 for r in reports], dtype=np.bool_),
            shared_workers=shared_workers,
        )

    def tell_doubts(self, identities: Sequence[str]) -> None:
        """Log what was not believed since the last call."""
        times, signals = self._clock.disbelieved, Counter(self._credibility.refused)
        before = np.pad(self._doubted_times, (0, len(times) - len(self._doubted_times)))
        for client in np.flatnonzero(times > before).tolist():
            say(
                f"{identities[client]}: the time that it reports does not fit the server's clock, "
                "which counts (its answer may have waited on the way)"
            )
        for signal, count in (signals - self._doubted_signals).items():
            say(f"{count} claims of {signal!r} are too far from what is usual, and count as low")
        self._doubted_times, self._doubted_signals = times, signals

    def believed_losses(self, clients: IntArray, claimed: FloatArray) -> FloatArray:
        """Losses that clients were asked for, with usual values in place of unbelievable ones."""
        return self._credibility.believable("asked loss", clients, claimed)

    def usual_seconds(self, num_clients: int) -> FloatArray:
        """[K], how long each client usually takes; NaN where it has never answered."""
        known = self._clock.usual_seconds
        return np.pad(known, (0, num_clients - len(known)), constant_values=np.nan)

    def to_parts(self) -> dict[str, bytes]:
        """The state as named images."""
        return {"clock": self._clock.to_bytes(), "credibility": self._credibility.to_bytes()}

    @classmethod
    def from_parts(cls, parts: Mapping[str, bytes]) -> "AnswerFeedback":
        """The object whose images :meth:`to_parts` made."""
        return cls(Clock.from_bytes(parts["clock"]), Credibility.from_bytes(parts["credibility"]))


def output_bias_of(model: ArrayRecord) -> str | None:
    """The name of the output layer's biases: the last array, if it has a number for each output of
    the matrix before it, as in the state of a PyTorch or Keras classifier."""
    floats = [(n, a) for n, a in model.items() if np.issubdtype(np.dtype(a.dtype), np.floating)]
    if len(floats) < 2:
        return None
    (_, weight), (name, bias) = floats[-2:]
    fits = len(weight.shape) == 2 and len(bias.shape) == 1 and bias.shape[0] in weight.shape
    return name if fits else None


def _claims(answers: Sequence[Answer]) -> dict[str, FloatArray]:
    """Numbers that at least half of the answers have: one a row, NaN where an answer has none."""
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
    """Which answers enter the model, where the policy prefers some clients."""
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
