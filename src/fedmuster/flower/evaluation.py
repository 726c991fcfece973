"""Evaluation by clients and server, and the question for losses that some policies ask."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedmuster.core.errors import DataError
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.flower.answer_feedback import AnswerFeedback
from fedmuster.flower.cohort_choice import Chooser
from fedmuster.flower.flower_log import warn
from fedmuster.flower.grid_views import OnlyThese
from fedmuster.flower.metric_names import loss_of
from fedmuster.flower.muster_settings import nodes_to_evaluate
from fedmuster.flower.reply_sorting import ReplyRule, alike, checked_metrics, refused
from fedmuster.flower.strategy_loop import setting_of

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]

_LOOK_SECONDS = 0.5


def free_nodes(
    grid: Grid, chooser: Chooser, strategy: Strategy, *, round_: int, wait_seconds: float
) -> OnlyThese | None:
    """The nodes among which a strategy chooses to evaluate; None after waiting in vain.

    Nodes that still work on an earlier message are left out: they would queue behind themselves.
    """
    until = time.monotonic() + wait_seconds
    while True:
        busy = chooser.busy_nodes(grid)
        online = [node for node in grid.get_node_ids() if node not in busy]
        wanted = nodes_to_evaluate(strategy, len(online))
        if len(online) >= wanted:
            return OnlyThese(grid, online)
        if time.monotonic() >= until:
            warn(
                f"round {round_}: {len(online)} nodes are there, the strategy wants {wanted} to "
                "evaluate: nobody evaluates this round"
            )
            return None
        time.sleep(min(_LOOK_SECONDS, wait_seconds))


def usable_evaluations(
    replies: Iterable[Message], strategy: Strategy, chooser: Chooser
) -> list[Message]:
    """Replies that a strategy can aggregate, with errors in place of the others."""
    came, rule = list(replies), ReplyRule.of(strategy, "evaluate")
    usable, odd = _split(came, rule, finite_loss=True)
    if all(reply.has_error() for reply in usable):  # the model may make every loss infinite
        usable, odd = _split(came, rule, finite_loss=False)
    good, strange = alike(usable)
    for reply, reason in odd + strange:
        name = chooser.name_of_node(reply.metadata.src_node_id)
        warn(f"{name}: its evaluation is refused: {reason}")
    return [*good, *(refused(reply, reason) for reply, reason in odd + strange)]


def _split(
    replies: Iterable[Message], rule: ReplyRule, *, finite_loss: bool
) -> tuple[list[Message], list[tuple[Message, str]]]:
    usable, odd = [], []
    for reply in replies:
        try:
            if not reply.has_error():
                checked_metrics(reply.content, rule, finite_loss=finite_loss)
            usable.append(reply)
        except DataError as error:
            odd.append((reply, str(error)))
    return usable, odd


class LossQuestion:
    """Asks clients for the loss of the global model, as some policies do before they choose.

    The app expects the records under the names of the ``strategy``; ``feedback`` judges claims that
    cannot be true.
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
        feedback: AnswerFeedback,
    ) -> None:
        self._grid = grid
        self._node_of = node_of
        self._timeout_seconds = timeout_seconds
        self._feedback = feedback
        self._losses: dict[int, float] = {}
        self._content = RecordDict(
            {
                setting_of(strategy, "arrayrecord_key", "arrays"): arrays,
                setting_of(strategy, "configrecord_key", "config"): config,
            }
        )

    def __call__(self, clients: IntArray, *, batch_size: int | None = None) -> FloatArray:
        """The loss of each client; NaN without an answer. Apps do not know ``batch_size``."""
        self._ask([client for client in clients.tolist() if client not in self._losses])
        return np.array([self._losses[client] for client in clients.tolist()])

    def _ask(self, clients: Sequence[int]) -> None:
        """Ask each client once a round, however often the policy wants to know."""
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
        believed = self._feedback.believed_losses(np.array(clients, dtype=np.int64), claimed)
        believed[np.isnan(claimed)] = np.nan  # nothing usual is assumed of a silent client
        self._losses |= zip(clients, believed.tolist(), strict=True)


def _loss(reply: Message) -> float:
    found = (loss_of(metrics) for metrics in reply.content.metric_records.values())
    return next((loss for loss in found if loss is not None), math.nan)
