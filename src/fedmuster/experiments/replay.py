"""Play a run again up to a round, to see what its policy saw; the journal stays as it is.

A simulation is played again bit for bit, with a ledger that is thrown away. Every cohort is held
against the journal's, so that nothing is told of a run that would not have been this one.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from fedmuster.core.errors import FedmusterError, StateError
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.experiments.cell_images import differences
from fedmuster.experiments.journal import JournalReader
from fedmuster.experiments.run import SPEC_NAME, versions
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.sweep import one_thread_for_children
from fedmuster.federation import EdgeRow, RoundRow, Simulation
from fedmuster.worlds.world import WorldRound


class Replayed(NamedTuple):
    """One round as the policy saw it.

    Attributes:
        scores: [K] by name: what the policy thought of everybody; "available", and why somebody
            was not: "busy", "privacy_spent", "out_of_reach" (1 or 0); "asked_loss" of those whom
            it asked for one.
        network: what happened at the edge servers, if there are any.
        same_model: whether the model that was trained is the journal's, too.
    """

    scores: Mapping[str, FloatArray]
    network: EdgeRow | None
    same_model: bool


def replay(folder: Path, round_number: int, *, progress: Callable[[int], None]) -> Replayed:
    """Play the cell in ``folder`` again, in a process with one thread, as it was played.

    Args:
        folder: of the run.
        round_number: one that its journal holds.
        progress: called with the number of each round that was played.
    """
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_tell, args=(folder, round_number, theirs))
    with one_thread_for_children():
        process.start()
    theirs.close()
    try:
        while True:
            told = ours.recv()
            if isinstance(told, int):
                progress(told)
            elif isinstance(told, Replayed):
                return told
            else:
                raise told
    except EOFError:
        raise StateError(
            f"the process that played {folder} again died (killed, or out of memory); the run "
            "itself is as it was"
        ) from None
    finally:
        ours.close()  # the process stops when it next sends something
        process.join()


def play_again(
    folder: Path, round_number: int, *, progress: Callable[[int], None] = lambda _: None
) -> Replayed:
    """As :func:`replay`, in this process."""
    journal = JournalReader(folder)
    cell = Experiment.load(folder / SPEC_NAME)
    unjudged = replace(cell.with_throwaway_ledger(), regret=False, watch=None)
    same_model = True
    with (
        TemporaryDirectory() as scratch,
        closing(unjudged.simulation(Path(scratch), run="again", kind=_Onlooker)) as simulation,
    ):
        assert isinstance(simulation, _Onlooker)
        for number in range(1, round_number + 1):
            simulation.looks = number == round_number
            row = simulation.step()
            _check_same(journal, row, folder, cell)
            if number < round_number:  # the policy has not heard of later ones
                same_model &= _equal(row.learning.train_loss, journal, "train_loss", number)
            progress(number)
        assert simulation.seen is not None
        return Replayed(simulation.seen, row.network, same_model)


def _tell(folder: Path, round_number: int, listener: Connection) -> None:
    try:
        listener.send(play_again(folder, round_number, progress=listener.send))
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # nobody listens any more
    except (FedmusterError, OSError, MemoryError) as error:
        listener.send(error)


class _Onlooker(Simulation[Any]):
    """A simulation that remembers what the policy saw in the round in which it ``looks``."""

    looks = False
    seen: dict[str, FloatArray] | None = None

    def reachable(self, drawn: WorldRound) -> WorldRound:
        reachable = super().reachable(drawn)
        if self.looks:
            busy = self.selector.tickets.busy.copy()
            late = None if self.trainer is None else self.trainer.late
            if late is not None:
                busy[late.clients[~late.arrived]] = True
            marks = {"available": reachable.available & ~busy, "busy": busy}
            if self.budget is not None:
                marks["privacy_spent"] = ~self.budget.able
            if drawn.edges is not None:
                marks["out_of_reach"] = ~drawn.edges.covered
            self.seen = {name: mask.astype(np.float64) for name, mask in marks.items()}
        return reachable

    def _ask_loss(self, clients: IntArray, *, batch_size: int | None = None) -> FloatArray:
        losses = super()._ask_loss(clients, batch_size=batch_size)
        if self.looks and self.seen is not None:
            asked = np.full(self.selector.problem.num_clients, np.nan)
            asked[clients] = losses
            self.seen["asked_loss"] = asked
        return losses

    def _watch_scores(self) -> None:
        if self.looks and self.seen is not None:
            self.seen.update(self.selector.scores())


def _check_same(journal: JournalReader, row: RoundRow, folder: Path, cell: Experiment) -> None:
    cohort = journal.cohorts[row.round - 1]
    if np.array_equal(cohort, row.clients) and _equal(row.seconds, journal, "seconds", row.round):
        return
    begun, now = journal.versions[0], versions()
    known = {name: now[name] for name in begun if name in now}
    reason = "the versions are the same, so code, data, machine or the spec have changed"
    if differing := differences(begun, known):
        reason = f"it was written with {differing}: explain it with those versions"
    elif cell.privacy is not None and not cell.privacy.simulated:
        reason = "its privacy noise was secure, which cannot be repeated"
    elif cell.privacy is not None and cell.privacy.ledger is not None:
        reason = "its ledger had been debited by other runs, which this one cannot know"
    raise StateError(
        f"{folder} cannot be played again: round {row.round} chose {_listed(cohort)} in the "
        f"journal, and {_listed(row.clients)} now; {reason}. A run with a [watch] table writes "
        "down what its policy thinks, and needs not be played again"
    )


def _equal(value: float, journal: JournalReader, column: str, round_number: int) -> bool:
    written = journal.columns[column][round_number - 1]
    return bool(value == written or (np.isnan(value) and np.isnan(written)))


def _listed(clients: IntArray) -> str:
    return f"{clients[:10].tolist()}{' …' if len(clients) > 10 else ''}"
