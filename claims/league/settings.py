"""The frozen settings of the league: tasks, each in a world for judging and one for tuning."""

import hashlib
import json
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from claims.league.rare_labels import RareLabels, SlowTail
from claims.racing.contestant import CONCURRENCY
from fedmuster.core.config import to_table
from fedmuster.training.data import MNIST, UCIHAR, Data, Digits, FashionMNIST
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import MLP, Model
from fedmuster.training.partition import IID, DirichletLabels, Natural, Partition, Shards
from fedmuster.training.training import Training
from fedmuster.worlds import (
    BSFLGroups,
    BSFLRates,
    DeviceWorld,
    DriftingWorld,
    Fixed,
    LatencyWorld,
    LogNormal,
    PauseGroups,
    World,
)

VERSION: Final = 1
"""Raised whenever a setting changes: results of different versions are not comparable."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Arena:
    """A world, and for how long.

    Args:
        world: how long clients take.
        seconds: of simulated time.
        about: the world, in words.
    """

    world: World
    seconds: float
    about: str

    def to_table(self) -> dict[str, Any]:
        """What decides runs."""
        return {"world": to_table(self.world), "seconds": self.seconds}


@dataclass(frozen=True, kw_only=True, slots=True)
class LeagueSetting:
    """A task with a target, the world that judges, and another world that tunes.

    Args:
        name: on pages.
        data: what is learned.
        partition: which client has which data.
        model: which model.
        local: what a client does in a job; the learning rate is each contestant's own.
        target: the accuracy to reach.
        judging: where contestants are judged, on the judging seeds.
        tuning: where they choose their rates, on the tuning seeds.
    """

    name: str
    data: Data
    partition: Partition
    model: Model
    local: LocalSGD
    target: float
    judging: Arena
    tuning: Arena

    @property
    def training(self) -> Training:
        """The task."""
        return Training(
            data=self.data, partition=self.partition, model=self.model, local=self.local
        )

    @property
    def partition_text(self) -> str:
        """The partition, in words."""
        partition = self.partition
        if isinstance(partition, DirichletLabels):
            return f"labels by Dirichlet({partition.alpha:g})"
        if isinstance(partition, Shards):
            return f"{partition.labels_per_client} labels a client"
        if isinstance(partition, RareLabels):
            return f"labels {' and '.join(map(str, partition.labels))} at slow clients only"
        return "a client for each writer" if isinstance(partition, Natural) else "i.i.d."

    def to_table(self) -> dict[str, Any]:
        """What decides runs."""
        return {
            "name": self.name,
            "training": to_table(self.training),
            "target": self.target,
            "judging": self.judging.to_table(),
            "tuning": self.tuning.to_table(),
        }


def digest(settings: tuple[LeagueSetting, ...]) -> str:
    """SHA-256 of these settings: all that decides runs, defaults included."""
    content = {"version": VERSION, "settings": [one.to_table() for one in settings]}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# Tasks: what is learned, on which data, by which work of a client.

_ONE_STEP = LocalSGD(steps=1)
_SMALL_MLP = MLP(hidden=(32,))
_SKEWED = DirichletLabels(alpha=0.3)
_TWO_LABELS = Shards(labels_per_client=2)
_DIGITS = Digits()
_FASHION = FashionMNIST(train_limit=10_000, test_limit=1000)
_WRITERS = MNIST(test_limit=1000)
_HAR = UCIHAR(test_limit=1000)

_digits = partial(LeagueSetting, data=_DIGITS, model=_SMALL_MLP, local=LocalSGD())
_fashion = partial(LeagueSetting, data=_FASHION, model=_SMALL_MLP, local=_ONE_STEP)
_har = partial(LeagueSetting, data=_HAR, model=MLP(hidden=(64,)), local=LocalSGD(steps=10))
_writers = partial(LeagueSetting, data=_WRITERS, partition=Natural(), model=_SMALL_MLP)

# Worlds: 100 clients, and 200 phones.

_GROUPS = BSFLGroups(num_clients=100, cohort_size=CONCURRENCY)
_THREE_GROUPS = replace(_GROUPS, num_groups=3, slowest_seconds=1.5)
_TWO_GROUPS = replace(_GROUPS, num_groups=2, slowest_seconds=0.8)
_RATES = BSFLRates(num_clients=100, cohort_size=CONCURRENCY, rest="fast")
_MORE_SLOW_RATES = replace(_RATES, fast_share=0.1, slow_share=0.3)
_HALVES = PauseGroups(num_clients=100, cohort_size=CONCURRENCY)
_SPREAD = LatencyWorld(num_clients=100, cohort_size=CONCURRENCY, slowest_seconds=2.0)
_HEAVY = replace(_SPREAD, distribution=LogNormal(relative_sd=2.0), slowest_seconds=1.0)
_HEAVIER = replace(_SPREAD, distribution=LogNormal(relative_sd=3.0), slowest_seconds=0.5)
_ZIPF = replace(_SPREAD, spacing="zipf", distribution=Fixed(), slowest_seconds=3.0)
_FLATTER_ZIPF = replace(_ZIPF, exponent=0.8, slowest_seconds=2.0)
_EVEN = replace(_SPREAD, spacing="even", slowest_seconds=1.0)
_DROPOUTS = replace(_GROUPS, dropout=0.2, deadline_seconds=1.5)
_MORE_DROPOUTS = replace(_EVEN, dropout=0.3, deadline_seconds=2.0)
_JUMPS = DriftingWorld(num_clients=100, cohort_size=CONCURRENCY, every_seconds=10.0)
_RARER_JUMPS = replace(_JUMPS, every_seconds=25.0, slowest_seconds=0.8)
_WAVES = replace(_JUMPS, change="waves", every_seconds=15.0)
_LONG_WAVES = replace(_WAVES, every_seconds=40.0, slowest_seconds=0.8)
_SLOW_TAIL = SlowTail(num_clients=100, cohort_size=CONCURRENCY)
_MILD_TAIL = replace(_SLOW_TAIL, fast_seconds=0.15, slow_seconds=0.75)
_PHONES = DeviceWorld(
    num_clients=200, cohort_size=CONCURRENCY, local_steps=5, deadline_seconds=36.0
)
_OTHER_PHONES = replace(_PHONES, local_steps=10, update_mbit=20.0, deadline_seconds=48.0)
_PATIENT = 10_000.0
"""A deadline that every phone meets."""

_GROUPS_TEXT = "ten groups, 0.1 to 1 s a job (bsfl-groups)"
_THREE_GROUPS_TEXT = "three groups, 0.1 to 1.5 s a job (bsfl-groups)"
_TWO_GROUPS_TEXT = "a half takes 0.1 s a job, the other 0.8 s (bsfl-groups)"
_RATES_TEXT = "85 clients take 0.1 to 0.14 s a job, 15 take 0.8 to 1 s (bsfl-rates)"
_MORE_SLOW_TEXT = "70 clients take 0.1 to 0.14 s a job, 30 take 0.8 to 1 s (bsfl-rates)"
_HALVES_TEXT = "a half takes 0.05 to 0.2 s a job, the other 0.7 to 0.9 s (pause-groups)"
_SPREAD_TEXT = "means log-uniform from 0.1 to 2 s a job, exponential (latency)"
_HEAVY_TEXT = "means log-uniform from 0.1 to 1 s a job, log-normal with an sd of 2 means (latency)"
_HEAVIER_TEXT = (
    "means log-uniform from 0.1 to 0.5 s a job, log-normal with an sd of 3 means (latency)"
)
_ZIPF_TEXT = "Zipf(1.2) from 0.1 to 3 s a job, fixed for each client (latency)"
_FLATTER_ZIPF_TEXT = "Zipf(0.8) from 0.1 to 2 s a job, fixed for each client (latency)"
_EVEN_TEXT = "means evenly spaced from 0.1 to 1 s a job, exponential (latency)"
_JUMPS_TEXT = "each client draws another speed, 0.1 to 1 s a job, every 10 s (drifting)"
_RARER_JUMPS_TEXT = "each client draws another speed, 0.1 to 0.8 s a job, every 25 s (drifting)"
_WAVES_TEXT = "the speed of each client swings between 0.1 and 1 s a job in 15 s (drifting)"
_LONG_WAVES_TEXT = "the speed of each client swings between 0.1 and 0.8 s a job in 40 s (drifting)"
_SLOW_TAIL_TEXT = "80 clients take 0.1 s a job, 20 take 1 s and own the rare labels"
_MILD_TAIL_TEXT = "80 clients take 0.15 s a job, 20 take 0.75 s and own the rare labels"
_PHONES_TEXT = "200 phones, a fifth there at a time, 5 steps of training a job (devices)"
_OTHER_PHONES_TEXT = (
    "200 phones, a fifth there at a time, 10 steps a job, updates of half the size (devices)"
)

SETTINGS: Final = (
    _digits(
        name="digits, groups",
        partition=_SKEWED,
        target=0.94,
        judging=Arena(world=_GROUPS, seconds=60.0, about=_GROUPS_TEXT),
        tuning=Arena(world=_SPREAD, seconds=120.0, about=_SPREAD_TEXT),
    ),
    _digits(
        name="digits, rates",
        partition=_TWO_LABELS,
        target=0.95,
        judging=Arena(world=_RATES, seconds=60.0, about=_RATES_TEXT),
        tuning=Arena(world=_THREE_GROUPS, seconds=120.0, about=_THREE_GROUPS_TEXT),
    ),
    _digits(
        name="digits, halves",
        partition=DirichletLabels(alpha=0.1),
        target=0.93,
        judging=Arena(world=_HALVES, seconds=60.0, about=_HALVES_TEXT),
        tuning=Arena(world=_TWO_GROUPS, seconds=56.0, about=_TWO_GROUPS_TEXT),
    ),
    _digits(
        name="digits, heavy tail",
        partition=IID(),
        target=0.91,
        judging=Arena(world=_HEAVY, seconds=60.0, about=_HEAVY_TEXT),
        tuning=Arena(world=_EVEN, seconds=52.0, about=_EVEN_TEXT),
    ),
    _digits(
        name="digits, dropouts",
        partition=_SKEWED,
        target=0.935,
        judging=Arena(
            world=_DROPOUTS,
            seconds=80.0,
            about=f"{_GROUPS_TEXT}; a fifth of the jobs is never answered, deadline 1.5 s",
        ),
        tuning=Arena(
            world=_MORE_DROPOUTS,
            seconds=120.0,
            about=f"{_EVEN_TEXT}; 30 % of the jobs are never answered, deadline 2 s",
        ),
    ),
    _digits(
        name="digits, drift",
        partition=_SKEWED,
        target=0.945,
        judging=Arena(world=_JUMPS, seconds=60.0, about=_JUMPS_TEXT),
        tuning=Arena(world=_LONG_WAVES, seconds=51.0, about=_LONG_WAVES_TEXT),
    ),
    _digits(
        name="digits, rare labels",
        partition=RareLabels(labels=(3, 8)),
        target=0.95,
        judging=Arena(world=_SLOW_TAIL, seconds=60.0, about=_SLOW_TAIL_TEXT),
        tuning=Arena(world=_MILD_TAIL, seconds=47.0, about=_MILD_TAIL_TEXT),
    ),
    _fashion(
        name="fashion, zipf",
        partition=_SKEWED,
        target=0.745,
        judging=Arena(world=_ZIPF, seconds=60.0, about=_ZIPF_TEXT),
        tuning=Arena(world=_FLATTER_ZIPF, seconds=52.0, about=_FLATTER_ZIPF_TEXT),
    ),
    _fashion(
        name="fashion, groups",
        partition=_TWO_LABELS,
        target=0.745,
        judging=Arena(world=_GROUPS, seconds=80.0, about=_GROUPS_TEXT),
        tuning=Arena(world=_THREE_GROUPS, seconds=120.0, about=_THREE_GROUPS_TEXT),
    ),
    _fashion(
        name="fashion, rare labels",
        partition=RareLabels(labels=(0, 7)),
        target=0.755,
        judging=Arena(world=_SLOW_TAIL, seconds=60.0, about=_SLOW_TAIL_TEXT),
        tuning=Arena(world=_MILD_TAIL, seconds=44.0, about=_MILD_TAIL_TEXT),
    ),
    _har(
        name="har, rates",
        partition=_SKEWED,
        target=0.8,
        judging=Arena(world=_MORE_SLOW_RATES, seconds=60.0, about=_MORE_SLOW_TEXT),
        tuning=Arena(world=_EVEN, seconds=110.0, about=_EVEN_TEXT),
    ),
    _har(
        name="har, heavy tail",
        partition=IID(),
        target=0.81,
        judging=Arena(world=_HEAVIER, seconds=50.0, about=_HEAVIER_TEXT),
        tuning=Arena(world=_SPREAD, seconds=69.0, about=_SPREAD_TEXT),
    ),
    _writers(
        name="writers, deadline",
        local=LocalSGD(steps=5),
        target=0.885,
        judging=Arena(
            world=_PHONES,
            seconds=2500.0,
            about=f"{_PHONES_TEXT}, with a deadline of 36 s that half of the jobs meet",
        ),
        tuning=Arena(
            world=_OTHER_PHONES,
            seconds=3700.0,
            about=f"{_OTHER_PHONES_TEXT}, with a deadline of 48 s",
        ),
    ),
    _writers(
        name="writers, no deadline",
        local=LocalSGD(steps=5),
        target=0.895,
        judging=Arena(
            world=replace(_PHONES, deadline_seconds=_PATIENT),
            seconds=3000.0,
            about=f"{_PHONES_TEXT}, with a deadline that all meet",
        ),
        tuning=Arena(
            world=replace(_OTHER_PHONES, deadline_seconds=_PATIENT),
            seconds=4000.0,
            about=f"{_OTHER_PHONES_TEXT}, with a deadline that all meet",
        ),
    ),
    _writers(
        name="writers, drift",
        local=_ONE_STEP,
        target=0.88,
        judging=Arena(world=_WAVES, seconds=60.0, about=_WAVES_TEXT),
        tuning=Arena(world=_RARER_JUMPS, seconds=44.0, about=_RARER_JUMPS_TEXT),
    ),
)
