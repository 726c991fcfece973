"""The mod that tells the server who a client is, and how long it really worked."""

import time
from collections.abc import Callable
from copy import deepcopy
from itertools import count
from logging import WARNING
from operator import index
from typing import Final

from flwr.app import Context, Error, Message, MessageType, RecordDict
from flwr.app.message import make_message
from flwr.app.message.recorddict import RecordType
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode
from flwr.supercore import log

from fedmuster.core.config import require
from fedmuster.flower.wire import Ask, Facts, Question, Release, Report, accuracy_of, strip

_TRAIN_CALLS: Final = count()  # of this process, which may outlive the app that it has loaded


class ReportingMod:
    """A Flower mod for every client of a federation that fedmuster selects from.

    It answers who the client is, and adds to each train reply how long the client was busy, on its
    own monotonic clock, and whether its process was cold. The app notices nothing of it::

        app = ClientApp(mods=[ReportingMod()])

    A client is known by what ``node_config`` says under ``client_id_key``, else by its
    ``partition-id``, as in Flower's simulations and quickstarts. Where nodes are authenticated,
    the server goes by their keys instead.

    Policies that learn from accuracy gains (FedSUV, TiFL) need the app's own evaluation, which
    Flower gives no mod. Name it, and it runs before and after training when it is asked for::

        reporting = ReportingMod()
        app = ClientApp(mods=[reporting])

        @app.evaluate()
        @reporting.evaluates
        def evaluate(message, context): ...

    Together with a ``PrivateMod`` it stands second, ``mods=[PrivateMod(), ReportingMod()]``.

    Args:
        client_id_key: where ``node_config`` holds the client's name.
        edge_key: where it holds the edge servers, or groups of nodes, that the client belongs to;
            several are separated by commas.
        num_samples: how many samples a client has, for policies that want to know before it has
            trained; everybody who runs the server will know it.
    """

    def __init__(
        self,
        *,
        client_id_key: str = "client-id",
        edge_key: str = "edge",
        num_samples: Callable[[Context], int] | None = None,
    ) -> None:
        self.client_id_key = client_id_key
        self.edge_key = edge_key
        for field in ("client_id_key", "edge_key"):
            name = getattr(self, field)
            require(isinstance(name, str) and name != "", self, field, "a key of node_config")
        self._num_samples = num_samples
        self._evaluate: ClientAppCallable | None = None

    def evaluates(self, evaluate: ClientAppCallable) -> ClientAppCallable:
        """Mark the app's evaluation; it is returned as it is."""
        self._evaluate = evaluate
        return evaluate

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Answer for the app, or let it answer and add the report."""
        if Question.of(message.content) is not None:
            return self._answer(message, context)
        if message.metadata.message_type.partition(".")[0] != MessageType.TRAIN:
            return call_next(message, context)
        trained_before = next(_TRAIN_CALLS)
        start = time.monotonic()
        ask = Ask.of(message.content)
        private = ask is not None and ask.grant is not None
        if not private:  # else it is the PrivateMod's, and gains are not to be told
            strip(message.content)
        evaluate = self._evaluation() if ask is not None and ask.measure_gain else None
        watched = None if private or evaluate is None else _Watched(evaluate, message, context)
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        if private and Release.of(reply.content) is None:
            return _refusal(message)
        signals = {} if watched is None else watched.gain(reply)
        seconds = time.monotonic() - start
        report = Report(compute_seconds=seconds, trained_before=trained_before, signals=signals)
        report.into(reply.content)
        return reply

    def _answer(self, message: Message, context: Context) -> Message:
        config = context.node_config
        client_id = config.get(self.client_id_key)
        if client_id is None and "partition-id" in config:
            client_id = f"partition-{config['partition-id']}"
        named = str(config.get(self.edge_key, "")).split(",")
        facts = Facts(
            client_id=None if client_id is None else str(client_id),
            edges=tuple(edge for name in named if (edge := name.strip())),
            num_samples=None if self._num_samples is None else index(self._num_samples(context)),
        )
        content = RecordDict()
        facts.into(content)
        Facts.of(content)  # what the server would refuse is an error here, where it can be mended
        return Message(content, reply_to=message)

    def _evaluation(self) -> ClientAppCallable | None:
        if self._evaluate is None:
            log(
                WARNING,
                "fedmuster: the policy wants to know how much accuracy training gains; mark the "
                "app's evaluation with @reporting.evaluates, below @app.evaluate()",
            )
        return self._evaluate


class _Watched:
    """A training whose accuracy is measured with the app's evaluation, before and after."""

    def __init__(self, evaluate: ClientAppCallable, message: Message, context: Context) -> None:
        self._evaluate = evaluate
        self._context = context
        self._metadata = deepcopy(message.metadata)
        self._metadata.message_type = MessageType.EVALUATE
        self._sent = dict(message.content)
        self._array_keys = list(message.content.array_records)
        self._before = self._accuracy(self._sent)

    def gain(self, reply: Message) -> dict[str, float]:
        """The two signals that policies learn from; none where they cannot be had."""
        trained = list(reply.content.array_records.values())
        if self._before is None or len(self._array_keys) != 1 or len(trained) != 1:
            return {}
        after = self._accuracy({**self._sent, self._array_keys[0]: trained[0]})
        if after is None:
            return {}
        return {"accuracy_before": self._before, "accuracy_gain": after - self._before}

    def _accuracy(self, records: dict[str, RecordType]) -> float | None:
        message = make_message(deepcopy(self._metadata), RecordDict(records))
        try:
            measured = self._evaluate(message, self._context).content.metric_records.values()
        except Exception as error:  # whatever an app may raise: its training is worth keeping
            log(WARNING, "fedmuster: the accuracy gain was not measured", exc_info=error)
            return None
        found = (accuracy_of(metrics) for metrics in measured)
        return next((accuracy for accuracy in found if accuracy is not None), None)


def _refusal(message: Message) -> Message:
    reason = (
        "fedmuster: the run is private and the ClientApp has no PrivateMod, so nothing was sent: "
        "write ClientApp(mods=[PrivateMod(), ReportingMod()])"
    )
    return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, reason), reply_to=message)
