"""Runs written by hand, for the tests of findings."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedmuster.core.records import FloatArray
from fedmuster.report.runs import Run


def run_by_hand(
    label: str,
    seed: int,
    cohorts: Sequence[Sequence[int]],
    columns: Mapping[str, Sequence[float] | FloatArray],
    *,
    clients: int = 2,
    **known: Any,
) -> Run:
    """A run of equal clients.

    Args:
        label: of the policy.
        seed: of the run.
        cohorts: the clients of each round.
        columns: [rounds] by name.
        clients: K.
        known: further fields of the run, in place of what follows from the above.
    """
    fields: dict[str, Any] = {
        "cohort_sizes": np.array([len(cohort) for cohort in cohorts]),
        "chosen": np.concatenate([np.array(cohort, dtype=np.int64) for cohort in cohorts]),
        "cohort_size": len(cohorts[0]),
        "groups": np.zeros(clients, dtype=np.int64),
        "typical_latency_seconds": np.ones(clients),
        "rejections": np.zeros(clients, dtype=np.int64),
        "columns": {name: np.asarray(values) for name, values in columns.items()},
    }
    return Run(label=label, seed=seed, **fields | known)
