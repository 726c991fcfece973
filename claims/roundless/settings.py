"""The settings of the race: worlds, data and work of clients, ten of which train at any time."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from claims.measures import model_text, work_text
from claims.racing.contestant import CONCURRENCY, Contestant, experiment_of
from fedmuster.experiments.spec import Experiment
from fedmuster.training.data import MNIST, Data, Digits, FashionMNIST
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import MLP
from fedmuster.training.partition import DirichletLabels, Natural, Partition, Shards
from fedmuster.training.training import Training
from fedmuster.worlds import BSFLGroups, BSFLRates, DeviceWorld, PauseGroups, World


@dataclass(frozen=True, kw_only=True, slots=True)
class RaceSetting:
    """A world, what its clients learn, and for how long.

    Args:
        name: on pages, and of its folder.
        world: how long clients take.
        data: what is learned.
        partition: which client has which data.
        model: which MLP.
        local: what a client does in a job; the learning rate is each contestant's own.
        seconds: of simulated time.
        world_text: the world, in words.
    """

    name: str
    world: World
    data: Data
    partition: Partition
    model: MLP
    seconds: float
    world_text: str
    local: LocalSGD = field(default_factory=LocalSGD)

    def experiment(
        self, contestants: Sequence[Contestant], *, rate: float, seeds: tuple[int, ...]
    ) -> Experiment:
        """The runs of contestants that have one learning rate and are evaluated alike."""
        return experiment_of(
            contestants,
            world=self.world,
            training=Training(
                data=self.data,
                partition=self.partition,
                model=self.model,
                local=replace(self.local, learning_rate=rate),
            ),
            seconds=self.seconds,
            seeds=seeds,
        )

    def quick(self) -> "RaceSetting":
        """A short one with the same kind of world that needs no download."""
        world = self.world
        if isinstance(world, DeviceWorld):
            world = replace(world, num_clients=60)
        return replace(
            self,
            world=world,
            data=Digits(train_limit=500, test_limit=100),
            partition=DirichletLabels(alpha=0.3),
            model=MLP(hidden=(16,)),
            seconds=self.seconds / 20,
        )

    def describe(self) -> str:
        """The setting in words, for the page."""
        return (
            f"{self.name}: {self.data.name}, {_skew(self.partition)}, {model_text(self.model)}, "
            f"{work_text(self.local.steps)} in batches of {self.local.batch_size} a job; "
            f"{self.world_text}; {self.seconds:g} s"
        )


def _skew(partition: Partition) -> str:
    if isinstance(partition, DirichletLabels):
        return f"labels by Dirichlet({partition.alpha:g})"
    if isinstance(partition, Shards):
        return f"{partition.labels_per_client} labels a client"
    return "a client for each of 539 writers"


_GROUPS = BSFLGroups(num_clients=100, cohort_size=CONCURRENCY)
_GROUPS_TEXT = "100 clients in ten groups, 0.1 to 1 s a job (bsfl-groups)"
_SKEWED = DirichletLabels(alpha=0.3)

GROUPS: Final = RaceSetting(
    name="digits, groups",
    world=_GROUPS,
    data=Digits(),
    partition=_SKEWED,
    model=MLP(hidden=(32,)),
    seconds=100.0,
    world_text=_GROUPS_TEXT,
)
HALVES: Final = replace(
    GROUPS,
    name="digits, halves",
    world=PauseGroups(num_clients=100, cohort_size=CONCURRENCY),
    world_text="100 clients, a half takes 0.05 to 0.2 s a job, the other 0.7 to 0.9 s "
    "(pause-groups)",
)
RATES: Final = replace(
    GROUPS,
    name="digits, rates",
    world=BSFLRates(num_clients=100, cohort_size=CONCURRENCY, rest="fast"),
    partition=Shards(labels_per_client=2),
    world_text="100 clients, 85 take 0.1 to 0.14 s a job, 15 take 0.8 to 1 s (bsfl-rates)",
)
FASHION: Final = RaceSetting(
    name="fashion, groups",
    world=_GROUPS,
    data=FashionMNIST(test_limit=2000),
    partition=_SKEWED,
    model=MLP(),
    local=LocalSGD(steps=1),
    seconds=150.0,
    world_text=_GROUPS_TEXT,
)
_PHONES = DeviceWorld(
    num_clients=539, cohort_size=CONCURRENCY, local_steps=5, deadline_seconds=36.0
)
WRITERS: Final = RaceSetting(
    name="writers, deadline",
    world=_PHONES,
    data=MNIST(test_limit=2000),
    partition=Natural(),
    model=MLP(),
    local=LocalSGD(steps=5),
    seconds=4000.0,
    world_text="539 phones, of which a fifth is there at a time, with a deadline of 36 s that half "
    "of the jobs meet (devices)",
)
PATIENT: Final = replace(
    WRITERS,
    name="writers, no deadline",
    world=replace(_PHONES, deadline_seconds=10_000.0),
    seconds=8000.0,
    world_text="the same phones, with a deadline that all meet",
)

SETTINGS: Final = (GROUPS, HALVES, RATES, FASHION, WRITERS, PATIENT)
QUICK_SETTINGS: Final = (GROUPS.quick(), WRITERS.quick())
