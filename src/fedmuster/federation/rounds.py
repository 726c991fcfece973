"""Rounds: the case in which all slots are filled at once and the server waits for them together.

Four places know of late clients. ``LateUpdates`` (``training/servers``): updates that may enter a
later model. ``LateNews``: what the policy will be told. ``Rounds._unheard``: clients that hold a
slot although no answer that counts will come. ``Selector.unanswered``: invitations of which the
policy does not know the end.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmuster.core.arrays import BoolArray
from fedmuster.core.checking import warn_if_everyone
from fedmuster.core.records import Feedback, RoundView
from fedmuster.core.state import Array, with_prefix
from fedmuster.federation.agenda import BACK, Event
from fedmuster.federation.asking import NOBODY_OUT, Out
from fedmuster.federation.jobs import Decision, Job
from fedmuster.federation.late_news import LateNews
from fedmuster.federation.regret import Verdict
from fedmuster.federation.rows import EdgeRow
from fedmuster.federation.work import Work
from fedmuster.training.servers import LateUpdates
from fedmuster.worlds.world import Outcome, WorldRound

if TYPE_CHECKING:
    from fedmuster.federation.simulation import Simulation


class Rounds:
    """Asks a cohort and closes the round when the world says so.

    Clients that missed the end are given up, or go on if their late answers count.
    """

    only_edge: None = None
    """All edge servers aggregate at the same time."""

    def __init__(self, simulation: "Simulation[Any]") -> None:
        self._simulation = simulation
        self.cohort: Decision | None = None
        """The cohort of this round."""
        self._outcome: Outcome | None = None
        self._drawn: WorldRound | None = None
        self._verdict = Verdict(regret=np.nan, additive=np.nan)
        self._news: LateNews | None = None
        if self._late is not None:
            self._news = LateNews() if simulation.selector.policy.hears_late else None
        self._unheard = NOBODY_OUT
        """Clients that hold slots although no answer of theirs is on its way, or none that counts;
        no server can tell them from late ones before the deadline."""

    @property
    def out(self) -> Out:
        """The clients that still work for an earlier round."""
        if self._late is None:
            return self._unheard
        late = Out(self._late.clients, self._late.arrives_at_seconds)
        return late.after(self._late.now_seconds).beside(self._unheard)

    def ask(self) -> None:
        """Ask a cohort, if none is out."""
        if self.cohort is not None:
            return
        simulation = self._simulation
        selector, world, judge = simulation.selector, simulation.world, simulation.judge
        now = simulation.elapsed_seconds
        if selector.round == 1:
            warn_if_everyone(selector.policy, selector.problem)
        drawn, size = world.realise(selector.round, now_seconds=now), world.num_to_ask
        drawn = self._without(self.out, simulation.reachable(drawn))
        if simulation.settings.late_hold_slots:
            size = max(1, size - len(self.out.clients))
        selection = simulation.select(drawn, cohort_size=size)
        self._verdict = Verdict(regret=np.nan, additive=np.nan)
        # With a quota the round does not wait for the cohort, and regret is not defined.
        if judge is not None and selection.quota is None:
            whole = RoundView(  # with the truth, for the judge's eyes only
                round=drawn.round,
                cohort_size=min(selector.problem.cohort_size, size),
                available=drawn.available,
                edges=drawn.edges,
                truth=drawn.truth,
                privacy_left=simulation.privacy_left,
            )
            self._verdict = judge.assess(whole, selection)
        grant = simulation.debit(selection)
        outcome = drawn.play(selection)
        feedback = outcome.feedback
        if grant is not None:  # a client that may not send does not complete
            feedback = replace(feedback, completed=feedback.answered & grant.releasable)
        if judge is not None:
            judge.record(selection, feedback)
        self._outcome, self._drawn = outcome, drawn
        self.cohort = simulation.dispatch(
            selection, feedback, outcome.latency_seconds, grant, version=simulation.version
        )
        simulation.agenda.add(now + outcome.round_seconds, BACK, self.cohort)

    def _without(self, out: Out, drawn: WorldRound) -> WorldRound:
        """Nobody is asked who is out; if no client is left, the server waits for the first.

        While more clients than slots are out, nobody is asked at all, or they would become more
        and more.
        """
        if len(out.clients) == 0:
            return drawn
        available, wait = drawn.available.copy(), drawn.wait_seconds
        available[out.clients] = False
        simulation = self._simulation
        if simulation.settings.late_hold_slots and len(out.clients) > simulation.world.num_to_ask:
            available[:] = False
        if not available.any():
            wait = max(wait, float(out.until_seconds.min()) - simulation.elapsed_seconds)
        return replace(drawn, available=available, wait_seconds=wait)

    def handle(self, event: Event) -> list[Job]:
        """The round is over: every client of the cohort is back, or given up."""
        assert event.decision is not None
        if self._late is not None:  # who answers late is not silent
            arrived = self._late.arrives_at_seconds <= self._simulation.elapsed_seconds
            self._simulation.selector.liveness.answered(self._late.clients[arrived])
        return [Job(event.decision, row) for row in range(len(event.decision.selection.clients))]

    def due(self) -> float:
        """The server aggregates when the round is over."""
        over = self.cohort is not None and len(self._simulation.agenda) == 0
        return self._simulation.elapsed_seconds if over else np.inf

    def run_dry(self) -> str | None:
        """A round always ends."""
        return None

    def feedback_of(self, jobs: Sequence[Job]) -> Feedback | None:
        """What the server hears of the cohort, without what training tells; with late answers to
        earlier rounds, each once, if the policy hears them."""
        if self.cohort is None:
            return None
        simulation, news, feedback = self._simulation, self._news, self.cohort.feedback
        if news is None:
            return feedback
        assert simulation.trainer is not None
        assert simulation.selector.unanswered is not None
        now = simulation.elapsed_seconds
        lost = simulation.trainer.lost(simulation.version + 1, now)
        unanswered = np.flatnonzero(simulation.selector.unanswered)
        unanswered = np.setdiff1d(unanswered, self._unheard.after(now).clients)
        return replace(feedback, late=news.hear(unanswered, lost, now_seconds=now))

    def age(self, job: Job) -> int:
        """0: the trainer keeps late answers, so all answers here are of this round."""
        return 0

    def used(self, jobs: Sequence[Job]) -> BoolArray:
        """bool[n], whose answers may enter the model."""
        assert self.cohort is not None
        return self.cohort.feedback.entered[[job.row for job in jobs]]

    def columns(
        self, jobs: Sequence[Job], used: BoolArray, heard: Feedback | None
    ) -> dict[str, Any]:
        """What the journal's row says of the round."""
        cohort, outcome, drawn = self.cohort, self._outcome, self._drawn
        assert cohort is not None
        assert outcome is not None
        assert drawn is not None
        assert heard is not None
        # At edge servers the policy hears of participants; elsewhere speed is as it was measured.
        seen = outcome.feedback if drawn.edges is None else heard
        simulation, reward = self._simulation, np.nan
        if simulation.judge is not None:
            tau_min = simulation.world.tau_min_seconds
            reward = simulation.judge.reward(self._verdict, seen, tau_min_seconds=tau_min)
        return {
            "seconds": outcome.round_seconds,
            "reward": reward,
            "regret": self._verdict.regret,
            "num_available": int(np.count_nonzero(drawn.available)),
            "clients": cohort.selection.clients,
            "network": EdgeRow.of(drawn.edges, cohort.selection, seen, drawn.position_km),
        }

    def hold_late(self, work: Work, *, round_number: int) -> None:
        """Let clients that miss the end of the round go on, if their answers may still count."""
        cohort, drawn = self.cohort, self._drawn
        assert cohort is not None
        assert drawn is not None
        selector = self._simulation.selector
        check, size = selector.report_check, selector.wanted_sketch_size
        judge = None if check is None else check.judge
        held = work.hold(cohort, round_number=round_number, judge=judge, sketch_size=size)
        if self._news is None:
            return
        measured = drawn.signals_of(cohort.selection)
        latency = cohort.latency_seconds[held.rows]
        self._news.expect(
            cohort.selection.clients[held.rows],
            arrives_at_seconds=cohort.asked_at_seconds + latency,
            latency_seconds=latency,
            signals={name: of[held.rows] for name, of in measured.items()} | {**held.signals},
        )

    def aggregated(self, jobs: Sequence[Job]) -> None:
        """The next round may begin."""
        assert self.cohort is not None
        if self._simulation.settings.late_hold_slots:
            waited = self._unheard.beside(self._unheard_of(self.cohort))
            self._unheard = waited.after(self._simulation.elapsed_seconds)
        self.cohort = None

    def _unheard_of(self, cohort: Decision) -> Out:
        """The clients of a cohort without an answer, but for those whose late ones will count."""
        clients = cohort.selection.clients
        rows = ~cohort.feedback.answered
        if self._late is not None:
            rows &= ~np.isin(clients, self._late.clients)
        deadline = self._simulation.world.time.deadline_seconds
        seconds = np.minimum(cohort.latency_seconds[rows], deadline)
        return Out(clients[rows], cohort.asked_at_seconds + seconds)

    @property
    def _late(self) -> LateUpdates | None:
        """The late answers that may enter a later model; None where none may."""
        trainer = self._simulation.trainer
        return None if trainer is None else trainer.late

    def arrays(self) -> dict[str, Array]:
        """What the policy will hear of late answers, and the clients that hold slots.

        The answers themselves are the trainer's. Nothing else is open after an aggregation.
        """
        arrays = {} if self._news is None else self._news.arrays()
        if self._simulation.settings.late_hold_slots:
            arrays |= {f"unheard.{name}": of for name, of in self._unheard._asdict().items()}
        return arrays

    def load(self, arrays: dict[str, Array], *, lost: bool) -> None:
        """Continue from :meth:`arrays`."""
        if self._news is not None:
            self._news.load(arrays)
        if self._simulation.settings.late_hold_slots:
            self._unheard = Out(**with_prefix("unheard.", arrays))
