"""What COCS trains in section VI: logistic regression on MNIST, and CIFAR-10 made smaller."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from fedmuster.bandits.utility import EdgeUtility
from fedmuster.claims.claim import RunCells, play
from fedmuster.claims.cocs_network import described, five
from fedmuster.claims.cocs_nonconvex import greedy
from fedmuster.claims.seeds import seeds
from fedmuster.core.policy import Policy
from fedmuster.experiments.spec import Experiment
from fedmuster.report.runs import Comparison
from fedmuster.training.aggregation import FedAvg
from fedmuster.training.data import CIFAR10, MNIST, Data, Digits
from fedmuster.training.dealing import Shards
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import MLP, Logistic
from fedmuster.training.networks import COCSCNN
from fedmuster.training.training import Model, Training
from fedmuster.worlds import EdgeNetwork


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One column of Table I, with data.

    Args:
        data: of which each client has two labels.
        model: which model.
        learning_rate: of the clients.
        epochs: E.
        world: the network.
        utility: of a round's participants; with (19) Oracle and COCS solve P3 by FLGreedy.
        rounds: how many edge aggregations.
        seeds: how many.
        batch_size: of a local step; 0 for all samples, so that E epochs are the E steps of Eq. 2.
        evaluate_every: rounds.
    """

    data: Data
    model: Model
    learning_rate: float
    epochs: int
    world: EdgeNetwork
    utility: EdgeUtility
    rounds: int
    seeds: int
    batch_size: int = 0
    evaluate_every: int = 1

    def policies(self) -> dict[str, Policy[Any]]:
        """The five of section VI."""
        return five() if self.utility.utility == "linear" else five(greedy())

    def play(
        self,
        folder: Path,
        run: RunCells,
        *,
        policies: Mapping[str, Policy[Any]] | None = None,
        **network: Any,
    ) -> Comparison:
        """Run these policies, or all five, in a network of which this and that is different."""
        return play(
            Experiment(
                policies=self.policies() if policies is None else policies,
                world=replace(self.world, **network),
                reward=self.utility,
                rounds=self.rounds,
                seeds=seeds(self.seeds),
                regret=False,
                training=Training(
                    data=self.data,
                    partition=Shards(labels_per_client=2),
                    model=self.model,
                    local=LocalSGD(
                        learning_rate=self.learning_rate,
                        batch_size=self.batch_size,
                        epochs=self.epochs,
                    ),
                    server=FedAvg(weights="uniform"),  # Eq. 3
                    evaluate_every=self.evaluate_every,
                    global_every=5,  # T_ES
                ),
            ),
            folder,
            run,
        )

    def quick(self) -> "Task":
        """A small one of the same kind that needs no download: images become digits."""
        small = Logistic() if isinstance(self.model, Logistic) else MLP(hidden=(16,))
        return replace(
            self,
            data=Digits(),
            model=small,
            learning_rate=0.1,
            rounds=20,
            seeds=2,
            evaluate_every=1,
        )

    def describe(self) -> str:
        """In words."""
        model = self.model.name
        if isinstance(self.model, MLP):
            model += f" (hidden: {', '.join(map(str, self.model.hidden))})"
        size = f"batches of {self.batch_size}" if self.batch_size else "one batch each"
        return (
            f"{self.data.name}, two labels a client, {model}, {described(self.world)}, "
            f"{self.epochs} epochs in {size}, learning rate {self.learning_rate:.3g}, global "
            f"aggregation every 5 rounds; {self.rounds:,} edge aggregation rounds, {self.seeds} "
            "seeds"
        )


EQUAL_PRICES: Final = (1.25, 1.25)
"""For all clients what Table I's cost on average, per MHz: then nobody is bought first for it."""
PIXEL_SD: Final = 0.308
"""Of MNIST's pixels in [0, 1], by which inputs are divided here."""

STANDARDISED: Final = Task(
    data=MNIST(),
    model=Logistic(),
    learning_rate=0.005,
    epochs=2,
    world=EdgeNetwork(at_least=0),
    utility=EdgeUtility(),
    rounds=200,
    seeds=8,
)
LOGISTIC: Final = replace(STANDARDISED, learning_rate=STANDARDISED.learning_rate * PIXEL_SD**2)
"""As :data:`STANDARDISED`, with steps about as long as if pixels were left in [0, 1]."""
CIFAR: Final = Task(
    data=CIFAR10(train_limit=20_000, test_limit=5_000),
    model=MLP(),
    learning_rate=0.1,
    epochs=5,
    world=EdgeNetwork.cifar(at_least=0),
    utility=EdgeUtility(utility="square-root"),
    rounds=200,
    seeds=3,
    evaluate_every=5,
)
CIFAR_FULL: Final = replace(
    CIFAR, data=CIFAR10(), model=COCSCNN(), batch_size=20, rounds=1_880, seeds=5
)
