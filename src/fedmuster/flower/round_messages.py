"""The messages of one round: those that train, those that evaluate, and questions for losses."""

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedmuster.core.errors import ConfigError, DataError
from fedmuster.core.records import FloatArray, IntArray, Selection
from fedmuster.flower.answer_feedback import AnswerFeedback
from fedmuster.flower.cohort_choice import Chooser
from fedmuster.flower.muster_settings import Settings, nodes_to_evaluate
from fedmuster.flower.reply_sorting import (
    Forms,
    Promise,
    ReplyRule,
    RoundReplies,
    TrainCheck,
    alike,
    checked_metrics,
    refused,
    sort_replies,
)
from fedmuster.flower.strategy_loop import say, setting_of, warn
from fedmuster.flower.wire import Ask, PrivacyGrant, loss_of
from fedmuster.privacy.budget import Grant


@dataclass(kw_only=True, slots=True)
class RoundMessages:
    """The messages of one round and the arrival times of their replies.

    Args:
        messages: one message for each client of the cohort.
        clients: the client of each message.
        check: what a usable reply must be; None accepts every reply without an error.
        counts: how many usable replies close the round (k of n); None waits for all.
        preferred: the clients whose replies count for that; None for all clients.
        client_of: the asked client, by the id of the sent message.
        arrived: seconds from sending to reply on the server's monotonic clock, by message id.
        sent_at: when each message was sent, by the same clock.
        lasted_seconds: how long the round was open.
    """

    messages: Sequence[Message]
    clients: Sequence[int]
    check: TrainCheck | None = None
    counts: int | None = None
    preferred: Collection[int] | None = None
    client_of: dict[str, int] = field(default_factory=dict)
    arrived: dict[str, float] = field(default_factory=dict)
    sent_at: dict[str, float] = field(default_factory=dict)
    lasted_seconds: float = 0.0
    _filling: int = 0

    @property
    def full(self) -> bool:
        """Whether enough usable replies have come."""
        return self.counts is not None and self._filling >= self.counts

    @property
    def silent(self) -> Sequence[Message]:
        """Messages that were sent and not answered."""
        waiting = self.client_of.keys() - self.arrived.keys()
        return [m for m in self.messages if m.metadata.message_id in waiting]

    def sent(self, message_ids: Collection[str], now: float) -> None:
        """Note that these messages are on their way; a user's own loop may send in several parts.

        A message to a node that has just gone has an id, but is not sent.
        """
        ids = (message.metadata.message_id for message in self.messages)
        pairs = zip(ids, self.clients, strict=True)
        self.client_of |= {id_: client for id_, client in pairs if id_ in message_ids}
        self.sent_at |= dict.fromkeys(message_ids, now)

    def waited(self, now: float) -> None:
        """Note how long the round is open by now."""
        self.lasted_seconds = now - min(self.sent_at.values(), default=now)

    def came(self, reply: Message, now: float) -> None:
        """Note the arrival of a reply to one of these messages."""
        asked = reply.metadata.reply_to_message_id
        if asked not in self.client_of or asked in self.arrived:
            return
        self.arrived[asked] = now - self.sent_at[asked]
        self.waited(now)
        client = self.client_of[asked]
        if self.counts is not None and (self.preferred is None or client in self.preferred):
            usable = not reply.has_error()
            self._filling += usable and (self.check is None or self.check.usable(client, reply))

    def sort(self, replies: Iterable[Message]) -> RoundReplies:
        """Tell answers, failures, refused replies and strangers apart."""
        assert self.check is not None
        elapsed = {asked: self.arrived.get(asked, self.lasted_seconds) for asked in self.client_of}
        return sort_replies(replies, self.client_of, elapsed, self.check)

    def tell(self, number: int, found: RoundReplies, identities: Sequence[str]) -> None:
        """Log which clients answered, failed or were refused."""
        say(
            f"round {number}: {len(found.answers)} answers, {len(found.failures)} failures, "
            f"{len(found.refused)} refused, {len(self.silent)} without an answer after "
            f"{self.lasted_seconds:.1f} s"
        )
        for message in self.silent:
            client = self.client_of[message.metadata.message_id]
            say(f"{identities[client]} has not answered, and is not asked again until it does")
        for message, client in zip(self.messages, self.clients, strict=True):
            if message.metadata.message_id not in self.client_of:
                say(f"{identities[client]}: nothing could be sent to it; its node has just gone")
        for client, reply in found.failures:
            say(f"{identities[client]} failed: {reply.error.reason}")
        for client, _, reason in found.refused:
            warn(f"{identities[client]}: its reply is refused: {reason}")
        for reason, count in found.strangers.items():
            warn(f"{count} replies are refused: {reason}")


