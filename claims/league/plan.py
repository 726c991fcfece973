"""How much of the league is run: settings, learning rates, and which seeds tune and judge."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from claims.league.cells import Cell
from claims.league.code import own_digest
from claims.league.contestants import LeagueContestant
from claims.league.settings import SETTINGS, Arena, LeagueSetting
from claims.racing.contestant import experiment_of
from fedmuster.core.errors import ConfigError
from fedmuster.training.aggregation import Aggregation

RATES: Final = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""The learning rates of clients that every contestant chooses from."""
TUNING_SEEDS: Final = (900, 901, 902)
"""The seeds for tuning, which are never used for judging."""
_TUNING_RULE: Final = ("claims.league.plan", "claims.league.runner", "claims.racing.tuning")
"""The modules that choose rates."""


class Choice(NamedTuple):
    """What a contestant chooses on the tuning seeds: learning rate of clients, and server."""

    rate: float
    server: Aggregation


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How much is run.

    Args:
        settings: in which contestants meet.
        rates: the learning rates of clients.
        finalists: how many choices go on from the first tuning seed to the others.
        tuning_seeds: the seeds of the runs that choose rates, in the worlds for tuning.
        judging_seeds: the seeds of the runs that are reported, in the worlds for judging.
        quick: whether this is the short form.
    """

    settings: tuple[LeagueSetting, ...] = SETTINGS
    rates: tuple[float, ...] = RATES
    finalists: int = 3
    tuning_seeds: tuple[int, ...] = TUNING_SEEDS
    judging_seeds: tuple[int, ...]
    quick: bool = False

    def __post_init__(self) -> None:
        both = sorted(set(self.tuning_seeds) & set(self.judging_seeds))
        if both:
            first, last = min(self.tuning_seeds), max(self.tuning_seeds)
            seeds = f"{first}–{last}" if first < last else str(first)
            raise ConfigError(
                f"seed {both[0]} is a tuning seed: choose judging seeds outside {seeds}",
                key=("first_seed",),
            )

    def choices(self, contestant: LeagueContestant) -> list[Choice]:
        """Everything that a contestant may choose."""
        return [Choice(rate, server) for server in contestant.servers for rate in self.rates]

    def tuning_cells(
        self, contestant: LeagueContestant, setting: LeagueSetting, choice: Choice
    ) -> Iterator[Cell]:
        """A contestant with a choice, one cell for each tuning seed."""
        for seed in self.tuning_seeds:
            cell = cell_of(contestant, setting, setting.tuning, choice, seed)
            yield replace(cell, to_target=True)

    def judging_cells(
        self, contestant: LeagueContestant, setting: LeagueSetting, choice: Choice
    ) -> Iterator[Cell]:
        """A contestant with its choice, one cell for each judging seed."""
        for seed in self.judging_seeds:
            yield cell_of(contestant, setting, setting.judging, choice, seed)


def full(*, first_seed: int = 0, seeds: int = 10) -> Plan:
    """The league itself."""
    return Plan(judging_seeds=tuple(range(first_seed, first_seed + seeds)))


QUICK_SETTINGS: Final = (
    "digits, groups",
    "digits, halves",
    "digits, drift",
    "digits, rare labels",
    "fashion, zipf",
    "writers, deadline",
)


def quick(*, first_seed: int = 0, seeds: int = 3) -> Plan:
    """Ten minutes for a handful of policies; too little to decide."""
    return Plan(
        settings=tuple(one for one in SETTINGS if one.name in QUICK_SETTINGS),
        rates=(0.05, 0.1, 0.2, 0.4),
        finalists=1,
        tuning_seeds=TUNING_SEEDS[:1],
        judging_seeds=tuple(range(first_seed, first_seed + seeds)),
        quick=True,
    )


def cell_of(
    contestant: LeagueContestant,
    setting: LeagueSetting,
    arena: Arena,
    choice: Choice,
    seed: int,
    *,
    target: float | None = None,
) -> Cell:
    """The run of a contestant with its choice; ``target`` replaces the setting's."""
    training = replace(
        setting.training,
        local=replace(setting.local, learning_rate=choice.rate),
        server=choice.server,
    )
    return Cell(
        experiment=experiment_of(
            [contestant], world=arena.world, training=training, seconds=arena.seconds, seeds=(seed,)
        ),
        target=setting.target if target is None else target,
    )


def fingerprint(contestant: LeagueContestant, plan: Plan) -> str:
    """SHA-256 of all that decides a contestant's runs: settings, seeds, rates, code, versions.

    Two leagues in which it is the same have the same numbers for this contestant.
    """
    parts = [repr((plan.rates, plan.finalists, plan.tuning_seeds, plan.judging_seeds))]
    parts += [own_digest(*_TUNING_RULE)]
    for server in contestant.servers:
        choice = Choice(plan.rates[0], server)
        for setting in plan.settings:
            for cells in (plan.tuning_cells, plan.judging_cells):
                # One seed is enough: all seeds are in the first part.
                parts.append(next(cells(contestant, setting, choice)).key())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
