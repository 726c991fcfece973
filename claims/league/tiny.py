"""A league that takes seconds, for tests: real settings, made small."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from claims.league.cells import Job
from claims.league.plan import Plan
from claims.league.settings import Arena, LeagueSetting
from fedmuster.training.data import Digits
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import MLP
from fedmuster.training.partition import DirichletLabels
from fedmuster.worlds import BSFLGroups, BSFLRates

_GROUPS = BSFLGroups(num_clients=30, cohort_size=10)

TINY: Final = LeagueSetting(
    name="tiny, groups",
    data=Digits(train_limit=300, test_limit=60),
    partition=DirichletLabels(alpha=0.5),
    model=MLP(hidden=(16,)),
    local=LocalSGD(),
    target=0.25,
    judging=Arena(world=_GROUPS, seconds=10.0, about="ten groups"),
    tuning=Arena(
        world=BSFLRates(num_clients=30, cohort_size=10), seconds=10.0, about="fast and slow"
    ),
)
OTHER: Final = replace(
    TINY,
    name="tiny, rates",
    judging=replace(TINY.tuning, seconds=8.0),
    tuning=replace(TINY.judging, seconds=8.0),
)
PLAN: Final = Plan(
    settings=(TINY, OTHER),
    rates=(0.1, 0.4),
    finalists=1,
    tuning_seeds=(900, 901),
    judging_seeds=(0, 1),
    quick=True,
)

MINE: Final = '''
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmuster.core.policy import Stateless
from fedmuster.core.records import Selection


@dataclass(frozen=True, kw_only=True, slots=True)
class Mine(Stateless):
    """The available clients with the lowest ids, from a given one on."""

    name: ClassVar[str] = "mine"
    first: int = 0

    def select(self, state, view, rng):
        there = np.flatnonzero(view.available)
        chosen = np.roll(there, -self.first)[: view.num_to_choose]
        return Selection.of(view, slice(None), np.sort(chosen))
'''
"""A policy that fedmuster has never seen."""


def quiet(what: str, done: int, whole: int) -> None:
    """No progress."""


class Inline:
    """Plays jobs in this process and keeps them."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def __call__(
        self, work: Callable[[Job], None], jobs: Sequence[Job], *, tick: Any, processes: Any
    ) -> None:
        """As :func:`~fedmuster.experiments.sweep.run_side_by_side`."""
        self.jobs += jobs
        for job in jobs:
            work(job)
