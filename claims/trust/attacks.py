"""The setting of the claim: a world, a training, the attacks, the defence, the policies."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from fedmuster.core.policy import POLICIES, Policy
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import UNLIMITED, Federation
from fedmuster.training.aggregation import FedAvg
from fedmuster.training.data import Digits
from fedmuster.training.models import MLP
from fedmuster.training.partition import DirichletLabels
from fedmuster.training.training import Training
from fedmuster.worlds import Adversaries, BSFLGroups

SHARE: Final = 0.2
"""Of the clients attack."""
COHORT: Final = 10
CLIP_NORM: Final = 0.5
"""About the norm of an honest update in the first rounds."""
_AWAKE_FROM: Final = 30
_OVERHEAD: Final = 0.2

HONEST: Final = "honest"
ATTACKS: Final[Mapping[str, Adversaries | None]] = {
    HONEST: None,
    "a tenth of the latency": Adversaries(
        share=SHARE, latency_factor=0.1, overhead_seconds=_OVERHEAD
    ),
    "losses × 2": Adversaries(share=SHARE, loss_factor=2.0),
    "losses × 10": Adversaries(share=SHARE, loss_factor=10.0),
    "sleepers": Adversaries(
        share=SHARE,
        loss_factor=10.0,
        latency_factor=0.1,
        overhead_seconds=_OVERHEAD,
        honest_rounds=_AWAKE_FROM,
    ),
    "silent": Adversaries(share=SHARE, silent=True),
    "Sybils": Adversaries(share=SHARE, sybils=True),
    "Sybils, losses × 10": Adversaries(share=SHARE, sybils=True, loss_factor=10.0),
    "sign flip": Adversaries(share=SHARE, update_factor=-1.0),
    "noise": Adversaries(share=SHARE, update_factor=0.0, update_noise=10.0),
    "scaled": Adversaries(share=SHARE, update_factor=10.0),
}
"""By the name on the page."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How much is run.

    Args:
        policies: by name; None for all that fit.
        attacks: by name.
        seconds: of simulated time.
        num_seeds: for each.
        digits: how many images are trained on; None for all.
    """

    policies: tuple[str, ...] | None
    attacks: tuple[str, ...]
    seconds: float
    num_seeds: int
    digits: int | None

    def contestants(self) -> dict[str, Policy[Any]]:
        """The policies, with their defaults."""
        names = fitting() if self.policies is None else self.policies
        return {name: POLICIES[name]() for name in names}

    def experiment(self, attack: str, *, defended: bool, seeds: tuple[int, ...]) -> Experiment:
        """All policies under an attack, each as it was published."""
        return Experiment(
            policies=self.contestants(),
            world=replace(WORLD, adversaries=ATTACKS[attack]),
            rounds=UNLIMITED,
            seconds=self.seconds,
            seeds=seeds,
            regret=False,
            federation=Federation(check_reports=defended),
            training=Training(
                data=Digits(train_limit=self.digits),
                partition=DirichletLabels(alpha=0.3),
                model=MLP(hidden=(32,)),
                server=FedAvg(clip_norm=CLIP_NORM if defended else None),
                evaluate_every=2,
            ),
        )


WORLD: Final = BSFLGroups(num_clients=100, cohort_size=COHORT, deadline_seconds=3.0)

FULL: Final = Plan(policies=None, attacks=tuple(ATTACKS), seconds=60.0, num_seeds=3, digits=None)
QUICK: Final = Plan(
    policies=("random", "oort", "tempo"),
    attacks=(HONEST, "a tenth of the latency", "losses × 10", "sign flip"),
    seconds=8.0,
    num_seeds=1,
    digits=500,
)


def fitting() -> tuple[str, ...]:
    """The policies that choose a cohort of a given size without knowing the truth."""
    kinds = ((name, kind()) for name, kind in POLICIES.items())
    return tuple(
        name
        for name, policy in kinds
        if policy.cohort_rule == "exact" and not policy.oracle and name not in _LEFT_OUT
    )


_LEFT_OUT: Final = ("exploring", "lifted", "fedcor")
"""Those that wrap another policy, and one that needs a minute for what others need a second for."""
