"""Small runs without rounds, and some in rounds beside them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedmuster.experiments.run import execute, prepare
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import JobRows

SLOTS = 5
WORLD = {
    "name": "bsfl-groups",
    "num_clients": 14,
    "cohort_size": SLOTS,
    "deadline_seconds": 0.8,
    "dropout": 0.1,
    "availability": {"name": "bernoulli", "probability": 0.8},
}
TRAINING = {
    "data": {"name": "digits", "train_limit": 140},
    "model": "logistic",
    "evaluate_every": 1,
}
BUFFERED = {"concurrency": SLOTS, "buffer": 2}


def cell(label: str, *, seed: int = 0, rounds: int = 30, **more: Any) -> Experiment:
    """One run; ``more`` are tables of its spec.

    A label that ends in ``-rounds`` works in rounds, unless ``more`` has a federation.
    """
    policy: dict[str, Any] = {"name": label.partition("-")[0], "label": label}
    if label.endswith("-rounds") and "federation" not in more:
        policy["federation"] = "rounds"
    table = {"rounds": rounds, "seeds": [seed], "world": WORLD, "policy": [policy]}
    return Experiment.from_table({**table, "federation": BUFFERED, **more})


def play(base: Path, label: str, *, seed: int = 0, **more: Any) -> Path:
    """The folder of a run that was played, see :func:`cell`."""
    folder = base / label / f"seed-{seed}"
    prepare(folder, cell(label, seed=seed, **more))
    execute(folder)
    return folder


class Job(NamedTuple):
    """A job as a test writes it down; the version is that of its aggregation less its age."""

    client: int
    asked: float
    ended: float
    answered: bool = True
    used: bool = True
    age: int = 0
    decision: int = 1


def job_rows(rows: Sequence[Sequence[Job]]) -> list[JobRows]:
    """The jobs that ended before each aggregation, as a journal keeps them."""
    return [
        JobRows(
            client=np.array([job.client for job in row], dtype=np.int64),
            edge=np.zeros(len(row), dtype=np.int64),
            decision=np.array([job.decision for job in row], dtype=np.int64),
            asked_at_seconds=np.array([job.asked for job in row]),
            ended_at_seconds=np.array([job.ended for job in row]),
            answered=np.array([job.answered for job in row], dtype=np.bool_),
            used=np.array([job.used for job in row], dtype=np.bool_),
            version=np.array([place - job.age for job in row], dtype=np.int64),
            age=np.array([job.age for job in row], dtype=np.int64),
        )
        for place, row in enumerate(rows)
    ]
