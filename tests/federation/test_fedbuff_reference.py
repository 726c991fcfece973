"""FedBuff in a loop of its own: a heap of events, C slots, a buffer, and nothing else.

The reference shares with the simulation what is under test elsewhere: the latencies that a world
draws, when clients are there, and the selector that chooses. Who is asked when, who answers when,
on which model and how old, must be the same to the last bit.
"""

from collections.abc import Callable
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
import pytest

from fedmuster.core.records import Feedback
from fedmuster.core.selector import Selector
from fedmuster.federation import Federation, JobRows, Simulation
from fedmuster.policies.fedbuff import FedBuff
from fedmuster.worlds import Bernoulli, BSFLGroups, DeviceWorld, LatencyWorld, OnOff
from fedmuster.worlds.job_draws import JobDraws

AGGREGATIONS = 40

WORLDS: dict[str, Any] = {
    "groups": BSFLGroups(num_clients=100),
    "deadline and dropout": LatencyWorld(num_clients=150, deadline_seconds=2.0, dropout=0.2),
    "rounds of availability": LatencyWorld(
        num_clients=30, deadline_seconds=3.0, dropout=0.1, availability=Bernoulli(probability=0.2)
    ),
    "devices by the clock": DeviceWorld(num_clients=40, availability=OnOff(period_seconds=4_000.0)),
    "few devices by the clock": DeviceWorld(
        num_clients=14, availability=OnOff(share=0.05, share_sd=0.02, period_seconds=2_000.0)
    ),
}
SETTINGS = {
    "buffer 3": (8, 1, 3),
    "every answer": (10, 1, 1),
    "as large as the slots": (6, 1, 6),
    "refilled by threes": (9, 3, 4),
    "refilled when all are free": (5, 5, 2),
}
"""C, O and B."""


class Ended(NamedTuple):
    """A job, as the journal has it."""

    client: int
    decision: int
    asked: float
    ended: float
    answered: bool
    used: bool
    version: int
    age: int


class Job(NamedTuple):
    client: int
    ticket: int
    decision: int
    asked: float
    version: int
    latency: float | None


def reference(
    world: Any, seed: int, slots: int, refill: int, buffer: int
) -> tuple[list[list[Ended]], list[float]]:
    """The jobs that ended before each aggregation, and when the server aggregated."""
    run = replace(world, cohort_size=slots).start(seed)
    clock = JobDraws(run)  # tells when clients are there
    limit = run.time.deadline_seconds
    selector = Selector(FedBuff(), run.problem, seed=seed)
    jobs_before = [0] * run.problem.num_clients
    idle = np.ones(run.problem.num_clients, dtype=np.bool_)
    events: list[tuple[float, int, Job | None]] = []
    now, version, open_jobs, answers, decisions, waking = 0.0, 0, 0, 0, 0, False
    ended: list[tuple[Job, float]] = []
    aggregations: list[list[Ended]] = []
    times: list[float] = []
    pushed = 0

    def push(at: float, job: Job | None) -> None:
        nonlocal pushed
        heappush(events, (at, pushed, job))
        pushed += 1

    def ask() -> None:
        nonlocal open_jobs, decisions, waking
        free = slots - open_jobs
        if free < refill:
            return
        there, wait = clock.at(now).available & idle, clock.wait_seconds(now, idle)
        if there.sum() < free and not waking and 0 < wait < np.inf:
            push(now + wait, None)
            waking = True
        if not there.any():
            return
        chosen = selector.select(count=free, available=there)
        assert chosen.tickets is not None
        decisions += 1
        for client, ticket in zip(chosen.clients.tolist(), chosen.tickets.tolist(), strict=True):
            jobs_before[client] += 1
            latency = float(run.draw(jobs_before[client]).latency_seconds[client])
            told = latency if latency <= limit else None
            push(
                now + min(latency, limit),
                Job(client, ticket, decisions, asked=now, version=version, latency=told),
            )
            open_jobs, idle[client] = open_jobs + 1, False

    ask()
    while len(aggregations) < AGGREGATIONS:
        now, _, job = heappop(events)
        if job is None:
            waking = False
        else:
            open_jobs, idle[job.client] = open_jobs - 1, True
            ended.append((job, now))
            answers += job.latency is not None
            selector.observe(
                Feedback(
                    tickets=np.array([job.ticket]),
                    clients=np.array([job.client]),
                    latency_seconds=np.array([np.inf if job.latency is None else job.latency]),
                    completed=np.array([job.latency is not None]),
                )
            )
        if answers == buffer:
            aggregations.append([_row(each, at, version) for each, at in ended])
            times.append(now)
            version, answers, ended = version + 1, 0, []
        ask()
    return aggregations, times


def _row(job: Job, ended: float, version: int) -> Ended:
    answered = job.latency is not None
    age = version - job.version
    return Ended(job.client, job.decision, job.asked, ended, answered, answered, job.version, age)


def told(jobs: JobRows) -> list[Ended]:
    columns: tuple[Callable[[], list[Any]], ...] = (
        jobs.client.tolist,
        jobs.decision.tolist,
        jobs.asked_at_seconds.tolist,
        jobs.ended_at_seconds.tolist,
        jobs.answered.tolist,
        jobs.used.tolist,
        jobs.version.tolist,
        jobs.age.tolist,
    )
    return [Ended(*row) for row in zip(*(column() for column in columns), strict=True)]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("world", WORLDS)
def test_the_simulation_is_the_reference_to_the_last_bit(world: str, setting: str) -> None:
    slots, refill, buffer = SETTINGS[setting]
    federation = Federation(concurrency=slots, refill=refill, buffer=buffer)
    for seed in (1, 2):
        aggregations, times = reference(WORLDS[world], seed, slots, refill, buffer)
        simulation = Simulation(FedBuff(), WORLDS[world], seed=seed, federation=federation)
        for number, (expected, at) in enumerate(zip(aggregations, times, strict=True), start=1):
            row = simulation.step()
            assert row.jobs is not None
            assert told(row.jobs) == expected
            assert simulation.elapsed_seconds == at
            assert row.round == number
            assert row.num_completed == buffer
        assert sum(job.age for jobs in aggregations for job in jobs) > 0 or buffer == slots


def test_the_worlds_have_what_they_are_for() -> None:
    """Failures, servers that wait for clients, and answers of several ages."""
    slots, refill, buffer = SETTINGS["buffer 3"]
    failures, waits = {}, {}
    for name, world in WORLDS.items():
        aggregations, _ = reference(world, 1, slots, refill, buffer)
        jobs = [job for row in aggregations for job in row]
        failures[name] = sum(not job.answered for job in jobs)
        waits[name] = len({job.asked for job in jobs} - {job.ended for job in jobs} - {0.0})
        assert len({job.age for job in jobs}) >= 3
    assert failures["groups"] == 0 < failures["deadline and dropout"]
    assert waits["groups"] == 0 < waits["rounds of availability"]
    assert waits["few devices by the clock"] > 0
