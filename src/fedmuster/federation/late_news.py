"""Late answers in rounds: which ones are on their way, and what the policy is told of them."""

from collections.abc import Mapping

import numpy as np

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.records import Feedback
from fedmuster.core.state import Array, with_prefix


class LateNews:
    """The late answers that are on their way, at most one of each client; the policy hears of each
    in the round in which it arrives.

    A client whose answer is not on its way has dropped out, or has nothing to send. The server
    gives it up when its round closes, and the policy hears of it one round later; or, where late
    clients hold their slots, both at the deadline.
    """

    def __init__(self) -> None:
        self.clients: IntArray = np.empty(0, dtype=np.int64)
        self._arrives_at_seconds: FloatArray = np.empty(0)
        self._latency_seconds: FloatArray = np.empty(0)
        self._signals: dict[str, FloatArray] = {}

    def expect(
        self,
        clients: IntArray,
        *,
        arrives_at_seconds: FloatArray,
        latency_seconds: FloatArray,
        signals: Mapping[str, FloatArray],
    ) -> None:
        """These clients missed the end of their round, and their answers are on their way."""
        if len(clients) == 0:
            return
        nothing, none_before = np.empty(0), len(self.clients) == 0
        self.clients = np.concatenate([self.clients, clients])
        self._arrives_at_seconds = np.concatenate([self._arrives_at_seconds, arrives_at_seconds])
        self._latency_seconds = np.concatenate([self._latency_seconds, latency_seconds])
        self._signals = {
            name: np.concatenate([nothing if none_before else self._signals[name], values])
            for name, values in signals.items()
            if none_before or name in self._signals
        }

    def hear(self, unanswered: IntArray, lost: IntArray, *, now_seconds: float) -> Feedback:
        """What has become of unanswered invitations since the last round was over.

        Args:
            unanswered: the clients with an unanswered invitation to an earlier round.
            lost: the clients whose late answers will not enter a model.
            now_seconds: the time.
        """
        gone = np.isin(self.clients, lost)
        came = ~gone & (self._arrives_at_seconds <= now_seconds)
        given_up = np.setdiff1d(unanswered, self.clients[~gone])
        clients = np.concatenate([self.clients[came], given_up])

        def column(values: FloatArray, missing: float) -> FloatArray:
            return np.concatenate([values[came], np.full(len(given_up), missing)])

        news = Feedback(
            clients=clients,
            latency_seconds=column(self._latency_seconds, np.inf),
            completed=np.arange(len(clients)) < np.count_nonzero(came),
            signals={name: column(values, np.nan) for name, values in self._signals.items()},
        )
        waits = ~came & ~gone
        self.load({name: values[waits] for name, values in self.arrays().items()})
        return news

    def arrays(self) -> dict[str, Array]:
        """To be saved."""
        columns: dict[str, Array] = {
            "clients": self.clients,
            "arrives_at_seconds": self._arrives_at_seconds,
            "latency_seconds": self._latency_seconds,
        }
        return columns | {f"signal.{name}": values for name, values in self._signals.items()}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from :meth:`arrays`."""
        self.clients = arrays["clients"]
        self._arrives_at_seconds = arrays["arrives_at_seconds"]
        self._latency_seconds = arrays["latency_seconds"]
        self._signals = with_prefix("signal.", arrays)
