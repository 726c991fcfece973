"""The settings of Muster, and what is refused before the first round, with what to write."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from flwr.serverapp.strategy import FedXgbCyclic, Strategy
from numpy.typing import ArrayLike

from fedmuster.core.arrays import ceil_of
from fedmuster.core.config import require
from fedmuster.core.edges import EdgeView
from fedmuster.core.errors import ConfigError
from fedmuster.core.liveness import LARGEST_REST_AFTER
from fedmuster.core.policy import Policy
from fedmuster.core.records import BoolArray, FloatArray, is_integer
from fedmuster.experiments.spec import Experiment
from fedmuster.flower.node_roster import Roster
from fedmuster.flower.strategy_loop import layers, setting_of, warn
from fedmuster.privacy.budget import Privacy
from fedmuster.worlds.real_federation import RealFederation


@dataclass(frozen=True, kw_only=True, slots=True)
class EdgeGroups:
    """Groups of nodes that act as edge servers, and what each edge may spend in a round.

    A node names its edges with ``flower-supernode --node-config 'edge="north"'`` (or
    ``"north,south"``). ``members`` overrides what nodes say. A node at no edge is never chosen.

    Args:
        names: names of the edges, in the order in which policies number them.
        budget: what each edge may spend in a round; one number applies to every edge. With a
            ``cost`` of 1 it is the number of clients.
        cost: cost of a client in a round.
        members: the edges of a node, by the node's identity.

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
        """The edges as a policy sees them, with all clients on the roster."""
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


def check_strategy(
    strategy: object, *, policy: Policy[Any], cohort_size: int, num_to_ask: int
) -> None:
    """Refuse what would choose among the chosen, or wait for more nodes than a cohort has."""
    if not isinstance(strategy, Strategy):
        raise ConfigError(
            f"Muster: strategy is a {type(strategy).__module__}.{type(strategy).__name__}, "
            "expected one of flwr.serverapp.strategy (Flower's message API): write, for example, "
            "from flwr.serverapp.strategy import FedAvg"
        )
    problems = list(_problems(strategy, policy, cohort_size=cohort_size, num_to_ask=num_to_ask))
    if problems:  # all at once, so that nobody mends them one after the other
        raise ConfigError("\nand: ".join(problems))


def _problems(
    strategy: Strategy, policy: Policy[Any], *, cohort_size: int, num_to_ask: int
) -> Iterator[str]:
    for layer in layers(strategy):
        name = type(layer).__name__
        if isinstance(layer, FedXgbCyclic) and cohort_size != 1:
            yield f"{name} trains one node a round: write cohort_size=1"
            cohort_size = 1
        fraction = getattr(layer, "fraction_train", 1.0)
        if fraction == 0.0:
            yield (
                f"{name}: fraction_train = 0.0, so nobody would train, and Muster is for training: "
                f"write {_how(layer, 'fraction_train', 1.0)}, or start {name} without Muster"
            )
        elif fraction != 1.0:
            yield (
                f"{name}: fraction_train = {fraction}, which would choose again among those whom "
                f"fedmuster has chosen: write {_how(layer, 'fraction_train', 1.0)}, and how many "
                "shall train as cohort_size of Muster"
            )
        for setting in ("min_train_nodes", "min_available_nodes"):
            least = getattr(layer, setting, 1)
            if least > cohort_size:
                yield (
                    f"{name}: {setting} = {least} is more than the cohort of {cohort_size} that "
                    "it will be given, so it would wait for ever: write "
                    f"{_how(layer, setting, 1)}, and Muster(min_nodes={least}) to wait for so many "
                    "nodes to be there"
                )
        sampled = getattr(layer, "num_sampled_clients", cohort_size)
        if sampled != cohort_size:
            yield (
                f"{name}: num_sampled_clients = {sampled}, to which its noise is fitted, but "
                f"cohort_size is {cohort_size}: write {name}(num_sampled_clients={cohort_size})"
            )
        elif getattr(layer, "accountant", None) is not None and num_to_ask != cohort_size:
            yield (
                f"{name} accounts for exactly {sampled} clients, but {num_to_ask} are asked: "
                "leave over_selection out"
            )
    least = least_nodes(strategy)
    if policy.cohort_rule == "at most" and 1 < least <= cohort_size:
        yield (
            f"policy {policy.name} may choose a single client, but the strategy would wait for "
            f"{least}: write min_train_nodes=1, min_available_nodes=1"
        )


def _how(layer: Strategy, setting: str, value: float) -> str:
    """As an argument, where the class takes it; some set it themselves (FedXgbCyclic does)."""
    kinds = signature(type(layer)).parameters
    takes = setting in kinds or any(p.kind is p.VAR_KEYWORD for p in kinds.values())
    if takes:
        return f"{type(layer).__name__}({setting}={value})"
    return f"strategy.{setting} = {value} before Muster(strategy, …)"


