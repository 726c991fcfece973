"""Which client a node is: clients keep their history while nodes leave, restart and come back.

What a SuperLink says of its nodes (``grid.get_nodes()``), found with flwr 1.41 and real processes:

- It lists nodes that are online. A node that is stopped (SIGTERM) is gone at once; one that is
  killed stays online until it has missed two heartbeats, up to 60 s.
- Every node signs each request with its key: no node can speak for another.
- A plain SuperNode makes a new key at every start: after a restart key and node id are new.
  Flower's simulation gives each node random bytes for a key.
- With ``--enable-supernode-auth`` only keys that the operator has registered may connect, and key
  and node id survive a restart. All fields look the same in both cases, except the ``name`` that
  can be given with a registered key. So the operator says ``authenticated``; it is not guessed.

So a node is, in this order:

1. the client that had its key before;
2. if its key was registered: the key ("key-" and the start of its SHA-256), whatever the node says:
   no node can take the history, or the privacy account, of another;
3. if it registered itself: the client id that it tells ("partition-N" in Flower's simulation),
   unless that looks like a key. An id passes from a node that is gone to another, but of two nodes
   that are online with one id the second has to wait;
4. else its key, or its node id where there is none, and a restart makes it a new client.
"""

import re
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple

from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from fedmuster.core import state as states
from fedmuster.core.errors import StateError
from fedmuster.flower.node_messages import Questions
from fedmuster.flower.strategy_loop import say, some, warn
from fedmuster.flower.wire import Facts

_KEY, _NODE = "key-", "node-"
_LOOK_SECONDS = 0.2
_PATIENT_SECONDS = 5.0
"""After this wait the log says what is waited for."""


class Meeting(NamedTuple):
    """The node of each client that is online, and the indices of clients never met before."""

    nodes: dict[int, int]
    newcomers: tuple[int, ...]


