"""Journals written by hand, so that a report on them can be checked by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from fedmuster.core.policy import Policy
from fedmuster.experiments.journal import Journal
from fedmuster.experiments.run import prepare
from fedmuster.experiments.spec import Experiment
from fedmuster.objectives.reward import CohortReward
from fedmuster.policies import POLICIES, Random
from fedmuster.simulation import Checkpoint, RoundRow
from fedmuster.worlds import BSFLRates
from fedmuster.worlds.world import World

WORLD = BSFLRates(num_clients=4, cohort_size=2)


class WriteRun(Protocol):
    def __call__(
        self,
        label: str = ...,
        seed: int = ...,
        *,
        seconds: Sequence[float] = ...,
        regret: Sequence[float] | None = ...,
        cohorts: Sequence[Sequence[int]] | None = ...,
        num_completed: int = ...,
        planned: int | None = ...,
        folder: Path | None = ...,
        world: World = ...,
        reward: CohortReward = ...,
        policy: Policy[Any] | None = ...,
    ) -> Path: ...


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    """Writes one run; clients 0 and 1 are the fast group, client 3 is the slowest."""

    def write(
        label: str = "bsfl",
        seed: int = 0,
        *,
        seconds: Sequence[float] = (1.0, 2.0, 3.0),
        regret: Sequence[float] | None = None,
        cohorts: Sequence[Sequence[int]] | None = None,
        num_completed: int = 2,
        planned: int | None = None,
        folder: Path | None = None,
        world: World = WORLD,
        reward: CohortReward = CohortReward(),
        policy: Policy[Any] | None = None,
    ) -> Path:
        where = tmp_path / label / f"seed-{seed}" if folder is None else folder
        kind = POLICIES.get(label, Random)
        prepare(
            where,
            Experiment(
                policies={label: kind() if policy is None else policy},
                world=world,
                rounds=planned or len(seconds) or 1,
                seeds=(seed,),
                reward=reward,
                regret=regret is not None,
            ),
        )
        chosen = [[0, 1]] * len(seconds) if cohorts is None else cohorts
        rows = [
            RoundRow(
                round=1 + index,
                seconds=duration,
                reward=np.nan if regret is None else 10.0 - regret[index],
                regret=np.nan if regret is None else regret[index],
                num_available=4,
                num_completed=num_completed,
                num_refused=0,
                clients=np.array(chosen[index], dtype=np.int64),
            )
            for index, duration in enumerate(seconds)
        ]
        with Journal(where) as journal:
            journal.begin(
                {},
                {
                    "group": np.array([0, 0, 1, 1]),
                    "typical_latency_seconds": np.array([0.1, 0.3, 0.8, 1.0]),
                    "cohort_size": np.array(2),
                },
            )
            journal.append(rows, Checkpoint(round=len(rows), selector=b"", judge=None))
        return where

    return write
