"""The privacy that is left is an objective like any other: BSFL plus that term is PAUSE."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.random import Generator

from fedmuster import BSFL, CSUCB, PAUSE, Random
from fedmuster.core.policy import Policy, PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.federation import Simulation
from fedmuster.policies.bottleneck_policy import BanditState, BottleneckBandit
from fedmuster.privacy.budget import Privacy, Protection
from fedmuster.privacy.schedules import Uniform
from fedmuster.worlds import PauseGroups

ROUNDS = 150


@dataclass(frozen=True, kw_only=True)
class BSFLWithPrivacy(PolicyTraits):
    """BSFL's own parts, with a weight on the privacy that is left."""

    name: ClassVar[str] = "bsfl with privacy"

    bsfl: BSFL
    gamma: float

    @property
    def _bandit(self) -> BottleneckBandit:
        parts = self.bsfl.bandit
        return replace(parts, reward=replace(parts.reward, gamma=self.gamma))

    def init(self, problem: Problem) -> BanditState:
        return self.bsfl.init(problem)

    def select(self, state: BanditState, view: RoundView, rng: Generator) -> Selection:
        return self._bandit.select(state, view, rng)

    def observe(self, state: BanditState, selection: Selection, feedback: Feedback) -> None:
        self.bsfl.observe(state, selection, feedback)


def cohorts(policy: Policy[Any], protection: Protection | None = None) -> list[list[int]]:
    simulation = Simulation(policy, PauseGroups(), seed=3, protection=protection)
    chosen = []
    for _ in range(ROUNDS):
        if simulation.finished:
            break
        chosen.append(simulation.step().clients.tolist())
    simulation.close()
    return chosen


def protection(folder: Path, privacy: Privacy, run: str) -> Protection:
    return Protection(privacy=privacy, ledger=folder / f"{run}.sqlite", run=run)


@pytest.mark.parametrize("with_ledger", [False, True])
def test_bsfl_with_privacy_is_pause(tmp_path: Path, with_ledger: bool) -> None:
    both: list[Policy[Any]] = [
        BSFLWithPrivacy(bsfl=BSFL(alpha=4.0, beta=2.0), gamma=5.0),
        PAUSE(alpha=4.0, beta=2.0, gamma=5.0),
    ]
    chosen = [
        cohorts(policy, protection(tmp_path, Privacy(), policy.name) if with_ledger else None)
        for policy in both
    ]
    assert chosen[0] == chosen[1]
    assert chosen[0] != cohorts(BSFL(alpha=4.0, beta=2.0))  # the term does matter


def test_the_ledger_and_the_schedule_tell_pause_the_same(tmp_path: Path) -> None:
    policy = PAUSE(alpha=4.0)
    assert cohorts(policy, protection(tmp_path, Privacy(), "run")) == cohorts(policy)


@pytest.mark.parametrize("policy", [BSFL(), PAUSE(), CSUCB(), Random()], ids=lambda p: p.name)
def test_every_policy_keeps_within_the_ledgers_budget(tmp_path: Path, policy: Policy[Any]) -> None:
    """With 4 participations for each of 30 clients, privacy ends a run of cohorts of 5."""
    limited = Privacy(schedule=Uniform(participations=4))
    chosen = cohorts(policy, protection(tmp_path, limited, "run"))
    times = np.bincount(np.concatenate(chosen), minlength=30)
    assert times.max() == 4
    assert np.count_nonzero(times < 4) < 5
    assert len(chosen) < ROUNDS
