"""Asking clients for the loss of the global model, as some policies do before they choose."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedmuster.adapters.flower.checks import setting_of
from fedmuster.adapters.flower.metrics import loss_of
from fedmuster.core.records import FloatArray, IntArray


class LossQuestion:
    """An evaluation of the global model by a few nodes.

    Args:
        strategy: whose names for records the app expects.
        grid: to ask through.
        node_of: the node of each client that is there.
        arrays: the model.
        server_round: which it is of.
        timeout_seconds: how long to wait for answers.
    """

    def __init__(
        self,
        strategy: Strategy,
        grid: Grid,
        node_of: Mapping[int, int],
        *,
        arrays: ArrayRecord,
        server_round: int,
        timeout_seconds: float,
    ) -> None:
        self._grid = grid
        self._node_of = node_of
        self._timeout_seconds = timeout_seconds
        self._told: dict[int, float] = {}
        config = ConfigRecord({"server-round": server_round})
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
        for client, message in zip(clients, messages, strict=True):
            self._told[client] = losses.get(message.metadata.message_id, math.nan)


def _loss(reply: Message) -> float:
    found = (loss_of(metrics) for metrics in reply.content.metric_records.values())
    return next((loss for loss in found if loss is not None), math.nan)
