"""The record of a job in its run folder: all that a server needs to go on after a crash.

``spec.toml`` says what runs and ``journal.sqlite`` what happened in each round, as of a simulation.
The journal's checkpoint says where the run goes on, and which of two files holds the model. A
commit writes the other file, and then one transaction makes the round count, so that a folder is
consistent after ``kill -9``.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from fedmuster.core import state as states
from fedmuster.core.errors import StateError
from fedmuster.core.files import sync_folder
from fedmuster.experiments.agreed_spec import agree
from fedmuster.experiments.journal import Journal, standing
from fedmuster.experiments.run import SPEC_NAME, versions
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Checkpoint, RoundRow
from fedmuster.nvflare.clients import Clients
from fedmuster.nvflare.plain_values import pack, unpack

_MODELS: Final = ("muster-model-a.npz", "muster-model-b.npz")
_TRAIN: Final = "train_metrics_clients"
_sync = getattr(os, "fdatasync", os.fsync)  # of which not every system has the first


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Saved:
    """The state of a job after a round.

    Args:
        round: how many rounds (without rounds, aggregations) are over.
        elapsed_seconds: of all of them, on the server's clock.
        selector: of ``Selector.to_bytes``.
        model: the parameters of the global model by name; None if no round has made any yet.
        workflow: what the workflow remembers from round to round; plain values.
        budget: of ``Budget.to_bytes``; None where no ledger is kept.
        parts: other plain values by name; small.
    """

    round: int
    elapsed_seconds: float
    selector: bytes
    model: Mapping[str, Any] | None
    workflow: Mapping[str, Any]
    budget: bytes | None = None
    parts: Mapping[str, Any] = field(default_factory=dict)


class Record:
    """One job in its folder, for one server at a time. Close it with :meth:`close`.

    Attributes:
        run: its name in ledgers.
        ledger: the file of its ledger, if it keeps one.
        saved: the state when it was opened; None if nothing was committed before.
        ending: why the run is over before its last round, if it is.
    """

    def __init__(self, folder: Path, cell: Experiment, journal: Journal) -> None:
        self.folder = folder
        self._journal = journal
        self.run = journal.run
        self.ledger = cell.ledger(folder)
        self.ending = standing(folder).ending
        self._model_name = _MODELS[1]
        checkpoint = journal.checkpoint()
        agree(folder, cell, done=0 if checkpoint is None else checkpoint.round)
        self.saved = None if checkpoint is None else self._read(checkpoint)
        journal.sync_every_commit()  # these rounds cannot be played again
        journal.begin({**versions(), "nvflare": metadata.version("nvflare")}, {})

    @classmethod
    def open(cls, folder: Path, cell: Experiment) -> Self:
        """Begin the run that ``cell`` (one policy, one seed) describes, or go on with it.

        Refuses a folder in which another run is, or that another process has open. More rounds than
        before are welcome.
        """
        folder.mkdir(parents=True, exist_ok=True)
        journal = Journal(folder)
        try:
            return cls(folder, cell.beside(folder / SPEC_NAME), journal)
        except BaseException:
            journal.close()
            raise

    def close(self) -> None:
        """Let another process write."""
        self._journal.close()

    def commit(
        self,
        rows: list[RoundRow],
        saved: Saved,
        *,
        clients: Clients,
        cohort_size: int,
        metrics: Mapping[str, float] | None = None,
        ending: str | None = None,
    ) -> None:
        """Make rounds count: from now on the run goes on after them, whatever happens.

        Args:
            rows: the rounds.
            saved: where the run stands after them.
            clients: all that are known by now.
            cohort_size: m.
            metrics: the mean metrics of the clients, which are of the model that they received: the
                one before the last round.
            ending: why the run is over before its last round, if it is.
        """
        (name,) = set(_MODELS) - {self._model_name}
        tree, arrays = pack({"model": saved.model, "workflow": dict(saved.workflow)})
        meta = {"run": self.run, "round": saved.round, "tree": tree}
        _overwrite(self.folder / name, states.to_bytes(arrays, meta))
        checkpoint = _checkpoint(saved, name)
        with self._journal.together():
            self._journal.know_clients(_client_table(clients, cohort_size, saved.model))
            self._journal.append(rows, checkpoint, ending=ending)
            if metrics:
                before = saved.round - 1
                self._journal.note(before, _TRAIN, metrics)
                loss, accuracy = metrics.get("loss"), metrics.get("accuracy")
                self._journal.evaluated(before, loss=loss, accuracy=accuracy)
        self._model_name = name

    def _read(self, checkpoint: Checkpoint) -> Saved:
        source = str(self._journal.path)
        if checkpoint.trainer is None:
            raise StateError(f"{source} was not written by a job of FLARE: take another folder")
        blocks, meta = states.from_bytes(checkpoint.trainer, source=source)
        parts = unpack(meta["parts"], blocks)
        path = self.folder / meta["model"]
        if not path.is_file():
            raise StateError(
                f"{path} is gone, without which the run cannot go on: restore it from a copy, or "
                "begin anew in another folder"
            )
        arrays, owner = states.from_bytes(path.read_bytes(), source=str(path))
        found = owner.get("run"), owner.get("round")
        if found != (self.run, checkpoint.round):
            raise StateError(
                f"{path} holds the model after round {found[1]} of run {found[0]}, expected round "
                f"{checkpoint.round} of run {self.run}: restore the right one from a copy, or "
                "begin anew in another folder"
            )
        self._model_name = meta["model"]
        kept = unpack(owner["tree"], arrays)
        return Saved(
            round=checkpoint.round,
            elapsed_seconds=checkpoint.elapsed_seconds,
            selector=checkpoint.selector,
            model=kept["model"],
            workflow=kept["workflow"],
            budget=checkpoint.budget,
            parts=parts,
        )


def _overwrite(path: Path, image: bytes) -> None:
    """Have the image on disk when this returns, in a file that no checkpoint points to.

    In place, because that is faster than to replace a file; a crash meanwhile spoils only what no
    checkpoint needs.
    """
    is_known = path.exists()
    with path.open("r+b" if is_known else "wb") as file:
        file.write(image)
        file.truncate()
        file.flush()
        _sync(file.fileno())
    if not is_known:
        sync_folder(path.parent)


def _checkpoint(saved: Saved, model_name: str) -> Checkpoint:
    tree, arrays = pack(dict(saved.parts))
    return Checkpoint(
        round=saved.round,
        elapsed_seconds=saved.elapsed_seconds,
        selector=saved.selector,
        judge=None,
        trainer=states.to_bytes(arrays, {"parts": tree, "model": model_name}),
        budget=saved.budget,
    )


def _client_table(
    clients: Clients, cohort_size: int, model: Mapping[str, Any] | None
) -> dict[str, np.ndarray[Any, Any]]:
    """The journal's table of K clients, as reports want it."""
    seconds = clients.mean_seconds
    seen = np.isfinite(seconds)
    usual = float(np.median(seconds[seen])) if seen.any() else 1.0
    table: dict[str, np.ndarray[Any, Any]] = {
        "identity": np.array(clients.names, dtype=np.str_),
        "group": np.zeros(len(clients), dtype=np.int64),
        "typical_latency_seconds": np.where(seen, seconds, usual),
        "answered": seen,
        "cohort_size": np.array(cohort_size),
        "num_edges": np.array(0),
        "watched": np.arange(len(clients)),
    }
    if model is not None:
        sizes = [int(np.prod(np.shape(value))) for value in model.values()]
        table["num_parameters"] = np.array(sum(sizes))
    return table
