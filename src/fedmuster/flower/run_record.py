"""The record of a federation in its run folder: all that a ServerApp needs to go on after a crash.

``spec.toml`` says what runs and ``journal.sqlite`` what happened in each round, as of a simulation.
The journal's checkpoint says where the run goes on, and which of two files holds the model. A
commit writes the model into the other file, and then one transaction makes the round count, so that
a folder is consistent after ``kill -9``.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, cast

import numpy as np
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Result
from numpy.typing import NDArray

from fedmuster.core import state as states
from fedmuster.core.errors import InUseError
from fedmuster.core.files import make_folder
from fedmuster.experiments.agreed_spec import agree
from fedmuster.experiments.journal import Journal, standing
from fedmuster.experiments.origin import Origin
from fedmuster.experiments.run import SPEC_NAME, versions
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Checkpoint, RoundRow
from fedmuster.flower import plain_files
from fedmuster.flower.plain_files import Packed, pack, unpack
from fedmuster.flower.strategy_loop import say

Evaluation = Literal["evaluate_metrics_clientapp", "evaluate_metrics_serverapp"]
"""Who measured, as Flower's ``Result`` calls it."""
_TRAIN: Final = "train_metrics_clientapp"
_LOOK_SECONDS: Final = 0.5
_MODELS: Final = ("muster-model-a.npz", "muster-model-b.npz")
_BY_SERVER: Final = "evaluate_metrics_serverapp"
_STAGES: Final = (_TRAIN, "evaluate_metrics_clientapp", _BY_SERVER)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Saved:
    """The state of a federation after a round.

    Args:
        round: how many rounds are over.
        elapsed_seconds: of all rounds, on the server's clock.
        selector: of ``Selector.to_bytes``.
        model: the global one.
        strategy: what the user's strategy remembers, of ``StrategyMemory.capture``.
        strategy_since: what has changed of it since, of ``StrategyMemory.changes``.
        budget: of ``Budget.to_bytes``; None where no ledger is kept.
        parts: other plain values (``plain_files.py``) by name; small, for each round writes them.
    """

    round: int
    elapsed_seconds: float
    selector: bytes
    model: ArrayRecord
    strategy: bytes
    strategy_since: bytes | None = None
    budget: bytes | None = None
    parts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def strategy_images(self) -> list[bytes]:
        """All recorded images of the strategy's memory, the latest last."""
        return [image for image in (self.strategy, self.strategy_since) if image is not None]


class Record:
    """One federation in its folder, for one ServerApp at a time. Use :meth:`open` in a ``with``.

    Attributes:
        cell: what runs; its ledger, if it names one, with its whole path.
        run: its name in ledgers.
        saved: the state when it was opened; None if nothing was committed before.
        ending: why the run is over before its last round, if it is.
    """

    def __init__(self, folder: Path, cell: Experiment, journal: Journal) -> None:
        self.folder = folder
        self._journal = journal
        self.run = journal.run
        self.ending = standing(folder).ending
        self._model_name = _MODELS[1]
        checkpoint = journal.checkpoint()
        self.cell = agree(folder, cell, done=0 if checkpoint is None else checkpoint.round)
        self._kept_afterwards = False
        self.saved = self.latest()
        journal.sync_every_commit()  # these rounds cannot be played again
        here = {**versions(), "flwr": metadata.version("flwr")}
        journal.begin(here, {}, Origin(self.cell.to_toml(), {}))

    @classmethod
    def open(cls, folder: Path, cell: Experiment, *, wait_seconds: float = 0.0) -> Self:
        """Begin the run that ``cell`` (one policy, one seed) describes, or go on with it.

        Refuses a folder in which another federation ran, or that another process has open and does
        not close within ``wait_seconds``: a ServerApp that was stopped, or whose SuperLink died,
        may take half a minute to notice. More rounds than before are welcome.
        """
        make_folder(folder)
        journal = _journal(folder, wait_seconds)
        try:
            return cls(folder, cell.beside(Path.cwd() / SPEC_NAME), journal)
        except BaseException:
            journal.__exit__(None, None, None)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._journal.__exit__(kind, error, trace)

    def commit(
        self,
        row: RoundRow | None,
        saved: Saved,
        *,
        clients: Mapping[str, NDArray[Any]],
        metrics: MetricRecord | None = None,
        ending: str | None = None,
    ) -> None:
        """Make a round count: from now on the run goes on after it, whatever happens.

        Args:
            row: the round; None before the first, to put on record what the run begins with.
            saved: where the run stands after it.
            clients: all that are known by now, of :func:`client_table`.
            metrics: what the strategy made of the clients' training metrics.
            ending: why the run is over before its last round, if it is.
        """
        (name,) = set(_MODELS) - {self._model_name}
        kept = plain_files.Kept(saved.model, saved.strategy)
        plain_files.write(self.folder / name, kept, run=self.run, round_number=saved.round)
        checkpoint = _checkpoint(saved, name)
        with self._journal.together():
            self._journal.know_clients(clients)
            self._journal.append([] if row is None else [row], checkpoint, ending=ending)
            if metrics is not None:
                self._journal.note(saved.round, _TRAIN, dict(metrics))
        self._model_name = name
        self._kept_afterwards = False

    def evaluated(
        self,
        round_number: int,
        by: Evaluation,
        metrics: MetricRecord,
        *,
        loss: float | None = None,
        accuracy: float | None = None,
    ) -> None:
        """Add what was measured of the model after a round (0: before the first).

        Where both clients and server evaluate, the last loss and accuracy stay in the journal's
        row; all metrics are kept. It does not wait for the disk: the next commit syncs it, too.
        """
        with self._journal.together(synced=False):
            self._journal.note(round_number, by, dict(metrics))
            self._journal.evaluated(round_number, loss=loss, accuracy=accuracy)

    def remember(self, round_number: int, strategy_since: bytes | None) -> None:
        """Record what a strategy has learned after its round was committed."""
        if strategy_since is None and not self._kept_afterwards:
            return
        with self._journal.together(synced=False):
            self._journal.keep_afterwards(round_number, strategy_since)
        self._kept_afterwards = strategy_since is not None

    def latest(self) -> Saved | None:
        """The newest state; None if nothing was committed."""
        checkpoint = self._journal.checkpoint()
        return None if checkpoint is None else self._read(checkpoint)

    def result(self, model: ArrayRecord, *, after: int = 0, until: int | None = None) -> Result:
        """Flower's result of a run, with the metrics of the rounds ``after`` … ``until``.

        Rounds are counted from ``after``, which the user has had from earlier starts.
        """
        stages = {
            stage: {
                number - after: _metrics(noted)
                for number, noted in self._journal.noted(stage).items()
                if (number > after or (number == after and stage == _BY_SERVER))
                and (until is None or number <= until)
            }
            for stage in _STAGES
        }
        return Result(arrays=model, **stages)

    def _read(self, checkpoint: Checkpoint) -> Saved:
        assert checkpoint.trainer is not None  # _agree has seen that a federation wrote it
        blocks, meta = states.from_bytes(checkpoint.trainer, source=str(self._journal.path))
        self._model_name = meta["model"]
        strategy_since = self._journal.afterwards(checkpoint.round)
        self._kept_afterwards = strategy_since is not None
        path = self.folder / self._model_name
        kept = plain_files.read(path, run=self.run, round_number=checkpoint.round)
        return Saved(
            round=checkpoint.round,
            elapsed_seconds=checkpoint.elapsed_seconds,
            selector=checkpoint.selector,
            model=kept.model,
            strategy=kept.strategy,
            strategy_since=strategy_since,
            budget=checkpoint.budget,
            parts=unpack(Packed(meta["parts"], blocks["parts"].tobytes())),
        )


