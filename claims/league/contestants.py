"""The contestants of the league: policies by name, in rounds, without, or as published."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from claims.racing.contestant import CONCURRENCY, Contestant
from fedmuster.core.config import from_table, named, parse, to_table
from fedmuster.core.errors import ConfigError
from fedmuster.core.policy import POLICIES, Policy
from fedmuster.core.records import Problem
from fedmuster.core.staleness import PolynomialWorth
from fedmuster.experiments.spec_tables import label_of
from fedmuster.federation import Federation
from fedmuster.policies.random import Random
from fedmuster.training.aggregation import SERVERS, Aggregation, FedAvg, FedAvgM, ModelMixing

Mode = Literal["rounds", "round-less", "published", "own"]

_BUFFER = 3
_FEDERATIONS: Final[Mapping[Mode, Federation]] = {
    "rounds": Federation(rounds=True),
    "round-less": Federation(refill=1, buffer=_BUFFER, staleness=PolynomialWorth()),
    "published": Federation(),
}
"""What the words after ``federation=`` stand for."""

_SERVERS: Final[Mapping[str, tuple[Aggregation, ...]]] = {
    "fedasync": tuple(ModelMixing(mixing=mixing) for mixing in (0.3, 0.6, 0.9)),
    "fedbuff": (FedAvg(weights="uniform"), *(FedAvgM(learning_rate=r) for r in (0.1, 0.3))),
    "pisces": (FedAvg(), ModelMixing(mixing=1.0)),
}
"""Servers with rates of their own that a published federation chooses from, on the tuning seeds.

