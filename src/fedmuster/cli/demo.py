"""The experiment behind ``fedmuster demo``."""

from fedmuster.experiments.spec import Experiment
from fedmuster.policies import (
    BSFL,
    CSUCB,
    PAUSE,
    RBCSF,
    FastestInExpectation,
    PowerOfChoice,
    Random,
)
from fedmuster.training.data import Digits
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import MLP
from fedmuster.training.partition import Shards
from fedmuster.training.training import Training
from fedmuster.worlds import BSFLRates

LESSON = (
    "It shows that it pays not to wait for slow clients in every round (on average over the seeds, "
    "bsfl needs less than half of random's time for the same accuracy), and that always taking the "
    "fastest is a gamble: in some seeds their data is not enough, and the model never gets there."
)


def demo_experiment() -> Experiment:
    """Handwritten digits on 100 clients with two labels each, of which 15 are slow; five seeds."""
    return Experiment(
        policies={
            "bsfl": BSFL(),
            "pause": PAUSE(),
            "cs-ucb": CSUCB(),
            "rbcs-f": RBCSF(),
            "power-of-choice": PowerOfChoice(),
            "fastest": FastestInExpectation(),
            "random": Random(),
        },
        world=BSFLRates(num_clients=100, cohort_size=10, rest="fast"),
        rounds=10_000,
        seconds=60.0,
        seeds=(0, 1, 2, 3, 4),
        regret=False,
        training=Training(
            data=Digits(),
            partition=Shards(labels_per_client=2),
            model=MLP(hidden=(32,)),
            local=LocalSGD(learning_rate=0.05, batch_size=10, epochs=1),
            evaluate_every=2,
        ),
    )
