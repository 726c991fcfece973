"""Run one cell (a policy, a seed) in a folder, or go on where it was interrupted."""

import platform
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedmuster
from fedmuster.core.errors import BudgetError
from fedmuster.core.files import write_file
from fedmuster.experiments.journal import Journal, standing
from fedmuster.experiments.origin import origin_of, require_same_inputs, require_same_spec
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import RoundRow, Simulation
from fedmuster.privacy.budget import require_ledger

SPEC_NAME = "spec.toml"

_COMMIT_SECONDS = 0.25


def prepare(folder: Path, cell: Experiment) -> None:
    """Write the spec of a cell into its folder; from then on :func:`execute` needs nothing else."""
    write_file(folder / SPEC_NAME, cell.to_toml().encode())


def execute(folder: Path, *, wanted: Callable[[], bool] = lambda: True) -> None:
    """Play all rounds of the cell in ``folder`` that its journal does not hold yet.

    ``wanted`` is asked after each commit, the first of which is before the first round: a worker
    stops when nobody waits for it any more.
    """
    cell = Experiment.load(folder / SPEC_NAME)
    if standing(folder).ending is not None:
        return
    with Journal(folder) as journal, ExitStack() as stack:
        checkpoint, began = journal.checkpoint(), journal.origin
        if began is not None:
            require_same_spec(began, cell, folder)
        if checkpoint is not None and cell.horizon.reached(
            checkpoint.round, checkpoint.elapsed_seconds
        ):
            return
        if checkpoint is not None and checkpoint.budget is not None:
            require_ledger(cell.ledger(folder))
        simulation = cell.simulation(folder, run=journal.run)
        stack.callback(simulation.close)
        origin = origin_of(cell, simulation)
        if began is not None:
            require_same_inputs(began, origin, folder)
        if checkpoint is not None:
            simulation.load(checkpoint, source=str(journal.path))
            if cell.training is not None and checkpoint.round % cell.training.evaluate_every:
                # Evaluated because the run ended here, before it was given a later end.
                journal.forget_evaluation(checkpoint.round)
        if simulation.exhausted is not None and simulation.version == 0:
            raise BudgetError(f"{simulation.exhausted}: no round can be played. Use another ledger")
        # Before anybody is debited: to go on, a run must know what its ledger held when it began,
        # also after a power cut.
        journal.sync_every_commit(simulation.budget is not None)
        journal.begin(versions(), _about_clients(simulation), origin)
        # The ending, if it goes on: other runs on the same ledger may have left too little for it.
        journal.append([], simulation.checkpoint(), ending=simulation.ending)
        journal.sync_every_commit(not simulation.repeatable)
        rows: list[RoundRow] = []
        pause, committed = _COMMIT_SECONDS, time.monotonic()
        go_on = wanted()
        while go_on and not simulation.finished:
            rows.append(simulation.step())
            now = time.monotonic()
            if now - committed > pause or simulation.finished or not simulation.repeatable:
                journal.append(rows, simulation.checkpoint(), ending=simulation.ending)
                rows.clear()
                go_on = wanted()
                committed = time.monotonic()
                # A checkpoint of a million clients is slow: at most a tenth of the time for it.
                pause = max(_COMMIT_SECONDS, 10 * (committed - now))


def versions() -> dict[str, str]:
    """What decides the bits of a result."""
    found = {
        "fedmuster": fedmuster.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    if "torch" in sys.modules:  # a run that trains networks has loaded it by now
        found["torch"] = metadata.version("torch")
    return found


def _about_clients(simulation: Simulation[Any]) -> dict[str, NDArray[Any]]:
    world, problem, trainer = simulation.world, simulation.selector.problem, simulation.trainer
    watch = simulation.watch
    columns = {
        "group": world.groups,
        "typical_latency_seconds": world.typical_latency_seconds(),
        "cohort_size": np.array(world.problem.cohort_size),
        "num_edges": np.array(world.problem.num_edges),
        "num_samples": problem.num_samples,
        "quality": problem.quality,
        "num_parameters": None if trainer is None else np.array(len(trainer.parameters)),
        "watched": None if watch is None else watch.watched(problem.num_clients),
        **world.columns,
    }
    return {name: values for name, values in columns.items() if values is not None}
