"""Whether the files of a run are whole: spec, journal, traces, ledger and model."""

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from fedmuster.core import state as states
from fedmuster.core.errors import ConfigError, FedmusterError, StateError
from fedmuster.core.stored_archives import read_archive
from fedmuster.experiments import sealing
from fedmuster.experiments.database import reading
from fedmuster.experiments.journal import FILE_NAME, UNSEALED, JournalReader, check_format
from fedmuster.experiments.origin import (
    Origin,
    require_same_inputs,
    require_same_spec,
    trace_digests,
)
from fedmuster.experiments.run import SPEC_NAME
from fedmuster.experiments.spec import LEDGER_NAME, Experiment
from fedmuster.experiments.sweep import EXPERIMENT_NAME
from fedmuster.privacy.ledger import verify as verify_ledger
from fedmuster.worlds.real_federation import RealFederation


@dataclass(kw_only=True, slots=True)
class RunVerification:
    """What was found in a run folder: ``faults``, and in ``remarks`` what could not be checked."""

    folder: Path
    rounds: int = 0
    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def verify_runs(folder: Path) -> list[RunVerification]:
    """Check a run, or every run of an experiment. Nothing is changed."""
    if (folder / SPEC_NAME).exists() or (folder / FILE_NAME).exists():
        return [_verify(folder)]
    runs = sorted({path.parent for name in (SPEC_NAME, FILE_NAME) for path in _below(folder, name)})
    if not runs:
        raise StateError(f"{folder} is no run: it holds no {SPEC_NAME} and no {FILE_NAME}")
    found = [_verify(run) for run in runs]
    path = folder / EXPERIMENT_NAME
    if path.exists():
        whole = RunVerification(folder=folder)
        _load(path, whole)
        found.insert(0, whole)
    return found


def _below(folder: Path, name: str) -> list[Path]:
    return list(folder.glob(f"*/*/{name}"))


def _load(path: Path, result: RunVerification) -> Experiment | None:
    try:
        return Experiment.load(path, reading=True)
    except ConfigError as error:
        result.faults.append(str(error))
        return None


def _verify(folder: Path) -> RunVerification:
    result = RunVerification(folder=folder)
    cell = _load(folder / SPEC_NAME, result)
    journal = _verify_journal(folder, result)
    if cell is None:
        return result
    if journal is not None and journal.origin is not None:
        _verify_origin(journal.origin, cell, result)
    ledger = cell.ledger(folder)
    if ledger.exists():
        checked = verify_ledger(ledger)
        result.faults += [f"{ledger}: {fault}" for fault in checked.faults]
        result.remarks += checked.remarks
    elif journal is not None and journal.holds_budget:
        result.faults.append(f"{ledger} is gone, which the run debited from ({LEDGER_NAME})")
    if isinstance(cell.world, RealFederation):
        _verify_model(folder, result)
    return result


def _verify_journal(folder: Path, result: RunVerification) -> JournalReader | None:
    path = folder / FILE_NAME
    if not path.exists():
        result.remarks.append("it has not begun: there is no journal")
        return None
    try:
        with reading(path) as database:
            for (line,) in database.execute("PRAGMA integrity_check"):
                if line != "ok":
                    result.faults.append(f"{path}: SQLite's integrity check: {line}")
            version = check_format(database, path)
            if version == 0:
                result.remarks.append("it has not begun: its journal is empty")
                return None
            if version == UNSEALED:
                result.remarks.append(
                    "its journal is of a version that kept no digests: changes cannot be seen"
                )
            else:
                result.faults += [f"{path}: {fault}" for fault in sealing.faults(database)]
                result.remarks += _unlinked(database)
        if result.faults:
            return None
        journal = JournalReader(folder)
    except FedmusterError as error:
        result.faults.append(str(error))
        return None
    result.rounds = len(journal)
    return journal


def _unlinked(database: sqlite3.Connection) -> list[str]:
    row = database.execute("SELECT round FROM unlinked").fetchone()
    if row is None:
        return []
    return [f"rounds 1 … {row[0]} were written before journals had digests, which were added later"]


def _verify_origin(origin: Origin, cell: Experiment, result: RunVerification) -> None:
    try:
        require_same_spec(origin, cell, result.folder)
    except FedmusterError as error:
        result.faults.append(str(error))
    try:
        now = Origin(origin.spec, {**origin.inputs, **trace_digests(cell)})
        require_same_inputs(origin, now, result.folder)
    except (FedmusterError, OSError) as error:
        result.remarks.append(str(error))


def _verify_model(folder: Path, result: RunVerification) -> None:
    """The model of a federation, in the file that the journal's checkpoint names."""
    with reading(folder / FILE_NAME) as database:
        row = database.execute("SELECT trainer FROM checkpoint").fetchone()
    if row is None:
        return
    try:
        _, meta = states.from_bytes(row[0], source=str(folder / FILE_NAME))
        path = folder / meta["model"]
        read_archive(path.read_bytes(), source=str(path))
    except (FedmusterError, OSError) as error:
        result.faults.append(str(error))
