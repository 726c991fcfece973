"""Play a run again up to a decision, to see what its policy saw; the journal stays as it is.

A simulation is played again bit for bit, with a ledger that is thrown away. Every cohort is held
against the journal's, and without rounds every job, so that nothing is told of a run that would not
have been this one.
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
from fedmuster.core.records import BoolArray, FloatArray, IntArray, Selection
from fedmuster.experiments.cell_images import differences
from fedmuster.experiments.journal import JournalReader
from fedmuster.experiments.run import SPEC_NAME, versions
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.sweep import one_thread_for_children
from fedmuster.federation import EdgeRow, RoundRow, Simulation
from fedmuster.worlds.world import WorldRound


class Choice(NamedTuple):
    """One decision of a run without rounds.

    Attributes:
        round: t as the policy counts it.
        clients: int64[n], who was asked, increasing.
        edges: int64[n], for which edge server; None without any.
        budget: [M], what each edge server could spend then; None without any.
        busy_since_seconds: [K], since when each busy client was at work; NaN for the others.
    """

    round: int
    clients: IntArray
    edges: IntArray | None
    budget: FloatArray | None
    busy_since_seconds: FloatArray


class Replayed(NamedTuple):
    """One round as the policy saw it; without rounds, one decision.

    Attributes:
        scores: [K] by name: what the policy thought of everybody; "available", and why somebody
            was not: "busy", "privacy_spent", "out_of_reach", "resting", "silent" (1 or 0);
            "asked_loss", the losses that it asked for.
        network: what happened at the edge servers, if there are any.
        same_model: whether the model that was trained is the journal's, too.
        choice: the decision, None in rounds.
    """

    scores: Mapping[str, FloatArray]
    network: EdgeRow | None
    same_model: bool
    choice: Choice | None = None


def replay(
    folder: Path, round_number: int, *, decision: int | None = None, progress: Callable[[int], None]
) -> Replayed:
    """Play the cell in ``folder`` again, in a process with one thread, as it was played.

    Args:
        folder: of the run.
        round_number: one that its journal holds; without rounds, the aggregation after the
            decision.
        decision: the number of the decision to look at; None in rounds.
        progress: called with the number of each round that was played.
    """
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_tell, args=(folder, round_number, decision, theirs))
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
    folder: Path,
    round_number: int,
    *,
    decision: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
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
        simulation.wanted = round_number if decision is None else decision
        for number in range(1, round_number + 1):
            row = simulation.step()
            _check_same(journal, row, folder, cell)
            if number < round_number:  # the policy has not heard of later ones
                same_model &= _equal(row.learning.train_loss, journal, "train_loss", number)
            progress(number)
        assert simulation.seen is not None
        choice = None if decision is None else simulation.choice
        return Replayed(simulation.seen, row.network, same_model, choice)


def _tell(folder: Path, round_number: int, decision: int | None, listener: Connection) -> None:
    try:
        listener.send(play_again(folder, round_number, decision=decision, progress=listener.send))
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # nobody listens any more
    except (FedmusterError, OSError, MemoryError) as error:
        listener.send(error)


class _Onlooker(Simulation[Any]):
    """A simulation that remembers what the policy saw in one decision; in rounds, each is one."""

    wanted = 0
    """The number of that decision."""
    seen: dict[str, FloatArray] | None = None
    choice: Choice | None = None
    _reachable: BoolArray

    def reachable(self, drawn: WorldRound) -> WorldRound:
        reachable = super().reachable(drawn)
        self._reachable = reachable.available
        return reachable

    def select(
        self, drawn: WorldRound, *, count: int | None = None, cohort_size: int | None = None
    ) -> Selection:
        if not self._decides_next:
            return super().select(drawn, count=count, cohort_size=cohort_size)
        self.seen = self._marks(drawn)
        since = np.full(self.selector.problem.num_clients, np.nan)
        for job in self.agenda.jobs:
            since[job.client] = job.decision.asked_at_seconds
        selection = super().select(drawn, count=count, cohort_size=cohort_size)
        if (silent := self.selector.kept_back) is not None:  # in simulations no client joins
            self.seen["available"] *= ~silent
            self.seen["silent"] = silent.astype(np.float64)
        budget = None if drawn.edges is None else drawn.edges.budget
        self.choice = Choice(selection.round, selection.clients, selection.edges, budget, since)
        return selection

    @property
    def _decides_next(self) -> bool:
        return self.selector.decisions + 1 == self.wanted

    def _marks(self, drawn: WorldRound) -> dict[str, FloatArray]:
        """Who could be chosen, and why others could not."""
        busy = self.selector.tickets.busy.copy()
        busy[self._asking.out.clients] = True
        marks = {"available": drawn.available & ~busy, "busy": busy}
        if self.budget is not None:
            marks["privacy_spent"] = ~self.budget.able
        resting = self._reachable & ~drawn.available & ~busy
        if drawn.edges is not None:
            marks["out_of_reach"] = ~drawn.edges.covered
            resting &= drawn.edges.covered
        if resting.any():
            marks["resting"] = resting
        return {name: mask.astype(np.float64) for name, mask in marks.items()}

    def _ask_loss(self, clients: IntArray, *, batch_size: int | None = None) -> FloatArray:
        losses = super()._ask_loss(clients, batch_size=batch_size)
        if self._decides_next and self.seen is not None:
            asked = np.full(self.selector.problem.num_clients, np.nan)
            asked[clients] = losses
            self.seen["asked_loss"] = asked
        return losses

    def _watch_scores(self) -> None:
        if self.selector.decisions == self.wanted and self.seen is not None:
            self.seen.update(self.selector.scores())


_COMPARED = ("client", "edge", "decision", "asked_at_seconds", "ended_at_seconds", "version")
"""Of jobs: who was asked when, and when each ended."""


def _check_same(journal: JournalReader, row: RoundRow, folder: Path, cell: Experiment) -> None:
    if _same(journal, row):
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
    cohort = journal.cohorts[row.round - 1]
    step = f"round {row.round} chose"
    if journal.jobs is not None:
        step = f"aggregation {row.round} follows other jobs, of clients"
    raise StateError(
        f"{folder} cannot be played again: {step} {_listed(cohort)} in the journal, and "
        f"{_listed(row.clients)} now; {reason}. A run with a [watch] table writes down what its "
        "policy thinks, and needs not be played again"
    )


def _same(journal: JournalReader, row: RoundRow) -> bool:
    """Whether the journal has the same cohort; without rounds, whether it has the same jobs."""
    place = row.round - 1
    if not np.array_equal(journal.cohorts[place], row.clients):
        return False
    if journal.jobs is not None and row.jobs is not None:
        written, played = journal.jobs[place].arrays(), row.jobs.arrays()
        if not all(np.array_equal(written[name], played[name]) for name in _COMPARED):
            return False
    return _equal(row.seconds, journal, "seconds", row.round)


def _equal(value: float, journal: JournalReader, column: str, round_number: int) -> bool:
    written = journal.columns[column][round_number - 1]
    return bool(value == written or (np.isnan(value) and np.isnan(written)))


def _listed(clients: IntArray) -> str:
    return f"{clients[:10].tolist()}{' …' if len(clients) > 10 else ''}"
