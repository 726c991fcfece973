"""The kinds of files that a run reads again: one of each, and what its readers make of it.

``read`` returns all that a reader gets from the file, to be compared bit for bit with what it got
from the whole file; it raises :class:`FedmusterError` where the reader refuses the file.
"""

import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord

from fedmuster import BSFL, Problem, Selector
from fedmuster.core.errors import LedgerError
from fedmuster.core.records import Feedback
from fedmuster.experiments.journal import FILE_NAME, Journal, JournalReader
from fedmuster.experiments.origin import Origin, require_same_spec, settings_of
from fedmuster.experiments.run import SPEC_NAME, execute, prepare
from fedmuster.experiments.spec import LEDGER_NAME, Experiment
from fedmuster.experiments.sweep import EXPERIMENT_NAME, find_cells, lay_out
from fedmuster.flower import plain_files
from fedmuster.policies import Oort
from fedmuster.privacy.ledger import verify as verify_ledger
from fedmuster.privacy.ledger.chain import reading
from fedmuster.privacy.ledger.reading import all_accounts, all_entries
from fedmuster.worlds.availability import read_activity
from fedmuster.worlds.devices import read_devices
from fedmuster.worlds.trace_world import read_trace

Read = Callable[[Path], Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A kind of file.

    Args:
        name: its name in counts.
        make: puts a whole file, and what belongs to it, into an empty folder; returns the file.
        read: see the module.
        may_differ: whether a changed file can be another valid one: people write these files by
            hand. That a run noticed the change is shown by its digest in the run's origin.
    """

    name: str
    make: Callable[[Path], Path]
    read: Read
    may_differ: bool = False


_SPEC: dict[str, Any] = {
    "rounds": 6,
    "world": {"name": "bsfl-rates", "num_clients": 9, "cohort_size": 3},
    "watch": {"every": 2},
    "training": {"model": {"name": "logistic"}, "data": {"name": "digits", "train_limit": 200}},
    "privacy": {"epsilon": 40.0, "noise": "seeded"},
    "policy": [{"name": "bsfl", "alpha": 2.5}],
}


def _played(folder: Path) -> Path:
    prepare(folder, Experiment.from_table(_SPEC))
    execute(folder)
    return folder


def _make_journal(folder: Path) -> Path:
    return _played(folder) / FILE_NAME


def _read_journal(path: Path) -> Any:
    reader = JournalReader(path)
    clients = {name: values.tobytes() for name, values in reader.clients.items()}
    with Journal(path.parent) as journal:  # the one that resumes
        checkpoint = journal.checkpoint()
    told = (reader.run, reader.ending, reader.origin, reader.versions)
    return (reader.digest(), clients, *told, checkpoint)


def _make_ledger(folder: Path) -> Path:
    return _played(folder) / LEDGER_NAME


def _read_ledger(path: Path) -> Any:
    verification = verify_ledger(path)
    if verification.faults:
        raise LedgerError(verification.faults[0])
    with reading(path) as chain:
        return (
            chain.info,
            list(all_entries(chain.database)),
            list(all_accounts(chain.database)),
            verification.head,
        )


def _make_head(folder: Path) -> Path:
    return _played(folder) / f"{LEDGER_NAME}.head"


def _read_head(path: Path) -> Any:
    """The ledger's head and the ledger must agree; where the ledger was is no matter."""
    return _read_ledger(path.with_name(LEDGER_NAME))


def _make_selector(folder: Path) -> Path:
    selector = Selector(BSFL(), Problem(num_clients=20, cohort_size=4), seed=3)
    _play(selector, 5)
    selector.select()  # a round is open
    selector.save(folder / "selector.npz")
    return folder / "selector.npz"


def _read_selector(path: Path) -> Any:
    return Selector.restore(path, BSFL()).to_bytes()


def _make_selector_with_tickets(folder: Path) -> Path:
    problem = Problem(num_clients=20, cohort_size=4, num_samples=np.arange(1, 21))
    selector = Selector(Oort(), problem, seed=3)
    first, _ = selector.select(count=3), selector.select(count=2)
    assert first.tickets is not None
    selector.give_up(first.tickets)
    selector.save(folder / "selector.npz")
    return folder / "selector.npz"


def _read_selector_with_tickets(path: Path) -> Any:
    return Selector.restore(path, Oort()).to_bytes()


def _play(selector: Selector[Any], rounds: int) -> None:
    for _ in range(rounds):
        cohort = selector.select().clients
        seconds = 1.0 + cohort / 10
        selector.observe(Feedback(round=selector.round, clients=cohort, latency_seconds=seconds))


def _make_model(folder: Path) -> Path:
    weights = Array(np.arange(24, dtype=np.float32).reshape(4, 6))
    model = ArrayRecord({"weight": weights, "bias 1": Array(np.ones(3, dtype=np.float64))})
    kept = plain_files.Kept(model, b"what a strategy remembers")
    plain_files.write(folder / "model.npz", kept, run="a", round_number=3)
    return folder / "model.npz"


def _read_model(path: Path) -> Any:
    kept = plain_files.read(path, run="a", round_number=3)
    arrays = [(name, a.dtype, a.shape, a.stype, a.data) for name, a in kept.model.items()]
    return arrays, kept.strategy


def _make_csv(folder: Path) -> Path:
    lines = ["client,round,latency_seconds"]
    lines += [f"{k},{t},{1 + k + t / 8}" for k in range(6) for t in range(1, 7)]
    (folder / "trace.csv").write_text("\n".join(lines))
    return folder / "trace.csv"


def _make_parquet(folder: Path) -> Path:
    import pyarrow
    from pyarrow import parquet

    table = {
        "client": [str(k) for k in range(40)],
        "compute_ms_per_sample": [1.0 + k for k in range(40)],
        "bandwidth_kbit_per_second": [1000.0 + k for k in range(40)],
    }
    parquet.write_table(pyarrow.table(table), folder / "devices.parquet")
    return folder / "devices.parquet"


def _make_pickle(folder: Path) -> Path:
    clients = {
        k: {"active": [10.0 * k, 500.0], "inactive": [10.0 * k + 5, 600.0], "finish_time": 1000.0}
        for k in range(20)
    }
    (folder / "client_behave_trace").write_bytes(pickle.dumps(clients))
    return folder / "client_behave_trace"


def _read_trace(read: Callable[[str], Any]) -> Read:
    def as_bytes(path: Path) -> Any:
        found = read(str(path))
        parts = (getattr(found, name) for name in found.__match_args__ or found.__slots__)
        return [part.tobytes() if isinstance(part, np.ndarray) else part for part in parts]

    return as_bytes


def _make_spec(folder: Path) -> Path:
    return _played(folder) / SPEC_NAME


def _read_spec(path: Path) -> Any:
    cell = Experiment.load(path, reading=True)
    _require_origin(cell, path.parent)
    return settings_of(cell)


def _make_experiment(folder: Path) -> Path:
    (cell,) = lay_out(folder, Experiment.from_table(_SPEC))
    execute(cell)
    return folder / EXPERIMENT_NAME


def _read_experiment(path: Path) -> Any:
    found = []
    for folder, cell in find_cells(path.parent).items():
        _require_origin(cell, folder)
        found.append((str(folder), settings_of(cell)))
    return found


def _require_origin(cell: Experiment, folder: Path) -> None:
    origin = JournalReader(folder).origin
    assert isinstance(origin, Origin)
    require_same_spec(origin, cell, folder)


KINDS = (
    Kind(name="selector", make=_make_selector, read=_read_selector),
    Kind(name="tickets", make=_make_selector_with_tickets, read=_read_selector_with_tickets),
    Kind(name="journal", make=_make_journal, read=_read_journal),
    Kind(name="ledger", make=_make_ledger, read=_read_ledger),
    Kind(name="head", make=_make_head, read=_read_head),
    Kind(name="model", make=_make_model, read=_read_model),
    Kind(name="spec", make=_make_spec, read=_read_spec),
    Kind(name="experiment", make=_make_experiment, read=_read_experiment),
    Kind(name="csv", make=_make_csv, read=_read_trace(read_trace), may_differ=True),
    Kind(name="parquet", make=_make_parquet, read=_read_trace(read_devices), may_differ=True),
    Kind(name="pickle", make=_make_pickle, read=_read_trace(read_activity), may_differ=True),
)


def restore(whole: Path, folder: Path) -> None:
    """Make ``folder`` a copy of ``whole``."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