def prepare(
    messages: Sequence[Message],
    selection: Selection,
    nodes: Sequence[int],
    grant: Grant | None,
    receipts: Mapping[int, str],
    *,
    settings: Settings,
    strategy: Strategy,
    run: str,
    forms: Forms,
) -> RoundMessages:
    """Add to a strategy's messages what clients must know, and say what replies must be.

    ``messages`` has one message for each of the cohort's ``nodes``, or none at all. ``receipts``
    has the ledger's receipt for each client that has paid, ``run`` is the run's name in the ledger,
    and ``forms`` are those of the arrays that the messages bring.
    """
    asked = _asked(messages, dict(zip(nodes, selection.clients.tolist(), strict=True)), strategy)
    amounts = {}
    if grant is not None:
        amounts = dict(zip(grant.clients.tolist(), grant.amounts.tolist(), strict=True))
    gain, privacy = settings.policy.wants_gain, settings.privacy
    for client, message in zip(asked, messages, strict=True):
        if not amounts and not gain:
            break  # most messages need nothing more
        promised = None
        if privacy is not None and amounts:
            promised = PrivacyGrant.on(privacy.mechanism, amounts[client], receipts.get(client, ""))
        content = RecordDict(dict(message.content))  # strategies give all messages the same one
        Ask(run=run, round=selection.round, measure_gain=gain, grant=promised).into(content)
        message.content = content
    preferred, counts = None, selection.quota
    if counts is not None and selection.preferred is not None:
        preferred = set(selection.clients[selection.preferred].tolist())
    if counts is None and settings.over_selection > 1:
        counts = settings.cohort_size
    promise = None
    if grant is not None:
        promise = Promise(run=run, round=selection.round, amounts=amounts)
    return RoundMessages(
        messages=messages,
        clients=asked,
        check=TrainCheck(forms, rule=ReplyRule.of(strategy, "train"), promise=promise),
        counts=counts,
        preferred=preferred,
    )


def _asked(messages: Sequence[Message], client_at: dict[int, int], strategy: Strategy) -> list[int]:
    nodes = [message.metadata.dst_node_id for message in messages]
    if nodes and sorted(nodes) != sorted(client_at):
        raise ConfigError(
            f"{type(strategy).__name__}.configure_train does not send one message to each node "
            "that it was shown, which are those that the policy chose: send to all of "
            "grid.get_node_ids(), once"
        )
    return [client_at[node] for node in nodes]


EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]

_LOOK_SECONDS = 0.5


def free_nodes(
    grid: Grid, chooser: Chooser, strategy: Strategy, *, round_: int, wait_seconds: float
) -> list[int] | None:
    """The nodes among which a strategy chooses to evaluate; None after waiting in vain.

    Nodes that still work on an earlier message are left out: they would queue behind themselves.
    """
    until = time.monotonic() + wait_seconds
    while True:
        busy = chooser.busy_nodes(grid)
        online = [node for node in grid.get_node_ids() if node not in busy]
        wanted = nodes_to_evaluate(strategy, len(online))
        if len(online) >= wanted:
            return online
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
