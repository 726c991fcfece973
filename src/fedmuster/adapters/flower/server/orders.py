"""What the messages of a round bring to clients, and what their replies must be."""

from collections.abc import Sequence

import numpy as np
from flwr.app import Message, RecordDict
from flwr.serverapp.strategy import Strategy

from fedmuster.adapters.flower.choosing.cohorts import Choice
from fedmuster.adapters.flower.grids.views import Posting
from fedmuster.adapters.flower.replies.array_forms import Forms
from fedmuster.adapters.flower.replies.sorting import Promise, ReplyRule, TrainCheck
from fedmuster.adapters.flower.server.settings import Settings
from fedmuster.adapters.flower.wire import Ask, PrivacyGrant
from fedmuster.core.errors import ConfigError


class Orders:
    """Makes of a strategy's messages the posting of a round.

    Args:
        settings: of the federation.
        strategy: the user's, which made the messages.
        run: its name in the ledger.
    """

    def __init__(self, settings: Settings, strategy: Strategy, *, run: str) -> None:
        self._settings = settings
        self._strategy = strategy
        self._run = run

    def post(
        self, choice: Choice, messages: Sequence[Message], forms: Forms
    ) -> tuple[Posting, TrainCheck]:
        """The messages with what clients must know, and the check of their replies.

        Args:
            choice: the cohort.
            messages: one for each of its nodes, or none at all.
            forms: of the arrays that they bring.
        """
        selection = choice.selection
        asked = self._asked(choice, messages)
        for client, message in zip(asked, messages, strict=True):
            self._attach(choice, client, message)
        preferred = None
        if selection.quota is not None and selection.preferred is not None:
            preferred = set(selection.clients[selection.preferred].tolist())
        counts = selection.quota
        if counts is None and self._settings.over_selection > 1:
            counts = self._settings.cohort_size
        rule = ReplyRule.of(self._strategy, "train")
        check = TrainCheck(forms, rule=rule, promise=self._promise(choice))
        posting = Posting(
            messages=messages,
            clients=asked,
            counts=counts,
            preferred=preferred,
            usable=check.usable,
        )
        return posting, check

    def _asked(self, choice: Choice, messages: Sequence[Message]) -> list[int]:
        """The client to which each message goes."""
        client_at = dict(zip(choice.nodes, choice.selection.clients.tolist(), strict=True))
        nodes = [message.metadata.dst_node_id for message in messages]
        if sorted(nodes) != sorted(client_at) and nodes:
            raise ConfigError(
                f"{type(self._strategy).__name__}.configure_train does not send one message to "
                "each node that it was shown, which are those that the policy chose: send to all "
                "of grid.get_node_ids(), once"
            )
        return [client_at[node] for node in nodes]

    def _attach(self, choice: Choice, client: int, message: Message) -> None:
        """Add what the client must know to the message; most need to know nothing."""
        privacy = self._settings.privacy
        gain = self._settings.policy.wants_gain
        if choice.grant is None and not gain:
            return
        grant = None
        if privacy is not None and choice.grant is not None:
            row = int(np.searchsorted(choice.grant.clients, client))
            grant = PrivacyGrant.on(privacy.mechanism, float(choice.grant.amounts[row]))
        content = RecordDict(dict(message.content))  # strategies give all messages the same one
        ask = Ask(run=self._run, round=choice.selection.round, measure_gain=gain, grant=grant)
        ask.into(content)
        message.content = content

    def _promise(self, choice: Choice) -> Promise | None:
        if choice.grant is None:
            return None
        clients, amounts = choice.grant.clients.tolist(), choice.grant.amounts.tolist()
        return Promise(
            run=self._run,
            round=choice.selection.round,
            amounts=dict(zip(clients, amounts, strict=True)),
        )
