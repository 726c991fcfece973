"""Edge servers of a federation: groups of nodes, for policies that assign clients to edges."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedmuster.adapters.flower.choosing.roster import Roster
from fedmuster.adapters.flower.log import warn
from fedmuster.core.config import require
from fedmuster.core.edges import EdgeView
from fedmuster.core.records import BoolArray, FloatArray


@dataclass(frozen=True, kw_only=True, slots=True)
class EdgeGroups:
    """Which edges there are, who can train at which, and what each may spend in a round.

    A node says at which edges it can train, as SuperNodes are started with
    ``--node-config 'edge="north"'`` (or ``"north,south"``); or ``members`` says it, whom nodes
    cannot contradict. A node at no edge is never chosen.

    Args:
        names: of the edges, in the order in which policies number them.
        budget: what each edge may spend in a round, or what all may if they may the same. With a
            ``cost`` of 1 it is the number of clients.
        cost: of a client in a round.
        members: names of the edges by identity of the node, where the server knows better.

    Example:
        >>> EdgeGroups(names=("north", "south"), budget=3).budgets
        array([3., 3.])
    """

    names: tuple[str, ...]
    budget: float | tuple[float, ...]
    cost: float = 1.0
    members: Mapping[str, tuple[str, ...]] | None = None
    _told: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = self.names
        are_names = isinstance(names, tuple) and all(isinstance(n, str) and n for n in names)
        distinct = are_names and 0 < len(names) == len(set(names))
        require(distinct, self, "names", 'different names, as in ("north", "south")')
        expected = f"a number >= 0, or a tuple of {len(names)}: one for each edge"
        budget = self.budget if isinstance(self.budget, tuple) else (self.budget,) * len(names)
        fits = len(budget) == len(names) and all(_is_number(b) and b >= 0 for b in budget)
        require(fits, self, "budget", expected)
        finite = _is_number(self.cost) and 0 <= self.cost < math.inf
        require(finite, self, "cost", "a finite number >= 0")
        members = {} if self.members is None else self.members
        fits = isinstance(members, Mapping) and all(
            isinstance(edges, tuple) and set(edges) <= set(names) for edges in members.values()
        )
        known = ", ".join(map(repr, names))
        require(fits, self, "members", f"a tuple of names for each identity, names being: {known}")

    @property
    def budgets(self) -> FloatArray:
        """[M]."""
        return np.broadcast_to(np.asarray(self.budget, dtype=np.float64), len(self.names)).copy()

    def view(self, roster: Roster) -> EdgeView:
        """The edges as a policy sees them, with whoever is on the roster."""
        coverage = np.zeros((len(roster.identities), len(self.names)), dtype=np.bool_)
        for row, (identity, facts) in zip(
            coverage, zip(roster.identities, roster.facts, strict=True), strict=True
        ):
            self._cover(row, identity, facts.edges)
        return EdgeView(
            coverage=coverage, cost=np.full(len(coverage), float(self.cost)), budget=self.budgets
        )

    def _cover(self, row: BoolArray, identity: str, claimed: tuple[str, ...]) -> None:
        edges = claimed if self.members is None else self.members.get(identity, claimed)
        for edge in edges:
            if edge in self.names:
                row[self.names.index(edge)] = True
        unknown = [edge for edge in edges if edge not in self.names]
        if (unknown or not edges) and identity not in self._told:
            self._told.add(identity)
            names = ", ".join(map(repr, unknown))
            fault = f"names {names}, which is no edge here" if unknown else "names no edge"
            warn(
                f"{identity} {fault}{'' if row.any() else ', and is never chosen'}: start its "
                f"SuperNode with --node-config 'edge=\"{self.names[0]}\"' (there are: "
                f"{', '.join(self.names)}), or write EdgeGroups(names=…, "
                f"members={{{identity!r}: ({self.names[0]!r},)}})"
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
