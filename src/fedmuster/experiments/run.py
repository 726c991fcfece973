"""Run one cell (a policy, a seed) in a folder, or go on where it was interrupted."""

import os
import platform
import time
from pathlib import Path

import numpy as np

import fedmuster
from fedmuster.core.files import write_file
from fedmuster.experiments.journal import Journal
from fedmuster.experiments.spec import Experiment
from fedmuster.simulation import RoundRow, Simulation

SPEC_NAME = "spec.toml"

_COMMIT_SECONDS = 0.25


def prepare(folder: Path, cell: Experiment) -> None:
    """Write the spec of a cell into its folder; from then on :func:`execute` needs nothing else."""
    write_file(folder / SPEC_NAME, cell.to_toml().encode())


def execute(folder: Path, parent: int | None = None) -> None:
    """Play all rounds of the cell in ``folder`` that its journal does not hold yet.

    A worker gives its ``parent``'s process id, and stops when that is gone: nobody waits for it,
    and ``resume`` could not have the journal.
    """
    cell = Experiment.load(folder / SPEC_NAME)
    ((_, policy),) = cell.policies.items()
    (seed,) = cell.seeds
    with Journal(folder) as journal:
        simulation = Simulation(policy, cell.world, seed=seed, genie=cell.genie)
        checkpoint = journal.checkpoint()
        if checkpoint is not None:
            if checkpoint.round >= cell.rounds:
                return
            simulation.load(checkpoint, source=str(journal.path))
        world = simulation.world
        journal.begin(
            versions(),
            {
                "group": world.groups,
                "typical_latency_seconds": world.typical_latency_seconds(),
                "cohort_size": np.array(world.problem.cohort_size),
            },
        )
        rows: list[RoundRow] = []
        pause, committed = _COMMIT_SECONDS, time.monotonic()
        while simulation.selector.round <= cell.rounds:
            rows.append(simulation.step())
            now = time.monotonic()
            if now - committed > pause or rows[-1].round == cell.rounds:
                journal.append(rows, simulation.checkpoint())
                rows.clear()
                if parent is not None and os.getppid() != parent:
                    return
                committed = time.monotonic()
                # A checkpoint of a million clients is slow: at most a tenth of the time for it.
                pause = max(_COMMIT_SECONDS, 10 * (committed - now))


def versions() -> dict[str, str]:
    """What decides the bits of a result."""
    return {
        "fedmuster": fedmuster.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
