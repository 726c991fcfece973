"""Evaluation: as the user configured it, put on record, and without waiting for ever."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedmuster.adapters.flower.grids.views import OnlyThese
from fedmuster.adapters.flower.log import warn
from fedmuster.adapters.flower.metrics import accuracy_of, loss_of
from fedmuster.adapters.flower.record.record import Evaluation, Record
from fedmuster.adapters.flower.replies.sorting import (
    ReplyRule,
    alike,
    checked_metrics,
    refused,
)
from fedmuster.adapters.flower.server.checks import nodes_to_evaluate
from fedmuster.adapters.flower.server.own_methods import Methods
from fedmuster.core.errors import DataError

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]

_LOOK_SECONDS = 0.5


class Evaluations:
    """Stands in for a strategy's evaluation.

    Args:
        strategy: the user's.
        record: of the run.
        done: how many rounds are over.
        number: what the strategy's loop calls a round, counted since the first start.
        name_of: whom a node belongs to.
        busy: the nodes that still work on an earlier message, and would queue behind themselves.
        wait_seconds: for how long to wait for as many nodes as the strategy wants.
    """

    def __init__(
        self,
        strategy: Strategy,
        record: Record,
        *,
        done: Callable[[], int],
        number: Callable[[int], int],
        name_of: Callable[[int], str],
        busy: Callable[[Grid], Collection[int]],
        wait_seconds: float,
    ) -> None:
        self._strategy = strategy
        self._own = Methods.of(strategy)
        self._record = record
        self._done = done
        self._number = number
        self._name_of = name_of
        self._busy = busy
        self._wait_seconds = wait_seconds

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the strategy choose among all nodes that are there and free."""
        number = self._number(server_round)
        until = time.monotonic() + self._wait_seconds
        while True:
            busy = self._busy(grid)
            online = [node for node in grid.get_node_ids() if node not in busy]
            wanted = nodes_to_evaluate(self._strategy, len(online))
            if len(online) >= wanted:
                view = OnlyThese(grid, online)
                return list(self._own.configure_evaluate(number, arrays, config, view))
            if time.monotonic() >= until:
                warn(
                    f"round {number}: {len(online)} nodes are there, the strategy wants {wanted} "
                    "to evaluate: nobody evaluates this round"
                )
                return []
            time.sleep(min(_LOOK_SECONDS, self._wait_seconds))

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Let the strategy aggregate all replies but those on which it would give up the run."""
        good, odd = self._sorted(replies)
        for reply, reason in odd:
            name = self._name_of(reply.metadata.src_node_id)
            warn(f"{name}: its evaluation is refused: {reason}")
        failures = [refused(reply, reason) for reply, reason in odd]
        number = self._number(server_round)
        metrics = self._own.aggregate_evaluate(number, [*good, *failures])
        self._note("evaluate_metrics_clientapp", metrics)
        return metrics

    def _sorted(
        self, replies: Iterable[Message]
    ) -> tuple[list[Message], list[tuple[Message, str]]]:
        came = list(replies)
        usable, odd = self._usable(came, finite_loss=True)
        if all(reply.has_error() for reply in usable):  # the model may be such that nobody's is
            usable, odd = self._usable(came, finite_loss=False)
        good, strange = alike(usable)
        return good, odd + strange

    def _usable(
        self, replies: Iterable[Message], *, finite_loss: bool
    ) -> tuple[list[Message], list[tuple[Message, str]]]:
        rule = ReplyRule.of(self._strategy, "evaluate")
        usable, odd = [], []
        for reply in replies:
            try:
                if not reply.has_error():
                    checked_metrics(reply.content, rule, finite_loss=finite_loss)
                usable.append(reply)
            except DataError as error:
                odd.append((reply, str(error)))
        return usable, odd

    def on_server(self, evaluate: EvaluateFn) -> EvaluateFn:
        """The user's evaluation on the server, with the round's number since the first start."""

        def evaluate_fn(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            metrics = evaluate(self._number(server_round), arrays)
            self._note("evaluate_metrics_serverapp", metrics)
            return metrics

        return evaluate_fn

    def catch_up(self, evaluate: EvaluateFn, arrays: ArrayRecord) -> None:
        """Evaluate the last round if a crash came between; else it is on record."""
        noted = self._record.result(arrays).evaluate_metrics_serverapp
        if self._done() not in noted:
            self.on_server(evaluate)(0, arrays)

    def _note(self, by: Evaluation, metrics: MetricRecord | None) -> None:
        if isinstance(metrics, Mapping):  # Flower lets an app return anything
            loss, accuracy = loss_of(metrics), accuracy_of(metrics)
            self._record.evaluated(self._done(), by, metrics, loss=loss, accuracy=accuracy)
