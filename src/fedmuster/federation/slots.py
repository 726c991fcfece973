"""Slots: clients are asked while others are out, and each is waited for on its own."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray
from fedmuster.core.edges import EdgeView
from fedmuster.core.errors import ConfigError, DataError, PolicyError
from fedmuster.core.records import Feedback, Selection
from fedmuster.core.state import Array, with_prefix
from fedmuster.federation.agenda import BACK, READY, WAKE, Event, load_jobs, saved_jobs
from fedmuster.federation.asking import NOBODY_OUT
from fedmuster.federation.jobs import Decision, Job
from fedmuster.federation.rows import EdgeRow, JobRows
from fedmuster.federation.triggers import Waiting
from fedmuster.federation.work import Work
from fedmuster.worlds.job_draws import JobDraws
from fedmuster.worlds.world import WorldRound

if TYPE_CHECKING:
    from fedmuster.federation.simulation import Simulation

_MOST_WAKES = 100_000
"""How often in a row the server looks for clients and finds none, before it gives up."""
_MOST_UNANSWERED = 10_000
"""How many jobs in a row may end without an answer, before the server asks no more."""


class Slots:
    """C slots at each server; freed slots are filled again when O of them are free.

    Where there are edge servers, each has slots, a buffer and a pace of its own. What it may spend
    is for a global period: until every edge, on average, has aggregated T_ES times.
    """

    def __init__(self, simulation: "Simulation[Any]") -> None:
        settings, trainer = simulation.settings, simulation.trainer
        assert settings.trigger is not None
        assert settings.refill is not None
        self._simulation = simulation
        self._settings, self._trigger = settings, settings.trigger
        self._refill = settings.refill
        problem = simulation.world.problem
        self._draws = JobDraws(simulation.world)
        every = 1 if trainer is None else trainer.global_every  # T_ES
        self._period = every * problem.num_servers  # in aggregations
        servers, clients = problem.num_servers, problem.num_clients
        self._open = np.zeros(servers, dtype=np.int64)
        self._answers = np.zeros(servers, dtype=np.int64)
        self._versions = np.zeros(servers, dtype=np.int64)  # aggregations of each server
        self._quota = np.zeros(servers, dtype=np.int64)  # 0 for none
        self._since = np.zeros(servers)
        self._spent = np.zeros(servers)
        self._last_seconds = np.full(clients, np.nan)
        # clients whose answers entered the last aggregation
        self._entered = np.empty(0, dtype=np.int64)
        self._channel_free_seconds = 0.0
        self._awaits_clients = False
        self._ended: list[tuple[Job, float]] = []
        self._num_available = self._wakes = self._unanswered = 0
        self._period_ends = False
        self.only_edge = 0
        """The server that aggregates next."""
        self.cohort: None = None
        self.out = NOBODY_OUT
        """A client that is asked is among the open jobs until it is back, or given up."""

    def ask(self) -> None:
        """Ask clients wherever enough slots are free."""
        if self._unanswered >= _MOST_UNANSWERED:
            return
        for server in np.flatnonzero(self._settings.slots - self._open >= self._refill).tolist():
            self._ask_at(server, self._settings.slots - int(self._open[server]))

    def _ask_at(self, server: int, free: int) -> None:
        simulation, now = self._simulation, self._simulation.elapsed_seconds
        simulation.hear()  # so that the policy knows all that has come
        drawn = self._at_server(server, simulation.reachable(self._draws.at(now)))
        if self._trigger.rests:
            drawn = self._without_resting(server, drawn)
        self._num_available = simulation.selector.tickets.num_idle(drawn.available)
        if self._num_available < free:
            self._await_clients()
        if self._num_available == 0:
            return
        self._wakes = 0
        selection = simulation.select(drawn, count=free)
        if len(selection.clients) == 0:  # nobody whom the budget pays for
            return
        limit = self._limit(selection)
        busy = simulation.selector.tickets.busy.copy()
        busy[selection.clients] = False  # their own tickets are open by now
        latency, signals = drawn.job_of(selection, busy=busy)
        self._require_possible(selection, latency, limit)
        grant = simulation.debit(selection)
        completed = latency <= limit
        if grant is not None:
            completed &= grant.releasable
        feedback = Feedback(
            clients=selection.clients,
            latency_seconds=np.where(completed, latency, np.inf),
            completed=completed,
            signals=signals,
            tickets=selection.tickets,
        )
        version = int(self._versions[server])
        decision = simulation.dispatch(selection, feedback, latency, grant, version=version)
        self._quota[server] = selection.quota or 0  # 0 for none
        self._open[server] += len(selection.clients)
        if drawn.edges is not None:
            decision.cost = drawn.edges.cost[selection.clients, selection.edge_of_each]
            self._spent[server] += float(decision.cost.sum())
        if drawn.position_km is not None:
            decision.position_km = drawn.position_km[selection.clients]
        self._draws.take(selection)  # from here on ``drawn`` shows the next jobs of these clients
        if simulation.work is not None:
            simulation.work.expect(Job(decision, row) for row in range(len(latency)))
        # An edge server holds a slot until it has taken the answer in (COCS, stage EC).
        kind, after = BACK, np.minimum(latency, limit) + simulation.world.time.edge_seconds
        if self._queues:
            kind, after = READY, np.minimum(signals["compute_seconds"], limit)
        for row, seconds in enumerate(after.tolist()):
            simulation.agenda.add(now + seconds, kind, decision, row)

    def _require_possible(self, selection: Selection, latency: FloatArray, limit: float) -> None:
        """Complain about a quota that is never reached, or a job that never ends or never began."""
        policy, slots = self._simulation.selector.policy, self._settings.slots
        if selection.quota is not None and selection.quota > slots:
            raise PolicyError(
                f"policy {policy.name}: its quota is {selection.quota}, which {slots} jobs open at "
                "once can never reach"
            )
        for client, seconds in zip(selection.clients.tolist(), latency.tolist(), strict=True):
            if not seconds > 0:
                raise DataError(
                    f"the world lets client {client} answer after {seconds} s, expected a number "
                    "> 0, or infinity for no answer"
                )
            if min(seconds, limit) == np.inf:
                raise ConfigError(
                    f"client {client} never answers, and nothing ends its job: write "
                    "deadline_seconds = … in [world]",
                    key=("world", "deadline_seconds"),
                )

    def _without_resting(self, server: int, drawn: WorldRound) -> WorldRound:
        """Without clients whose answers wait or have just entered the model, if others are left."""
        simulation, now = self._simulation, self._simulation.elapsed_seconds
        resting = [job.client for job, _ in self._ended if job.decision.feedback.answered[job.row]]
        if now == self._since[server]:
            resting += self._entered.tolist()
        available = drawn.available.copy()
        available[resting] = False
        if len(simulation.agenda) == 0 and simulation.selector.tickets.num_idle(available) == 0:
            return drawn
        return replace(drawn, available=available)

    def _await_clients(self) -> None:
        """Look again when clients may have become available, unless they never do."""
        if self._awaits_clients or self._wakes >= _MOST_WAKES:
            return
        simulation, now = self._simulation, self._simulation.elapsed_seconds
        idle = ~simulation.selector.tickets.busy
        if simulation.budget is not None:
            idle &= simulation.budget.able
        seconds = self._draws.wait_seconds(now, idle)
        if np.isfinite(seconds):
            simulation.agenda.add(now + seconds, WAKE, None)
            self._awaits_clients = True

    def handle(self, event: Event) -> list[Job]:
        """A job has ended, an upload may begin, or clients may be available again."""
        if event.decision is None:
            self._awaits_clients, self._wakes = False, self._wakes + 1
            return []
        job = Job(event.decision, event.row)
        if event.kind == READY:
            self._upload(job)
            return []
        self._open[job.edge] -= 1
        self._ended.append((job, self._simulation.elapsed_seconds))
        self._unanswered += 1
        if job.decision.feedback.answered[job.row]:
            self._unanswered = 0
            self._answers[job.edge] += 1
            self._last_seconds[job.client] = job.decision.feedback.latency_seconds[job.row]
        return [job]

    def due(self) -> float:
        """When the next server aggregates, if nothing happens before.

        Sets :attr:`only_edge` to that server.
        """
        servers = range(len(self._open))
        due, self.only_edge = min((self._trigger.due_seconds(self._waiting(s)), s) for s in servers)
        return due

    def run_dry(self) -> str | None:
        """Choose the server that aggregates when the agenda is empty.

        Return why the run ends, if it does. Where edges have spent what they may spend in a period,
        the period ends.
        """
        self.only_edge, self._period_ends = int(np.argmax(self._answers)), bool(self._spent.any())
        if self._unanswered >= _MOST_UNANSWERED:
            return f"the run ends: the last {_MOST_UNANSWERED:,} jobs were not answered"
        if self._answers.any() or self._period_ends:
            return None
        return "the run ends: no client can be asked any more"

    def _waiting(self, server: int) -> Waiting:
        simulation = self._simulation
        running: list[Job] = []
        if self._trigger.looks_at_jobs:
            running = [job for job in simulation.agenda.jobs if job.edge == server]
        clients = np.array([job.client for job in running], dtype=np.int64)
        return Waiting(
            now_seconds=simulation.elapsed_seconds,
            since_seconds=float(self._since[server]),
            answers=int(self._answers[server]),
            quota=int(self._quota[server]) or None,
            running_seconds=self._last_seconds[clients],
            running_ages=np.array([self.age(job) for job in running], dtype=np.int64),
            slots=self._settings.slots,
        )

    def feedback_of(self, jobs: Sequence[Job]) -> Feedback | None:
        """What the server hears of these jobs, without what training tells."""
        if not jobs:
            return None

        def column(of: Callable[[Decision], Any], kind: type = np.float64) -> Any:
            return np.array([of(job.decision)[job.row] for job in jobs], dtype=kind)

        signals: dict[str, Any] = {}
        for name in jobs[0].decision.feedback.signals:
            signals[name] = np.array([j.decision.feedback.signals[name][j.row] for j in jobs])
        signals["staleness"] = np.array([float(self.age(job)) for job in jobs])
        return Feedback(
            clients=column(lambda decision: decision.selection.clients, np.int64),
            latency_seconds=column(lambda decision: decision.feedback.latency_seconds),
            completed=column(lambda decision: decision.feedback.answered, np.bool_),
            signals=signals,
            tickets=column(lambda decision: decision.selection.tickets, np.int64),
        )

    def age(self, job: Job) -> int:
        """How often the job's server has aggregated since the client was asked."""
        return int(self._versions[job.edge]) - job.decision.version

    def used(self, jobs: Sequence[Job]) -> BoolArray:
        """bool[n], whose answers may enter the model: all."""
        return np.ones(len(jobs), dtype=np.bool_)

    def columns(
        self, jobs: Sequence[Job], used: BoolArray, heard: Feedback | None
    ) -> dict[str, Any]:
        """What the journal's row says of the jobs that have ended since the last one.

        Answers that wait for another edge server to aggregate are in the row of that aggregation.
        """
        here = [each for each in self._ended if not self._waits(each[0])]
        entered = {job.identity for job, enters in zip(jobs, used.tolist(), strict=True) if enters}
        was_used = np.array([job.identity in entered for job, _ in here], dtype=np.bool_)
        rows = JobRows.of(here, was_used, [self.age(job) for job, _ in here])
        return {
            "seconds": self._simulation.elapsed_seconds - float(self._since.max()),
            "num_available": self._num_available,
            "clients": rows.client,
            "network": self._network([job for job, _ in here], rows),
            "jobs": rows,
        }

    def hold_late(self, work: Work, *, round_number: int) -> None:
        """Nobody is late: each job is waited for on its own."""

    def aggregated(self, jobs: Sequence[Job]) -> None:
        """The answers of these jobs have entered the model of :attr:`only_edge`."""
        simulation, server = self._simulation, self.only_edge
        self._ended = [each for each in self._ended if self._waits(each[0])]
        self._versions[server] += 1
        self._since[server], self._answers[server] = simulation.elapsed_seconds, 0
        self._entered = np.array([job.client for job in jobs], dtype=np.int64)
        if self._period_ends and simulation.trainer is not None:
            simulation.trainer.aggregate_globally()
        if self._period_ends or simulation.version % self._period == 0:
            self._spent[:], self._period_ends = 0.0, False

    def _waits(self, job: Job) -> bool:
        """Whether this job was answered, and its edge server does not aggregate now."""
        return job.edge != self.only_edge and bool(job.decision.feedback.answered[job.row])

    def _network(self, jobs: Sequence[Job], rows: JobRows) -> EdgeRow | None:
        network = self._draws.edges
        if network is None:
            return None
        told = [(job.decision, job.row) for job in jobs]
        contexts = [d.selection.features[r] for d, r in told if d.selection.features is not None]
        places = [d.position_km[r] for d, r in told if d.position_km is not None]
        size = self._simulation.world.problem.num_features
        return EdgeRow(
            edges=rows.edge,
            in_time=rows.answered,
            context=np.array(contexts).reshape(len(jobs), size if contexts or not jobs else 0),
            cost=np.array([d.cost[r] for d, r in told if d.cost is not None]),
            budget=network.budget,
            position_km=np.array(places).reshape(len(jobs), 2) if places else None,
        )

    @property
    def _queues(self) -> bool:
        """Whether clients upload one after the other, as they become ready."""
        return self._simulation.world.time.sequential

    def _limit(self, selection: Selection) -> float:
        limit = self._simulation.world.time.deadline_seconds
        return (
            limit if selection.deadline_seconds is None else min(limit, selection.deadline_seconds)
        )

    def _upload(self, job: Job) -> None:
        """A client has trained: it uploads after all that were ready before."""
        simulation, decision, row = self._simulation, job.decision, job.row
        feedback, asked, now = (
            decision.feedback,
            decision.asked_at_seconds,
            simulation.elapsed_seconds,
        )
        ends = max(now, self._channel_free_seconds) + float(feedback.signals["upload_seconds"][row])
        limit = self._limit(decision.selection)
        if feedback.answered[row] and ends - asked <= limit:
            self._channel_free_seconds = ends
            feedback.latency_seconds[row] = decision.latency_seconds[row] = ends - asked
        else:  # the client leaves the channel to others
            assert feedback.completed is not None
            feedback.completed[row], feedback.latency_seconds[row] = False, np.inf
            seconds = limit if np.isfinite(limit) else decision.latency_seconds[row]
            ends = max(asked + float(seconds), now)
            if simulation.work is not None:
                simulation.work.forget(job)
        simulation.agenda.add(ends, BACK, decision, row)

    def _at_server(self, server: int, drawn: WorldRound) -> WorldRound:
        """The view of one edge server: the clients it covers, and what it may still spend."""
        network = drawn.edges
        if network is None:
            return drawn
        coverage = np.zeros_like(network.coverage)
        coverage[:, server] = network.coverage[:, server]
        budget = np.zeros_like(network.budget)
        budget[server] = max(network.budget[server] - self._spent[server], 0.0)
        edges = EdgeView(coverage=coverage, cost=network.cost, budget=budget)
        return replace(drawn, edges=edges, available=drawn.available & edges.covered)

    # Saving and loading.

    # The names are keys of checkpoints: renaming an attribute breaks old ones.
    _ARRAYS = (
        "_versions",
        "_open",
        "_answers",
        "_quota",
        "_since",
        "_spent",
        "_last_seconds",
        "_entered",
    )
    _COUNTS = ("_num_available", "_wakes", "_unanswered")

    def arrays(self) -> dict[str, Array]:
        """Open jobs, the models that they train from, what will happen, and answers that wait for
        their edge servers to aggregate."""
        simulation = self._simulation
        ended = [job for job, _ in self._ended]
        columns = saved_jobs(simulation.agenda, ended)
        columns |= {"draws": self._draws.next, "sample_orders": simulation.sample_orders}
        columns |= {name: np.array(getattr(self, name)) for name in (*self._ARRAYS, *self._COUNTS)}
        columns["channel"] = np.array(self._channel_free_seconds)
        columns["ended.at_seconds"] = np.array([at for _, at in self._ended], np.float64)
        columns |= {f"kept.{name}": a for name, a in simulation.kept_arrays(ended).items()}
        return columns

    def load(self, arrays: dict[str, Array], *, lost: bool) -> None:
        """Continue from :meth:`arrays`.

        ``lost`` gives up all open jobs: with secure noise nobody knows what was sent before a
        crash, so what was open is spent, and not sent again.
        """
        simulation = self._simulation
        for name in self._ARRAYS:
            setattr(self, name, arrays[name].copy())
        for name in self._COUNTS:
            setattr(self, name, int(arrays[name]))
        self._channel_free_seconds = float(arrays["channel"])
        simulation.sample_orders = arrays["sample_orders"].copy()
        self._draws.load(arrays["draws"])
        agenda, ended = load_jobs(arrays)
        simulation.agenda = agenda
        self._awaits_clients = any(event.kind == WAKE for event in agenda.events)
        self._ended = list(zip(ended, arrays["ended.at_seconds"].tolist(), strict=True))
        simulation.load_kept(ended, with_prefix("kept.", arrays))
        jobs = sorted(agenda.jobs, key=lambda job: job.identity)
        if lost:
            for job in jobs:
                assert job.decision.feedback.completed is not None
                job.decision.feedback.completed[job.row] = False
        if simulation.work is not None:
            simulation.work.expect(jobs)
