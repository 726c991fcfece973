"""A contestant of a race: a policy, how its federation works, and the experiment of its runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from fedmuster.core.policy import Policy
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import UNLIMITED, Federation
from fedmuster.training.training import Training
from fedmuster.worlds import World

CONCURRENCY: Final = 10
"""The slots of the server, in rounds and without."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Contestant:
    """A policy, and the federation that it works in.

    Args:
        label: its name on pages.
        policy: chooses the clients.
        federation: rounds, or when freed slots are refilled and when the server aggregates.
        evaluate_every: how many aggregations lie between two evaluations. About ten answers do for
            every contestant, so that nobody has more chances to be seen at a lucky moment.
    """

    label: str
    policy: Policy[Any]
    federation: Federation
    evaluate_every: int = 1


def experiment_of(
    contestants: Sequence[Contestant],
    *,
    world: World,
    training: Training,
    seconds: float,
    seeds: tuple[int, ...],
    concurrency: int = CONCURRENCY,
) -> Experiment:
    """The runs of contestants that train alike and are evaluated alike."""
    (evaluate_every,) = {contestant.evaluate_every for contestant in contestants}
    return Experiment(
        policies={contestant.label: contestant.policy for contestant in contestants},
        federation=Federation(concurrency=concurrency),
        federations={contestant.label: contestant.federation for contestant in contestants},
        world=world,
        rounds=UNLIMITED,
        seconds=seconds,
        seeds=seeds,
        regret=False,
        training=replace(training, evaluate_every=evaluate_every),
    )
