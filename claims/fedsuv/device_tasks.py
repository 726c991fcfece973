"""The training tasks of FedSUV's section 6.2, reduced, with substitutes for some data sets."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from claims.claim import seeds
from claims.measures import model_text, work_text
from claims.published import PUBLISHED_RULES
from fedmuster import REFL, SAFA, FedSUV, Oort, Random
from fedmuster.core.policy import Policy
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Watch
from fedmuster.training.aggregation import Aggregation, FedAvg, FedYogi
from fedmuster.training.data import CIFAR10, MNIST, AudioMNIST, Data, Digits, FashionMNIST
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import MLP, Model
from fedmuster.training.networks import ResNet18
from fedmuster.training.partition import DirichletLabels, Natural, Partition
from fedmuster.training.training import Training
from fedmuster.worlds import DeviceWorld

FEDAVG, FEDSUV = "fedavg", "fedsuv"
SERVERS: Final[Mapping[str, Aggregation]] = {
    "averaging": FedAvg(),
    "yogi": FedYogi(learning_rate=0.01),
}
"""How updates become one model, by the paper's names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceTask:
    """One column of Tables 2 and 3.

    Args:
        data: what is learned.
        partition: who has which data.
        model: which model.
        learning_rate: of the clients.
        batch_size: of a local step.
        steps: how many of them; None for an epoch.
        num_clients: K.
        cohort_size: m.
        rounds: how many.
        seeds: how many.
        evaluate_every: rounds.
        notes: what differs from the paper.
    """

    data: Data
    partition: Partition
    model: Model
    learning_rate: float
    batch_size: int
    num_clients: int
    steps: int | None = 20
    cohort_size: int = 20
    rounds: int = 200
    seeds: int = 3
    evaluate_every: int = 5
    notes: tuple[str, ...] = ()

    @property
    def world(self) -> DeviceWorld:
        """Phones that do as much work as is trained."""
        world = DeviceWorld(
            num_clients=self.num_clients, cohort_size=self.cohort_size, batch_size=self.batch_size
        )
        return world if self.steps is None else replace(world, local_steps=self.steps)

    def policies(self) -> dict[str, Policy[Any]]:
        """FedSUV and the policies that the paper compares it with; FedAvg chooses at random."""
        return {FEDSUV: FedSUV(), FEDAVG: Random(), "safa": SAFA(), "oort": Oort(), "refl": REFL()}

    def experiment(self, server: Aggregation) -> Experiment:
        """All policies, with this server."""
        return Experiment(
            federation=PUBLISHED_RULES,
            policies=self.policies(),
            world=self.world,
            rounds=self.rounds,
            seeds=seeds(self.seeds),
            regret=False,
            training=Training(
                data=self.data,
                partition=self.partition,
                model=self.model,
                local=LocalSGD(
                    learning_rate=self.learning_rate,
                    batch_size=self.batch_size,
                    steps=self.steps,
                    measure_gain=True,  # FedSUV Eq. 3
                ),
                server=server,
                evaluate_every=self.evaluate_every,
            ),
            # The last opinion tells when each client left.
            watch=Watch(every=max(self.rounds - 1, 1), clients=self.num_clients),
        )

    def quick(self) -> "DeviceTask":
        """A small one of the same kind that needs no download: everything becomes digits."""
        return replace(
            self,
            data=Digits(train_limit=500),
            partition=DirichletLabels(alpha=0.3),
            model=MLP(hidden=(16,)),
            num_clients=40,
            cohort_size=5,
            rounds=8,
            seeds=2,
            evaluate_every=2,
        )

    def describe(self) -> str:
        """The setting of the task, for the page."""
        skew = "a client for each writer"
        if isinstance(self.partition, DirichletLabels):
            skew = f"labels by Dirichlet({self.partition.alpha:g})"
        return (
            f"{self.data.name}, {skew}, {model_text(self.model)}, K = {self.num_clients:,}, "
            f"m = {self.cohort_size}, SGD with {work_text(self.steps)} in batches of "
            f"{self.batch_size} a round, learning rate {self.learning_rate:g}; averaging, and YoGi "
            "with a learning rate of 0.01; phones as in FedScale's published statistics, of whom a "
            f"fifth is there at a time, deadline 100 s; {self.rounds} rounds, {self.seeds} seeds"
        )


_SKEW = DirichletLabels(alpha=0.3)
FASHION = DeviceTask(
    data=FashionMNIST(),
    partition=_SKEW,
    model=MLP(),
    learning_rate=0.05,
    batch_size=20,
    num_clients=500,
    notes=(
        "The paper trains ShuffleNet on CIFAR-100 with 3,500 clients. Fashion-MNIST stands for "
        "CIFAR-100, which cannot be had offline, and an MLP for ShuffleNet.",
    ),
)
WRITERS = DeviceTask(
    data=MNIST(),
    partition=Natural(),
    model=MLP(),
    learning_rate=0.05,
    batch_size=20,
    num_clients=539,
    notes=(
        "The paper trains ResNet-18 on FEMNIST with 3,500 writers and five local epochs. MNIST "
        "with a client for each of its 539 training writers stands for FEMNIST, which cannot be "
        "had offline, and an MLP for ResNet-18.",
        "The paper's own tables do not have FedSUV first on FEMNIST: with averaging it needs 200 "
        "rounds, as FedAvg does, and with YoGi it ends at 73.01 %, REFL at 73.60 %.",
    ),
)
CIFAR = DeviceTask(
    data=CIFAR10(),
    partition=_SKEW,
    model=MLP(),
    learning_rate=0.02,
    batch_size=10,
    num_clients=500,
    notes=(
        "The paper trains ResNet-18 and MobileNet on CIFAR-10 with 3,500 clients, for an epoch at "
        "a learning rate of 0.01. An MLP stands for them; fedsuv-cifar-full is the whole.",
    ),
)
AUDIO = DeviceTask(
    data=AudioMNIST(),
    partition=_SKEW,
    model=MLP(),
    learning_rate=0.04,
    batch_size=16,
    num_clients=240,
    notes=(
        "The paper trains ResNet-34 on Google Speech with 2,618 speakers. AudioMNIST stands for "
        "it, which cannot be had offline, and an MLP for ResNet-34. It has 48 training speakers, "
        "too few for clients: their clips are dealt to 240. The test speakers are others.",
    ),
)
CIFAR_FULL = replace(
    CIFAR,
    model=ResNet18(),
    learning_rate=0.01,
    steps=None,
    num_clients=3500,
    rounds=1000,
    seeds=3,
    evaluate_every=10,
    notes=("With an epoch a round a phone has less to compute than the world lets it: 20 steps.",),
)
