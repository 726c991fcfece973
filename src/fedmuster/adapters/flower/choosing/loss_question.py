"""Asking clients for the loss of the global model, as some policies do before they choose."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedmuster.adapters.flower.layers import setting_of
from fedmuster.adapters.flower.metrics import loss_of
from fedmuster.core.records import FloatArray, IntArray


class LossQuestion:
    """An evaluation of the global model by a few nodes.

    Args:
        strategy: whose names for records the app expects.
        grid: to ask through.
        node_of: the node of each client that is there.
        arrays: the model.
        config: of the user, for evaluations.
        timeout_seconds: how long to wait for answers.
        believe: what to make of claims that cannot be true.
    """

    def __init__(
        self,
        strategy: Strategy,
        grid: Grid,
        node_of: Mapping[int, int],
        *,
        arrays: ArrayRecord,
        config: ConfigRecord,
        timeout_seconds: float,
        believe: Callable[[IntArray, FloatArray], FloatArray],
    ) -> None:
        self._grid = grid
        self._node_of = node_of
        self._timeout_seconds = timeout_seconds
        self._believe = believe
        self._told: dict[int, float] = {}
        self._content = RecordDict(
            {
                setting_of(strategy, "arrayrecord_key", "arrays"): arrays,
                setting_of(strategy, "configrecord_key", "config"): config,
            }
        )

    def __call__(self, clients: IntArray, *, batch_size: int | None = None) -> FloatArray:
        """The loss of each of them; NaN where none came. Apps know no ``batch_size``."""
        self._ask([client for client in clients.tolist() if client not in self._told])
        return np.array([self._told[client] for client in clients.tolist()])

    def _ask(self, clients: Sequence[int]) -> None:
        """Each client once a round, however often a policy wants to know."""
        if not clients:
            return
        messages = [
            Message(self._content, self._node_of[client], MessageType.EVALUATE)
            for client in clients
        ]
        replies = self._grid.send_and_receive(messages, timeout=self._timeout_seconds)
        losses = {
            reply.metadata.reply_to_message_id: _loss(reply)
            for reply in replies
            if not reply.has_error()
        }
        claimed = np.array([losses.get(m.metadata.message_id, math.nan) for m in messages])
        believed = self._believe(np.array(clients, dtype=np.int64), claimed)
        silent = np.isnan(claimed)  # of whom nothing usual is assumed: it may be gone
        self._told |= zip(clients, np.where(silent, np.nan, believed).tolist(), strict=True)


def _loss(reply: Message) -> float:
    found = (loss_of(metrics) for metrics in reply.content.metric_records.values())
    return next((loss for loss in found if loss is not None), math.nan)
