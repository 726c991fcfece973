"""What an explanation is made of: one round as the policy saw it, and the rule it chooses by."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.errors import ConfigError
from fedmuster.core.words import number

COMMON_TERMS: Final = {
    "score": "the index that the policy chooses by",
    "times_asked": "rounds in which it was chosen before",
    "confidence_bonus": "how much better it may be: larger, the less often it was tried",
    "cost": "what it costs there",
}
"""What the terms mean that many policies have."""

_AT_EDGE = re.compile(r"(.+)\[(\d+)\]")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Moment:
    """All that is known of the choice in one round.

    Args:
        rule: how the policy chooses.
        meaning: of the terms, in words.
        label: what the policy is called in its experiment.
        round: t.
        cohort: the clients that were chosen, increasing.
        available: bool[K], who could be chosen.
        terms: [K] by name, what the policy thought of each client when it chose, NaN for nothing;
            at edge servers by ``name[edge]``.
        absent: bool[K] by reason ("busy", …), of those who were not available.
        known: bool[K], of whom the terms are known at all.
        sure: whether it is known who was available.
        names: of the clients, where they have names.
        edges: int64[m], where each of the cohort trains; None without edge servers.
        budget: [M], what each edge could spend; None without.
        notes: what else to say of where this is known from.
    """

    rule: "Rule"
    meaning: Mapping[str, str]
    label: str
    round: int
    cohort: IntArray
    available: BoolArray
    terms: Mapping[str, FloatArray]
    absent: Mapping[str, BoolArray]
    known: BoolArray
    sure: bool = True
    names: Sequence[str] | None = None
    edges: IntArray | None = None
    budget: FloatArray | None = None
    notes: tuple[str, ...] = ()

    @property
    def num_clients(self) -> int:
        """K."""
        return len(self.available)

    @property
    def num_available(self) -> int:
        """How many could be chosen."""
        return int(np.count_nonzero(self.available))

    @property
    def complete(self) -> bool:
        """Whether the terms of all who were available are known."""
        return bool(self.known[self.available].all())

    @property
    def num_edges(self) -> int:
        """M; 0 without edge servers."""
        return 0 if self.budget is None else len(self.budget)

    @property
    def passed_over(self) -> IntArray:
        """The available clients that were not chosen."""
        others = self.available.copy()
        others[self.cohort] = False
        return np.flatnonzero(others)

    def chose(self, client: int) -> bool:
        """Whether the client is in the cohort."""
        return bool(np.isin(client, self.cohort))

    def name(self, client: int) -> str:
        """The name of a client in sentences."""
        return f"client {client}" if self.names is None else f"{self.names[client]} ({client})"

    def column(self, name: str) -> FloatArray:
        """[K], the term; NaN where there is no such term."""
        return self.terms.get(name, np.full(self.num_clients, np.nan))

    def at_edges(self, name: str) -> FloatArray:
        """[K, M], the term at each edge; [K, 1] without edge servers."""
        if self.num_edges == 0:
            return self.column(name)[:, np.newaxis]
        return np.stack([self.column(f"{name}[{e}]") for e in range(self.num_edges)], axis=1)

    @property
    def term_names(self) -> tuple[str, ...]:
        """The names of the terms; a term at several edges once."""
        found = ((_AT_EDGE.fullmatch(name), name) for name in self.terms)
        return tuple(dict.fromkeys(name if at is None else at[1] for at, name in found))

    def edge_of(self, client: int) -> int | None:
        """Where it trains, if it was chosen and there are edge servers."""
        if self.edges is None or not self.chose(client):
            return None
        return int(self.edges[np.searchsorted(self.cohort, client)])

    def left(self) -> FloatArray:
        """[M], what the edges have not spent; infinite where there is no budget."""
        if self.budget is None or self.edges is None:
            return np.array([np.inf])
        spent = np.zeros(len(self.budget))
        np.add.at(spent, self.edges, self.at_edges("cost")[self.cohort, self.edges])
        return self.budget - spent

    def client(self, text: str) -> int:
        """The client of that number, or of that name."""
        if self.names is not None and text in self.names:
            return list(self.names).index(text)
        if text.isdecimal() and int(text) < self.num_clients:
            return int(text)
        expected = f"a number from 0 to {self.num_clients - 1}"
        if self.names is not None:
            near = get_close_matches(text, self.names, n=3, cutoff=0.3) or self.names[:3]
            expected += f", or a name such as {', '.join(near)}"
        raise ConfigError(f"--client {text}: no such client, expected {expected}")


def rank(values: FloatArray, among: IntArray, client: int) -> int:
    """1 for the highest of ``among``; equals share the better rank."""
    return 1 + int(np.count_nonzero(values[among] > values[client]))


Parts = tuple[tuple[str, float], ...]
"""Terms and the factors with which they add up to another."""


def parts_in_words(moment: Moment, client: int, parts: Parts) -> str:
    """`` (0.5 · mean_reward 0.8 + owed_rounds 2)``, or nothing where there are no parts."""
    told = ""
    for name, factor in parts:
        sign = " - " if factor < 0 else " + "
        times = "" if abs(factor) == 1 else f"{number(abs(factor))} · "
        value = number(float(moment.column(name)[client]))
        told += f"{sign if told or factor < 0 else ''}{times}{name} {value}"
    return f" ({told})" if told else ""


class Rule(ABC):
    """How a policy chooses, in words; a policy returns its own from ``Policy.rule``.

    A subclass has a ``formula``, the rule in words, or overrides ``about``.
    """

    __slots__ = ()

    formula: str

    @property
    def needs(self) -> tuple[str, ...]:
        """The terms without which the choice cannot be explained."""
        return ()

    @property
    def unlimited(self) -> tuple[str, ...]:
        """The terms that count as infinite for a client that was never tried."""
        return ()

    def about(self, moment: Moment) -> str:
        """The rule, with the policy's own numbers."""
        return self.formula

    def merit(self, moment: Moment) -> FloatArray:
        """[K], the order of the tables: the highest first, infinite for clients that come first."""
        return np.zeros(moment.num_clients)

    def worth(self, moment: Moment) -> str | None:
        """What the cohort is worth, where that is a number."""
        return None

    @abstractmethod
    def chosen(self, moment: Moment, client: int) -> str:
        """Why the client was chosen; continues "client 3 was chosen: "."""

    @abstractmethod
    def passed_over(self, moment: Moment, client: int) -> str:
        """Why an available client was not chosen; continues "client 3 was not chosen: "."""