def check_policy(policy: Policy[Any], *, num_edges: int) -> None:
    """Refuse policies that a real federation cannot serve."""
    if policy.oracle:
        raise ConfigError(
            f"policy {policy.name} is an oracle and needs the truth, which only a simulated world "
            "knows: choose another policy"
        )
    if num_edges > 0 and not policy.assigns_edges:
        raise ConfigError(
            f"policy {policy.name} assigns nobody to edges: write "
            f"Lifted(policy={type(policy).__name__}(…)), or leave edges out"
        )


def least_nodes(strategy: Strategy) -> int:
    """With fewer nodes than this the strategy would wait, or refuse."""
    least = [1]
    for layer in layers(strategy):
        least += [getattr(layer, name, 1) for name in ("min_train_nodes", "min_available_nodes")]
        if getattr(layer, "accountant", None) is not None:  # it accounts for exactly so many
            least.append(getattr(layer, "num_sampled_clients", 1))
    return max(least)


def nodes_to_evaluate(strategy: Strategy, online: int) -> int:
    """How many nodes a strategy waits for before it evaluates, by the number online."""
    fraction = setting_of(strategy, "fraction_evaluate", 1.0)
    if fraction == 0.0:
        return 0  # it does not evaluate, and asks nobody
    least = [setting_of(strategy, f"min_{what}_nodes", 1) for what in ("evaluate", "available")]
    return int(max(online * fraction, *least))


Features = Callable[[Sequence[str]], ArrayLike]
"""The context of clients, [K, d] (at edges [K, M, d]); the function gets their identities."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Settings:
    """The arguments of :class:`~fedmuster.flower.Muster`, where they are described."""

    policy: Policy[Any]
    cohort_size: int
    folder: Path
    seed: int
    deadline_seconds: float | None
    over_selection: float
    min_nodes: int | None
    wait_seconds: float
    poll_seconds: float
    authenticated: bool
    privacy: Privacy | None
    edges: EdgeGroups | None
    features: Features | None
    rest_after: int
    newcomer_quota: float

    def __post_init__(self) -> None:
        for name in ("cohort_size", "seed"):
            least = 0 if name == "seed" else 1
            fits = is_integer(getattr(self, name), least=least)
            require(fits, self, name, f"an integer >= {least}")
        deadline, nodes = self.deadline_seconds, self.min_nodes
        fits = deadline is None or 0 < deadline < np.inf
        require(fits, self, "deadline_seconds", "a number > 0, or None")
        fits = 1 <= self.over_selection < np.inf
        require(fits, self, "over_selection", "a number >= 1, for example 1.3")
        fits = is_integer(self.rest_after, least=0) and self.rest_after <= LARGEST_REST_AFTER
        require(fits, self, "rest_after", f"an integer from 0 (never) to {LARGEST_REST_AFTER:,}")
        require(0 < self.newcomer_quota <= 1, self, "newcomer_quota", "a share in (0, 1]")
        require(0 <= self.wait_seconds < np.inf, self, "wait_seconds", "a number >= 0")
        require(0 < self.poll_seconds < np.inf, self, "poll_seconds", "a number > 0")
        require(nodes is None or is_integer(nodes, least=1), self, "min_nodes", "an integer >= 1")
        known = self.privacy is None or isinstance(self.privacy, Privacy)
        require(known, self, "privacy", "a Privacy(…), or None")
        made = hasattr(self.policy, "oracle") and not isinstance(self.policy, type)
        require(made, self, "policy", 'a policy, for example BSFL() or "bsfl:alpha=3"')
        if self.privacy is not None:
            object.__setattr__(self, "privacy", self.privacy.settled("secure"))
        if self.privacy is not None and self.privacy.simulated:
            raise ConfigError(
                "Muster: privacy has noise = 'seeded', which protects nobody and is for "
                'simulations: write Privacy(noise="secure", …)'
            )
        check_policy(self.policy, num_edges=self.num_edges)

    @property
    def num_edges(self) -> int:
        """M; 0 in flat federated learning."""
        return 0 if self.edges is None else len(self.edges.names)

    @property
    def num_to_ask(self) -> int:
        """How many clients are asked, so that enough of them answer."""
        return ceil_of(self.cohort_size * self.over_selection)

    def experiment(self, *, rounds: int) -> Experiment:
        """The run as its spec describes it."""
        return Experiment(
            policies={self.policy.name: self.policy},
            world=RealFederation(
                cohort_size=self.cohort_size,
                over_selection=self.over_selection,
                deadline_seconds=self.deadline_seconds,
                edges=() if self.edges is None else self.edges.names,
                authenticated=self.authenticated,
            ),
            rounds=rounds,
            seeds=(self.seed,),
            regret=False,
            privacy=self.privacy,
        )
