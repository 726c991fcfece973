"""Chooses the cohort of a round among the nodes that are there, and debits what it spends."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid

from fedmuster.core.edges import EdgeView
from fedmuster.core.errors import ConfigError, StateError
from fedmuster.core.records import AskLoss, BoolArray, FloatArray, IntArray, Problem, Selection
from fedmuster.core.selector import Selector
from fedmuster.flower.muster_settings import Settings
from fedmuster.flower.node_messages import InFlight, Questions
from fedmuster.flower.node_roster import Roster
from fedmuster.flower.strategy_loop import say, some, warn
from fedmuster.privacy.budget import Budget, Grant, require_ledger

_LOOK_SECONDS = 0.5
_LOST_AFTER_SECONDS = 3600.0
_STARTING = 3
"""The wait before the first round, when processes are starting, as a multiple of later waits."""
_MOST_DATA = 10
"""A client that claims more than this multiple of the usual data counts as having the usual amount:
otherwise a client that claims all the data would be chosen in every round."""
_ALL_ROUNDS = 2
"""After this many rounds in which the cohort was every client there, a warning says so."""


class EndedError(Exception):
    """The run is over before its last round; nothing is wrong."""


class ChosenCohort(NamedTuple):
    """The cohort of a round, already debited.

    ``nodes`` has the node of each of ``selection.clients``, in the same order; ``receipts`` has the
    ledger's receipt for each client.
    """

    selection: Selection
    nodes: list[int]
    available: BoolArray
    scores: dict[str, FloatArray]
    network: EdgeView | None
    grant: Grant | None
    receipts: Mapping[int, str]


class NodeContacts(NamedTuple):
    """What this process has asked the nodes of a grid, kept from one start to the next."""

    questions: Questions
    in_flight: InFlight

    @classmethod
    def fresh(cls, *, deadline_seconds: float | None) -> "NodeContacts":
        """Contacts before the first start."""
        lost_after = max(_LOST_AFTER_SECONDS, 3 * (deadline_seconds or 0.0))
        return cls(Questions(), InFlight(forget_seconds=lost_after))


class Present(NamedTuple):
    """The node of each client that is there, and bool[K], which clients can be asked."""

    node_of: Mapping[int, int]
    available: BoolArray


class Chooser:
    """The selector of a federation, with the roster of nodes and the privacy budget.

    ``least`` is the fewest nodes with which the strategy can train, ``run`` the run's name in the
    ``ledger``.
    """

    def __init__(
        self, settings: Settings, *, least: int, run: str, ledger: Path, contacts: NodeContacts
    ) -> None:
        self._settings = settings
        self._least = least
        self._run = run
        self._ledger = ledger
        self._questions, self.in_flight = contacts
        self._first_meeting = not contacts.questions.heard
        self._node_of: Mapping[int, int] = {}
        self._first_patience = _STARTING * settings.wait_seconds
        self._rounds_of_all: int | None = 0
        self.roster = Roster(authenticated=settings.authenticated, questions=contacts.questions)
        self.selector: Selector[Any] | None = None
        """None until the first node is known."""
        self.budget: Budget | None = None
        self._heard_sizes: dict[int, int] = {}

    def load(self, roster: bytes, selector: bytes, budget: bytes | None, *, source: str) -> None:
        """Continue from saved state."""
        self.roster = Roster.from_bytes(
            roster, authenticated=self._settings.authenticated, questions=self._questions
        )
        self.selector = Selector.from_bytes(selector, self._settings.policy, source=source)
        # The app may have been changed since: its settings count from now on.
        self.selector.liveness.rest_after = self._settings.rest_after
        self.selector.liveness.newcomer_quota = self._settings.newcomer_quota
        if (budget is None) != (self._settings.privacy is None):
            raise StateError(
                f"{source} was written {'without' if budget is None else 'with'} privacy"
            )
        if budget is not None:
            require_ledger(self._ledger)
            self._open_budget()
            assert self.budget is not None
            self.budget.load(budget, after_round=self.selector.round - 1)

    def close(self) -> None:
        """Let go of the ledger."""
        if self.budget is not None:
            self.budget.close()

    @property
    def num_clients(self) -> int:
        """K, so far."""
        return len(self.roster.identities)

    def choose(self, grid: Grid, present: Present, ask_loss: AskLoss) -> ChosenCohort:
        """Let the policy choose among the nodes of :meth:`gather`, and debit the cohort."""
        node_of, available = present
        selector = self.selector
        if selector is None:
            online = len(list(grid.get_node_ids()))
            raise ConfigError(
                f"no node was there for {self._first_patience:g} s: start SuperNodes and "
                "run again, or wait longer with wait_seconds"
                if online == 0
                else f"{online} nodes are online, but none has said who it is for "
                f"{self._first_patience:g} s: see their logs, or wait longer"
            )
        settings = self._settings
        if self.budget is not None:
            size, edges = settings.cohort_size, settings.num_edges
            if (ending := self.budget.ending(cohort_size=size, num_edges=edges)) is not None:
                raise EndedError(ending)
        free = int(np.count_nonzero(available))
        if free < self._least:
            warn(
                f"round {selector.round}: {free} nodes can be asked, the strategy wants "
                f"{self._least}: nobody trains in this round"
            )
        network = None if self._settings.edges is None else self._settings.edges.view(self.roster)
        features = self._settings.features
        selection = selector.select(
            available=available & (free >= self._least),
            cohort_size=self._settings.num_to_ask,
            features=None if features is None else features(self.roster.identities),
            edges=network,
            privacy_left=None if self.budget is None else self.budget.left,
            ask_loss=ask_loss if self.budget is None else self._refuse_to_ask,
        )
        scores = {**self._marks(available, network), **selector.scores()}
        # From here on clients are asked: every asked client must have paid.
        grant, receipts = None, {}
        if self.budget is not None:
            grant = self.budget.debit(selection.round, selection.clients)
            receipts = self.budget.receipts(grant, self._log_sizes)
        chosen = selection.clients.tolist()
        names = some([self._name(client) for client in chosen])
        policy = self._settings.policy.name
        say(f"round {selection.round}: {policy} chose {len(chosen)} of {free} nodes: {names}")
        self._warn_of_everybody(len(chosen))
        nodes = [node_of[client] for client in chosen]
        return ChosenCohort(selection, nodes, available, scores, network, grant, receipts)

    def note_receipts(self, log_sizes: Mapping[int, int]) -> None:
        """Note which receipts clients say that they hold, for the proofs of the next ones."""
        self._heard_sizes |= log_sizes

    def _log_sizes(self, client: int) -> set[int]:
        """The sizes of the ledger's log in receipts that a client may hold."""
        return {self.roster.facts[client].log_size, self._heard_sizes.get(client, 0)} - {0}

    def _warn_of_everybody(self, chosen: int) -> None:
        """Warn once when there is nothing to choose, round after round."""
        if self._rounds_of_all is None:
            return
        wants_all = self._settings.policy.cohort_rule == "everyone"
        all_chosen = 0 < chosen == self.num_clients and not wants_all
        self._rounds_of_all = self._rounds_of_all + 1 if all_chosen else 0
        if self._rounds_of_all == _ALL_ROUNDS:
            self._rounds_of_all = None
            warn(
                f"the cohort was all {chosen} clients in each of the last {_ALL_ROUNDS} rounds, so "
                f"{self._settings.policy.name} chooses nothing: start more nodes (flwr run … "
                '--federation-config "num-supernodes=20"), or write a smaller cohort_size'
            )

    def _marks(self, available: BoolArray, network: EdgeView | None) -> dict[str, FloatArray]:
        """Marks for explanations, 0 or 1: available clients, and why others were not."""
        busy = np.zeros(self.num_clients, dtype=np.bool_)
        busy[[*self.in_flight.busy, *self.roster.silent]] = True
        marks = {"available": available, "busy": busy}
        if self.budget is not None and self.selector is not None:
            marks["paid_before"] = np.zeros_like(busy)
            marks["paid_before"][self.budget.debited(self.selector.round)] = True
            marks["privacy_spent"] = ~self.budget.able
        if network is not None:
            marks["out_of_reach"] = ~network.covered
        return {name: mark.astype(np.float64) for name, mark in marks.items()}

    def note_silent(self, messages: Sequence[Message], *, round_: int) -> None:
        """Count the clients of unanswered messages as busy until they answer."""
        client_at = {node: client for client, node in self._node_of.items()}
        for message in messages:
            metadata = message.metadata
            client = client_at.get(metadata.dst_node_id)
            if client is not None and metadata.message_id:
                self.in_flight.add(
                    metadata.message_id,
                    client=client,
                    node_id=metadata.dst_node_id,
                    round_=round_,
                    what=metadata.message_type,
                )

    def busy_nodes(self, grid: Grid) -> set[int]:
        """Nodes that still work on an earlier message, or have not said who they are."""
        self._collect_late(grid)
        self._questions.collect(grid)
        busy = {self._node_of[each] for each in self.in_flight.busy if each in self._node_of}
        return busy | self._questions.unanswered

    def gather(self, grid: Grid, *, num_classes: int = 0) -> Present:
        """Wait for nodes if necessary, and say which clients are there and can be asked.

        The first call waits for a whole cohort, later calls for as many as the strategy needs. The
        model has ``num_classes`` biases in its output layer, where the policy looks at them.
        """
        settings, wanted, patience = self._settings, self._least, self._settings.wait_seconds
        first, self._first_meeting = self._first_meeting, False
        if first:
            wanted = max(wanted, settings.min_nodes or settings.cohort_size)
            patience = self._first_patience
        until = time.monotonic() + patience
        told = False
        while True:
            self._collect_late(grid)
            left = max(until - time.monotonic(), 0.0)
            meeting = self.roster.meet(grid, wait_seconds=left)
            self._admit(len(meeting.newcomers), num_classes)
            for late in self.in_flight.forget(meeting.nodes):
                say(f"{self._name(late.client)}: its answer of round {late.round} is lost")
            available = self._can_be_asked(meeting.nodes)
            self._node_of = meeting.nodes
            free = np.count_nonzero(available)
            there = len(meeting.nodes) >= wanted and (free >= self._least or self._in_vain())
            if there or time.monotonic() >= until:
                if first:
                    self._tell_paid()
                return Present(meeting.nodes, available)
            if not told:
                told = True
                say(
                    f"waiting for nodes: {len(meeting.nodes)} of {wanted} are there, {free} can be "
                    f"asked; for {patience:g} s at most"
                )
            time.sleep(min(_LOOK_SECONDS, max(until - time.monotonic(), 0.0)))

    def _collect_late(self, grid: Grid) -> None:
        for late, answered in self.in_flight.collect(grid):
            what = "answered too late, which is not used" if answered else "failed, too late"
            say(f"{self._name(late.client)}: {what} ({late.what} of round {late.round})")

    def _admit(self, newcomers: int, num_classes: int) -> None:
        if newcomers == 0:
            return
        if self.selector is None:
            problem = Problem(
                num_clients=self.num_clients,
                cohort_size=self._settings.cohort_size,
                num_samples=self._samples(0),
                num_features=self._num_features(),
                num_edges=self._settings.num_edges,
                num_classes=num_classes,
            )
            self.selector = Selector(
                self._settings.policy,
                problem,
                seed=self._settings.seed,
                rest_after=self._settings.rest_after,
                newcomer_quota=self._settings.newcomer_quota,
            )
            self._open_budget()
            return
        first = self.num_clients - newcomers
        samples = None if self.selector.problem.num_samples is None else self._samples(first)
        self.selector.join(newcomers, num_samples=samples)
        if self.budget is not None:
            self.budget.join(self.roster.identities[first:])

    def _open_budget(self) -> None:
        if self._settings.privacy is not None:
            self.budget = Budget(
                self._settings.privacy,
                self._ledger,
                run=self._run,
                identities=self.roster.identities,
                seed=self._settings.seed,
            )

    def _samples(self, first: int) -> IntArray | None:
        """The data sizes of clients from ``first`` on; None if one of the first does not tell.

        A later client that does not tell, or claims too much, counts with the usual size.
        """
        told = [facts.num_samples for facts in self.roster.facts]
        if first == 0 and None in told:
            return None
        usual = int(np.median([n for n in told if n is not None] or [1]))
        for client, n in enumerate(told[first:], start=first):
            if n is not None and n > _MOST_DATA * usual:
                told[client] = usual
                warn(
                    f"{self._name(client)} says that it has {n:,} samples, where {usual:,} are "
                    "usual: for choosing, it is taken to have as many as that"
                )
        return np.array([usual if n is None else n for n in told[first:]], dtype=np.int64)

    def _num_features(self) -> int:
        if self._settings.features is None:
            return 0
        return int(np.shape(self._settings.features(self.roster.identities))[-1])

    def _can_be_asked(self, node_of: Mapping[int, int]) -> BoolArray:
        available = np.zeros(self.num_clients, dtype=np.bool_)
        available[list(node_of)] = True
        available[list(self.in_flight.busy)] = False
        return available & self._may_send()

    def _in_vain(self) -> bool:
        """Whether privacy leaves too few of the known clients, so that waiting is useless."""
        return bool(np.count_nonzero(self._may_send()) < self._least)

    def _may_send(self) -> BoolArray:
        """bool[K], the clients that privacy lets take part in the open round."""
        if self.budget is None or self.selector is None:
            return np.ones(self.num_clients, dtype=np.bool_)
        may = self.budget.able.copy()
        # Asked before a crash: what they sent then may be out, so they must not send again.
        may[self.budget.debited(self.selector.round)] = False
        return may

    def _tell_paid(self) -> None:
        """Log how many clients are left out because a ServerApp died in this round."""
        if self.budget is None or self.selector is None:
            return
        paid = self.budget.debited(self.selector.round)
        if len(paid) > 0:
            say(
                f"round {self.selector.round}: {len(paid)} of {self.num_clients} clients paid for "
                "it before the ServerApp died, and may have sent their updates: they are not asked "
                "in it again"
            )

    def _refuse_to_ask(self, clients: IntArray, *, batch_size: int | None = None) -> FloatArray:
        raise ConfigError(
            f"{self._settings.policy.name} asks clients for losses, which reveal something about "
            "their data without being debited: choose another policy, or leave privacy out"
        )

    def name_of_node(self, node_id: int) -> str:
        """The name of the client at a node."""
        client = next((c for c, node in self._node_of.items() if node == node_id), None)
        return f"node {node_id}" if client is None else self._name(client)

    def _name(self, client: int) -> str:
        return self.roster.identities[client]