class Roster:
    """The clients of a federation: index, identity, and the node at which each is now.

    Args:
        authenticated: whether the operator has registered all keys with the SuperLink.
        questions: those of this process so far; None for none.
    """

    def __init__(self, *, authenticated: bool = False, questions: Questions | None = None) -> None:
        self._authenticated = authenticated
        self.identities: list[str] = []
        """The identity of each client, by index."""
        self.facts: list[Facts] = []
        """What each client says of itself, by index."""
        self.silent: frozenset[int] = frozenset()
        """Clients whose nodes are online, by their keys, but silent: most likely busy."""
        self._keys: list[str] = []
        self._by_identity: dict[str, int] = {}
        self._by_key: dict[str, int] = {}
        self._node_of: dict[int, int] = {}
        self._questions = questions or Questions()
        self._told: set[int] = set()
        self._image: bytes | None = None

    def meet(self, grid: Grid, *, wait_seconds: float) -> Meeting:
        """Find out which clients are online, and ask nodes that this process does not know yet.

        It waits only while most nodes are unknown, and no longer than ``wait_seconds``: once most
        have answered, twice as long again. A node that is silent by then is not available until a
        later meeting.
        """
        start = time.monotonic()
        asked: set[int] = set()
        patience = wait_seconds
        waiting = told = False
        while True:
            online = {info.node_id: info for info in grid.get_nodes()}
            asked |= self._questions.ask(grid, online)
            self._questions.collect(grid)
            # Not nodes that are silent since an earlier meeting: no round waits for them.
            unknown = sum(self._is_unknown(online[node]) for node in asked if node in online)
            waited = time.monotonic() - start
            if 2 * unknown <= len(online):
                patience = min(3 * waited, patience) if waiting else 0.0
            if unknown == 0 or waited >= patience:
                return self._recognise(online)
            waiting = True
            if waited > _PATIENT_SECONDS and not told:
                told = True
                say(
                    f"{unknown} of {len(online)} nodes have not said yet who they are (they may be "
                    "starting, or busy with what an earlier run has left them): waiting, "
                    f"{patience:.0f} s at most"
                )
            time.sleep(min(0.01 + waited / 4, _LOOK_SECONDS, patience - waited))

    def _is_unknown(self, info: NodeInfo) -> bool:
        """Whether it has not answered, also where its key is known: it would not train either."""
        return info.node_id not in self._questions.heard

    def _recognise(self, online: Mapping[int, NodeInfo]) -> Meeting:
        before = self._node_of
        nodes = {
            client: node
            for client, node in before.items()
            if node in online and _key(online[node]) == self._keys[client]
        }
        placed = set(nodes.values())
        new: dict[str, NodeInfo] = {}
        # Clients whose nodes are online but silent keep their places for a while.
        silent = {_key(info) for info in online.values() if self._is_unknown(info)}
        held = {self._by_key[key] for key in silent & self._by_key.keys()}
        others = [
            info
            for info in online.values()
            if info.node_id not in placed and not self._is_unknown(info)
        ]
        # The holder of a client's key is that client, even if another node said so first.
        for info in sorted(
            others, key=lambda i: (_key(i) not in self._by_key, i.registered_at, i.node_id)
        ):
            identity = self._identity(info)
            if identity is None:
                continue
            client = self._by_identity.get(identity)
            taken = client in nodes or (client in held and _key(info) not in self._by_key)
            if identity in new or taken:
                self._refuse(info, identity)
            elif client is None:
                new[identity] = info
            else:
                nodes[client] = info.node_id
                self._bind(client, info)
        first = len(self.identities)
        for identity in sorted(new, key=_natural):
            nodes[self._admit(identity, new[identity])] = new[identity].node_id
        self._refresh_facts(nodes)
        self._node_of = nodes
        self.silent = frozenset(held - nodes.keys())
        self._tell(before, nodes, first, new)
        return Meeting(dict(nodes), tuple(range(first, len(self.identities))))

    def _identity(self, info: NodeInfo) -> str | None:
        """The identity of a node; None while it is not known."""
        key = _key(info)
        if key in self._by_key:
            return self.identities[self._by_key[key]]
        if info.node_id not in self._questions.heard:
            return None
        facts = self._questions.heard[info.node_id]
        own = f"{_KEY}{key[:16]}" if key else f"{_NODE}{info.node_id}"
        claimed = None if facts is None else facts.client_id
        if claimed is None or (key and self._is_registered(info)):
            return own
        if claimed.startswith((_KEY, _NODE)):
            warn(
                f"node {info.node_id} says it is {claimed!r}, which it is not: it is {own} (client "
                f"ids must not begin with {_KEY!r} or {_NODE!r})"
            )
            return own
        return claimed

    def _is_registered(self, info: NodeInfo) -> bool:
        """Whether the operator has registered the node's key."""
        return self._authenticated or bool(info.name)

    def _admit(self, identity: str, info: NodeInfo) -> int:
        client = len(self.identities)
        self.identities.append(identity)
        self.facts.append(Facts())
        self._keys.append("")
        self._by_identity[identity] = client
        self._image = None
        self._bind(client, info)
        return client

    def _bind(self, client: int, info: NodeInfo) -> None:
        key = _key(info)
        if key and key != self._keys[client]:
            self._keys[client] = key
            self._by_key[key] = client
            self._image = None

    def _refresh_facts(self, nodes: Mapping[int, int]) -> None:
        for client, node in nodes.items():
            facts = self._questions.heard.get(node)
            if facts is not None and facts is not self.facts[client]:
                self.facts[client] = facts
                self._image = None

    def _refuse(self, info: NodeInfo, identity: str) -> None:
        if info.node_id not in self._told:
            self._told.add(info.node_id)
            warn(
                f"node {info.node_id} says it is {identity!r}, who is online already: it has to "
                "wait until that one is gone (a node that was killed is, after a minute); if these "
                "are two clients, give each its own client-id"
            )

    def _tell(
        self,
        before: Mapping[int, int],
        nodes: Mapping[int, int],
        first: int,
        new: Mapping[str, NodeInfo],
    ) -> None:
        """Log which clients joined, came back and left."""
        moved = [client for client, node in nodes.items() if before.get(client) != node]
        for what, clients in (
            ("joined", list(range(first, len(self.identities)))),
            # After a restart of the ServerApp no node has been met before.
            ("came back" if before else "there again", [each for each in moved if each < first]),
            ("left", [client for client in before if client not in nodes]),
        ):
            if clients:
                say(f"{what}: {some([self._name(client) for client in clients])}")
        forgotten = [
            identity
            for identity, info in new.items()
            if identity.startswith(_NODE)
            or (identity.startswith(_KEY) and not self._is_registered(info))
        ]
        if forgotten:
            warn(
                f"would be new clients after a restart of their SuperNodes: {some(forgotten)}. To "
                "keep their history put ReportingMod() first into the ClientApp's mods and start "
                "them with --node-config 'client-id=\"…\"', or register their keys with the "
                "SuperLink and write Muster(authenticated=True)"
            )

    def _name(self, client: int) -> str:
        """The identity, with a registered client's own name in brackets."""
        identity, says = self.identities[client], self.facts[client].client_id
        return identity if says in (None, identity) else f"{identity} ({says})"

    def to_bytes(self) -> bytes:
        """An image without pickle, see :mod:`fedmuster.core.state`."""
        if self._image is None:
            facts = [[f.client_id, list(f.edges), f.num_samples] for f in self.facts]
            meta = {"identities": self.identities, "facts": facts, "keys": self._keys}
            self._image = states.to_bytes({}, meta)
        return self._image

    @classmethod
    def from_bytes(
        cls, image: bytes, *, authenticated: bool = False, questions: Questions | None = None
    ) -> "Roster":
        """The roster whose image :meth:`to_bytes` made; nobody is online yet."""
        source = "the roster's state"
        _, meta = states.from_bytes(image, source=source)
        roster = cls(authenticated=authenticated, questions=questions)
        try:
            roster.identities = meta["identities"]
            roster.facts = [
                Facts(client_id=client_id, edges=tuple(edges), num_samples=num_samples)
                for client_id, edges, num_samples in meta["facts"]
            ]
            roster._keys = meta["keys"]
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"{source} was saved by another version: start anew") from error
        roster._by_identity = {name: client for client, name in enumerate(roster.identities)}
        roster._by_key = {key: client for client, key in enumerate(roster._keys) if key}
        return roster


def _key(info: NodeInfo) -> str:
    return sha256(info.public_key).hexdigest() if info.public_key else ""


def _natural(identity: str) -> list[tuple[int, str]]:
    """Sorts "partition-10" behind "partition-9"."""
    parts = re.split(r"(\d+)", identity)
    return [(len(part) * (number % 2), part) for number, part in enumerate(parts)]
