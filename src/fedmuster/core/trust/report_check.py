"""Checks what clients report and send before a policy learns from it, for the Selector."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from fedmuster.core.records import BoolArray, Feedback, FloatArray, IntArray
from fedmuster.core.state import with_prefix
from fedmuster.core.trust.clock import Clock
from fedmuster.core.trust.credibility import Credibility
from fedmuster.core.trust.update_check import UpdateCheck

_MEASURED: Final = frozenset({"staleness", "in_time"})
"""Signals that the server measures itself."""
_TIMES: Final = frozenset({"compute_seconds", "upload_seconds"})
"""Signals that are parts of a reported time."""


class ReportCheck:
    """Replaces what cannot be believed, and finds clients that work against all others.

    - Of the time that a client reports (``Feedback.reported_seconds``) and the time that the server
      saw (``latency_seconds``), the :class:`~fedmuster.core.trust.clock.Clock` makes the latency.
      Without reported times the server's clock alone counts. Reported parts of the time
      ("compute_seconds", "upload_seconds") are scaled with it.
    - Every other signal, and losses that clients are asked for, are replaced by a usual value where
      they are far from it (:class:`~fedmuster.core.trust.credibility.Credibility`), except those
      that the server measures itself ("staleness", "in_time").
    - Where the feedback has sketches of updates, a client whose updates point against those of the
      others (:class:`~fedmuster.core.trust.update_check.UpdateCheck`) is distrusted: its answer is
      not used, and its signals are replaced by usual values that no policy seeks.
    """

    def __init__(self) -> None:
        self._clock = Clock()
        self._credibility = Credibility()
        self._updates = UpdateCheck()

    @property
    def disbelieved(self) -> IntArray:
        """[K], how many reported times of each client were far from what was taken instead."""
        return self._clock.disbelieved

    @property
    def refused(self) -> Counter[str]:
        """How many values of each signal were replaced."""
        return self._credibility.refused

    def feedback(
        self, feedback: Feedback, reported_seconds: FloatArray | None
    ) -> tuple[Feedback, IntArray]:
        """What a policy may learn from a cleaned feedback, and the clients that are distrusted.

        Args:
            feedback: a row for each client, NaN where it did not complete.
            reported_seconds: [n], NaN for no report; None if nobody reports.
        """
        done = feedback.answered
        clients = feedback.clients[done]
        if len(clients) == 0:
            return feedback, clients
        trusted = np.ones(len(clients), dtype=np.bool_)
        if feedback.sketches is not None:
            trusted = self.judge(clients, feedback.sketches[done])
        latency, scale = feedback.latency_seconds.copy(), np.ones(len(clients))
        if reported_seconds is not None:
            reported = reported_seconds[done]
            latency[done] = self._clock.latency_seconds(clients, latency[done], reported)
            told = reported > 0
            scale[told] = latency[done][told] / reported[told]
        signals = dict(feedback.signals)
        for name in signals.keys() - _MEASURED:
            values = signals[name].copy()
            if name in _TIMES:
                values[done] *= scale
            else:
                values[done] = self._credibility.believable(
                    name, clients, values[done], round_=feedback.round, trusted=trusted
                )
            signals[name] = values
        checked = replace(feedback, latency_seconds=latency, signals=signals)
        if not trusted.all():
            used = feedback.entered.copy()
            used[done] &= trusted
            checked = replace(checked, used=used)
        return checked, clients[~trusted]

    def judge(self, clients: IntArray, sketches: FloatArray) -> BoolArray:
        """bool[n], which clients are trusted after these updates of theirs, [n, q]."""
        return self._updates.judge(clients, sketches)

    def asked_loss(self, clients: IntArray, losses: FloatArray, *, round_: int) -> FloatArray:
        """[n], the losses that clients were asked for, with usual values for incredible ones."""
        return self._credibility.believable("asked loss", clients, losses, round_=round_)

    def arrays(self) -> dict[str, Any]:
        """To be saved: the images of both parts."""
        parts = {"clock": self._clock.to_bytes(), "credibility": self._credibility.to_bytes()}
        images = {name: np.frombuffer(image, dtype=np.uint8) for name, image in parts.items()}
        return images | {f"updates.{name}": a for name, a in self._updates.arrays().items()}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any]) -> "ReportCheck":
        """The inverse of :meth:`arrays`."""
        check = cls()
        check._clock = Clock.from_bytes(arrays["clock"].tobytes())
        check._credibility = Credibility.from_bytes(arrays["credibility"].tobytes())
        check._updates = UpdateCheck.of_arrays(with_prefix("updates.", arrays))
        return check