def _journal(folder: Path, wait_seconds: float) -> Journal:
    """The folder's journal, as soon as no other process has it open."""
    until = time.monotonic() + wait_seconds
    told = False
    while True:
        try:
            return Journal(folder)
        except InUseError as error:
            if time.monotonic() >= until:
                raise InUseError(
                    f"{error}. `flwr list` shows which run that is, perhaps one that died at its "
                    "start and was started again by Flower: wait for its end, or `flwr stop` it"
                ) from None
            if not told:
                told = True
                say(f"{error}: waiting until it ends, {wait_seconds:g} s at most")
            time.sleep(_LOOK_SECONDS)


def _metrics(noted: dict[str, Any]) -> MetricRecord:
    try:
        return MetricRecord(noted)
    except TypeError:
        return cast(MetricRecord, noted)


def client_table(
    *,
    identities: list[str],
    cohort_size: int,
    latency_seconds: NDArray[np.float64],
    groups: NDArray[np.int64] | None = None,
    num_edges: int = 0,
    num_samples: NDArray[np.int64] | None = None,
    num_parameters: int | None = None,
) -> dict[str, NDArray[Any]]:
    """The journal's table of K clients, as reports want it.

    ``latency_seconds`` is the usual time of each client, NaN where it never answered; ``groups`` is
    the edge group of each; ``num_parameters`` counts the numbers of the model.
    """
    seen = np.isfinite(latency_seconds)
    usual = float(np.median(latency_seconds[seen])) if seen.any() else 1.0
    table: dict[str, NDArray[Any]] = {
        "identity": np.array(identities, dtype=np.str_),
        "group": np.zeros(len(identities), dtype=np.int64) if groups is None else groups,
        "typical_latency_seconds": np.where(seen, latency_seconds, usual),
        "answered": seen,
        "cohort_size": np.array(cohort_size),
        "num_edges": np.array(num_edges),
        "watched": np.arange(len(identities)),
    }
    if num_samples is not None:
        table["num_samples"] = num_samples
    if num_parameters is not None:
        table["num_parameters"] = np.array(num_parameters)
    return table


def _checkpoint(saved: Saved, model_name: str) -> Checkpoint:
    tree, block = pack(dict(saved.parts))
    parts = np.frombuffer(block, dtype=np.uint8)
    return Checkpoint(
        round=saved.round,
        elapsed_seconds=saved.elapsed_seconds,
        selector=saved.selector,
        judge=None,
        trainer=states.to_bytes({"parts": parts}, {"parts": tree, "model": model_name}),
        budget=saved.budget,
    )