FedAsync mixes models (its paper: 0.6 and 0.9), FedBuff has a server rate with momentum, Pisces'
authors mix models in their code and add updates in their paper.
"""

_ANSWERS_BETWEEN_EVALUATIONS = 10
_BY_THE_CLOCK = 5
"""Aggregations between evaluations where the number of answers in each is not known in advance."""

_AT_EDGES = "it places clients at edge servers, and the league has none"
_LEFT_OUT: Final[Mapping[str, str]] = {
    **dict.fromkeys(("cocs", "cucb", "lifted"), _AT_EDGES),
    "linucb": "it needs features of clients, and the league has none",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class LeagueContestant(Contestant):
    """A contestant, and the servers that it may choose from.

    Args:
        mode: how it works.
        in_rounds: whether that is in rounds.
        servers: the server rules that are tuned together with the clients' learning rate.
    """

    mode: Mode
    in_rounds: bool
    servers: tuple[Aggregation, ...] = (FedAvg(),)


def contestants_of(text: str) -> list[LeagueContestant]:
    """The contestants that a name stands for.

    A policy that was published with a federation of its own works as published; any other works in
    rounds and, where it can, without. ``federation=rounds``, ``federation=round-less``,
    ``federation=published`` or a table leaves one way; ``server={…}`` replaces the server.

    Example:
        >>> [one.label for one in contestants_of("oort")]
        ['oort, rounds', 'oort, round-less']
        >>> [one.label for one in contestants_of("oort:federation=rounds")]
        ['oort, rounds']
    """
    table = parse(text)
    if table["name"].endswith(".py"):
        raise ConfigError(
            f"{table['name']} is a file without a class: write {table['name']}:Class", key=("name",)
        )
    way, server = table.pop("federation", None), table.pop("server", None)
    policy: Policy[Any] = named(POLICIES, table, key=(), what="policy")
    if (reason := left_out(policy)) is not None:
        raise ConfigError(f"{policy.name} cannot play in the league: {reason}", key=("name",))
    servers = None
    if server is not None:
        servers = (named(SERVERS, server, key=("server",), what="server"),)
    name = label_of(text) if isinstance(way, Mapping) else _without_federation(label_of(text))
    return [_contestant(name, policy, mode, way, servers) for mode in _modes(policy, way)]


def rebuilt(
    label: str,
    policy: Mapping[str, Any],
    federation: Mapping[str, Any],
    servers: Sequence[Mapping[str, Any]],
) -> LeagueContestant:
    """The contestant with these tables, as an earlier league has recorded it.

    Args:
        label: with the mode at its end.
        policy: the table of its policy.
        federation: the table of its federation.
        servers: the tables of the server rules that it chose from; empty for those of the mode.

    Raises:
        ConfigError: there is no such policy, or it has no such setting.
    """
    name, _, mode = label.rpartition(", ")
    return _contestant(
        name,
        named(POLICIES, policy, key=("policy",), what="policy"),
        next((known for known in _FEDERATIONS if known == mode), "own"),
        federation,
        tuple(named(SERVERS, one, key=("server",), what="server") for one in servers) or None,
    )


def base() -> LeagueContestant:
    """Random choice in rounds: all scores are shares of its numbers."""
    return _contestant("random", Random(), "rounds", None, None)


def every_name() -> list[str]:
    """The policies of the registry that can play."""
    return [name for name, kind in POLICIES.items() if left_out(kind()) is None]


def all_contestants(names: Iterable[str]) -> list[LeagueContestant]:
    """The contestants of these names, the base first, without duplicates."""
    found = {base().label: base()}
    for name in names:
        for one in contestants_of(name):
            other = found.get(one.label, one)
            if one != other:
                one_name, other_name = (to_table(each.policy)["name"] for each in (one, other))
                raise ConfigError(
                    f"two contestants are called {one.label!r}: {other_name} and {one_name}; "
                    "rename one of the classes",
                    key=("name",),
                )
            found.setdefault(one.label, one)
    return list(found.values())


def left_out(policy: Policy[Any]) -> str | None:
    """Why a policy cannot play; None where it can."""
    if policy.oracle:
        return "it is told the truth about clients, which no server knows"
    if policy.cohort_rule == "everyone":
        return "it asks all clients, and the league compares at equal concurrency"
    return _LEFT_OUT.get(policy.name)


def _modes(policy: Policy[Any], way: Any) -> list[Mode]:
    if isinstance(way, Mapping):
        return ["own"]
    if way in _FEDERATIONS:
        if way == "round-less" and policy.rounds_only is not None:
            raise ConfigError(
                f"{policy.name} works in rounds only: {policy.rounds_only}", key=("federation",)
            )
        if way == "published" and not policy.published_federation:
            raise ConfigError(
                f"{policy.name} was not published with a federation of its own: write "
                "federation=rounds or federation=round-less",
                key=("federation",),
            )
        return [way]
    if way is not None:
        raise ConfigError(
            f"federation = {way!r}, expected a table or one of: {', '.join(_FEDERATIONS)}",
            key=("federation",),
        )
    if policy.published_federation:
        return ["published"]
    return ["rounds"] if policy.rounds_only is not None else ["rounds", "round-less"]


def _contestant(
    name: str, policy: Policy[Any], mode: Mode, way: Any, servers: tuple[Aggregation, ...] | None
) -> LeagueContestant:
    federation = from_table(Federation, way) if mode == "own" else _FEDERATIONS[mode]
    if mode == "own" and federation.concurrency not in (None, CONCURRENCY):
        raise ConfigError(
            f"concurrency = {federation.concurrency}, but in the league {CONCURRENCY} clients train"
            " at any time",
            key=("federation", "concurrency"),
        )
    if federation.late_hold_slots is False:
        raise ConfigError(
            "late_hold_slots = false, but in the league a late client holds its slot until its "
            "answer is there: leave it out",
            key=("federation", "late_hold_slots"),
        )
    in_rounds = _works_in_rounds(policy, federation)
    if in_rounds:
        federation = replace(federation, late_hold_slots=True)
    if servers is None:
        servers = _SERVERS.get(policy.name) if mode == "published" else None
    return LeagueContestant(
        label=f"{name}, {mode}",
        policy=policy,
        federation=federation,
        evaluate_every=1 if in_rounds else _evaluate_every(policy, federation),
        mode=mode,
        in_rounds=in_rounds,
        servers=servers or (FedAvg(),),
    )


def _works_in_rounds(policy: Policy[Any], federation: Federation) -> bool:
    return federation.settled(policy, Problem(num_clients=100, cohort_size=CONCURRENCY)).in_rounds


def _evaluate_every(policy: Policy[Any], federation: Federation) -> int:
    """About ten answers lie between evaluations."""
    settings = from_table(Federation, policy.published_federation).overridden_by(federation)
    if settings.trigger is not None:
        return _BY_THE_CLOCK
    return max(1, _ANSWERS_BETWEEN_EVALUATIONS // (settings.buffer or CONCURRENCY))


def _without_federation(label: str) -> str:
    name, colon, settings = label.partition(":")
    parts = [part.strip() for part in settings.split(",")]
    kept = ",".join(part for part in parts if part.partition("=")[0].strip() != "federation")
    return name + (colon + kept if kept else "")
