"""The experiment behind ``fedmuster demo``."""

from fedmuster.experiments.spec import Experiment
from fedmuster.policies import POLICIES
from fedmuster.worlds import BSFLRates


def demo_experiment() -> Experiment:
    """Every policy at its defaults, 100 clients of which four are fast, three seeds."""
    return Experiment(
        policies={name: kind() for name, kind in POLICIES.items()},
        world=BSFLRates(num_clients=100, cohort_size=10, rest="fast"),
        rounds=3000,
        seeds=(0, 1, 2),
    )
