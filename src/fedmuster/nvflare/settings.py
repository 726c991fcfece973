"""The settings of a Muster workflow, and what is refused before the first round."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmuster.core.arrays import ceil_of
from fedmuster.core.config import from_table, parse_settings, require
from fedmuster.core.errors import ConfigError
from fedmuster.core.policy import Policy, as_policy
from fedmuster.core.records import is_integer
from fedmuster.experiments.spec import Experiment
from fedmuster.federation.settings import Federation as Roundless
from fedmuster.privacy.budget import Privacy
from fedmuster.worlds.real_federation import RealFederation


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Settings:
    """The arguments of :class:`~fedmuster.nvflare.MusterController`, where they are described."""

    policy: Policy[Any]
    cohort_size: int
    folder: Path
    seed: int
    deadline_seconds: float | None
    over_selection: float
    wait_seconds: float
    pull_seconds: float
    privacy: Privacy | None = None
    roundless: Roundless | None = None

    def __post_init__(self) -> None:
        for name in ("cohort_size", "seed"):
            least = 0 if name == "seed" else 1
            fits = is_integer(getattr(self, name), least=least)
            require(fits, self, name, f"an integer >= {least}")
        deadline = self.deadline_seconds
        fits = deadline is None or (_is_number(deadline) and 0 < deadline < math.inf)
        require(fits, self, "deadline_seconds", "a number > 0, or None")
        fits = _is_number(self.over_selection) and 1 <= self.over_selection < math.inf
        require(fits, self, "over_selection", "a number >= 1, for example 1.3")
        for name in ("wait_seconds", "pull_seconds"):
            value = getattr(self, name)
            require(_is_number(value) and 0 <= value < math.inf, self, name, "a number >= 0")
        if self.privacy is not None and self.roundless is not None:
            raise ConfigError("Muster: privacy is kept in rounds only: take MusterFedAvg")
        if self.roundless is not None and self.policy.rounds_only is not None:
            raise ConfigError(
                f"policy {self.policy.name} works in rounds only: {self.policy.rounds_only}; take "
                "a workflow with rounds, or another policy"
            )
        if self.policy.oracle:
            raise ConfigError(
                f"policy {self.policy.name} is an oracle and needs the truth, which only a "
                "simulated world knows: choose another policy"
            )

    @property
    def num_to_ask(self) -> int:
        """How many clients are asked, so that enough of them answer."""
        return ceil_of(self.cohort_size * self.over_selection)

    def experiment(self, *, rounds: int) -> Experiment:
        """The run as its spec describes it."""
        return Experiment(
            policies={self.policy.name: self.policy},
            world=RealFederation(
                cohort_size=self.cohort_size,
                over_selection=self.over_selection,
                deadline_seconds=self.deadline_seconds,
            ),
            rounds=rounds,
            seeds=(self.seed,),
            privacy=self.privacy,
            federation=self.roundless,
            regret=False,
        )


def named_policy(policy: object) -> str:
    """A policy's name and settings, as FLARE's job configurations can hold them.

    FLARE writes a workflow's arguments as JSON, in which an object would lose its settings.
    """
    if not isinstance(policy, str):
        raise ConfigError(
            f"Muster: policy is a {type(policy).__name__}, expected its name and settings as text, "
            'because FLARE writes them into the job: for example "bsfl:alpha=3"'
        )
    as_policy(policy, owner="Muster")  # complain where the job is made
    return policy


def promised(privacy: str | None) -> Privacy | None:
    """What clients are promised, from text such as ``epsilon=4,mechanism={name="gaussian"}``.

    Its noise is secure: seeded noise protects nobody, and is for simulations.
    """
    if privacy is None:
        return None
    if not isinstance(privacy, str):
        raise ConfigError(
            f"Muster: privacy is a {type(privacy).__name__}, expected text, because FLARE writes "
            """it into the job: for example 'epsilon=4,mechanism={name="gaussian", clip=1.0}'"""
        )
    promise = from_table(Privacy, {"noise": "secure", **parse_settings(privacy)})
    if promise.simulated:
        raise ConfigError("Muster: noise = 'seeded' protects nobody: leave noise out of privacy")
    return promise


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
