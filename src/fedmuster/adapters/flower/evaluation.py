"""Evaluation: as the user configured it, put on record, and without waiting for ever."""

import time
from collections.abc import Callable, Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedmuster.adapters.flower.checks import nodes_to_evaluate
from fedmuster.adapters.flower.grid_views import OnlyThese
from fedmuster.adapters.flower.log import warn
from fedmuster.adapters.flower.metrics import accuracy_of, loss_of
from fedmuster.adapters.flower.own_methods import Methods
from fedmuster.adapters.flower.record import Evaluation, Record
from fedmuster.adapters.flower.replies import alike

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]

_LOOK_SECONDS = 0.5


class Evaluations:
    """Stands in for a strategy's evaluation.

    Args:
        strategy: the user's.
        record: of the run.
        rounds_before: this start; Flower's loop counts anew after each.
        wait_seconds: for how long to wait for as many nodes as the strategy wants.
    """

    def __init__(
        self, strategy: Strategy, record: Record, *, rounds_before: int, wait_seconds: float
    ) -> None:
        self._strategy = strategy
        self._own = Methods.of(strategy)
        self._record = record
        self._rounds_before = rounds_before
        self._wait_seconds = wait_seconds

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the strategy choose among all nodes that are there."""
        number = self._rounds_before + server_round
        until = time.monotonic() + self._wait_seconds
        while True:
            online = list(grid.get_node_ids())
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
        number = self._rounds_before + server_round
        good, odd = alike(list(replies))
        for reply, reason in odd:
            warn(f"an evaluation by node {reply.metadata.src_node_id} is refused: {reason}")
        metrics = self._own.aggregate_evaluate(number, good)
        self._note(number, "evaluate_metrics_clientapp", metrics)
        return metrics

    def on_server(self, evaluate: EvaluateFn) -> EvaluateFn:
        """The user's evaluation on the server, with the round's number since the first start."""

        def evaluate_fn(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            number = self._rounds_before + server_round
            metrics = evaluate(number, arrays)
            self._note(number, "evaluate_metrics_serverapp", metrics)
            return metrics

        return evaluate_fn

    def _note(self, number: int, by: Evaluation, metrics: MetricRecord | None) -> None:
        if metrics is not None:
            loss, accuracy = loss_of(metrics), accuracy_of(metrics)
            self._record.evaluated(number, by, metrics, loss=loss, accuracy=accuracy)
