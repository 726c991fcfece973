"""Edge servers without rounds: slots, budgets, buffers and global aggregations."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.faults.watching import wrap
from tests.federation.row_values import all_jobs, play

from fedmuster.federation import Federation, RoundRow, Simulation
from fedmuster.federation.triggers import Interval, Trigger
from fedmuster.training.data.built_in import Digits
from fedmuster.training.models import Logistic
from fedmuster.training.training import Training
from fedmuster.worlds import EdgeNetwork

M = 3
WORLD = EdgeNetwork(num_clients=30, num_edges=M, budget=6.0)
TRAINING = Training(
    data=Digits(train_limit=240, test_limit=40), model=Logistic(), evaluate_every=50
)
C, B, T = 3, 2, 2
FEDERATION = Federation(concurrency=C, buffer=B)


def start(
    policy: str = "random", world: EdgeNetwork = WORLD, federation: Federation = FEDERATION
) -> Simulation[Any]:
    training = replace(TRAINING, global_every=T)
    return Simulation(policy, world, seed=3, federation=federation, training=training)


def costs_of(rows: list[RoundRow]) -> np.ndarray[Any, Any]:
    """[n], what was paid for each job, in the order of their rows."""
    return np.concatenate([row.network.cost for row in rows if row.network is not None])


def periods_of(simulation: Simulation[Any]) -> list[int]:
    """How many decisions there were before each global aggregation from now on."""
    found: list[int] = []

    def aggregate(original: Callable[[], None]) -> None:
        original()
        found.append(simulation.selector.decisions)

    wrap(simulation.trainer, "aggregate_globally", aggregate)
    return found


@pytest.mark.parametrize("policy", ["random", "cocs", "oracle"])
@pytest.mark.parametrize("trigger", [None, Interval(seconds=2.0)], ids=["buffer", "interval"])
def test_slots_and_budgets_are_never_exceeded(policy: str, trigger: Trigger | None) -> None:
    federation = Federation(concurrency=C, trigger=trigger) if trigger else FEDERATION
    simulation = start(policy, federation=federation)
    ends = periods_of(simulation)
    rows = play(simulation, 60)
    jobs, costs = all_jobs(rows), costs_of(rows)
    assert len(jobs.client) == len(costs) > 60
    period = np.searchsorted(ends, jobs.decision, side="left")
    spent = np.zeros((period.max() + 1, M))
    np.add.at(spent, (period, jobs.edge), costs)
    assert spent.max() <= WORLD.budget * (1 + 1e-12)
    assert np.median(spent[:-1].max(axis=1)) > 0.5 * WORLD.budget  # it does bind
    for edge in range(M):
        asked, ended = (times[jobs.edge == edge] for times in (jobs.asked_at_seconds, _left(jobs)))
        open_then = np.array([np.sum((asked <= now) & (ended > now)) for now in asked])
        assert 1 < open_then.max() <= C


def test_a_client_that_is_out_of_reach_once_is_not_lost_for_ever() -> None:
    simulation: Simulation[Any] = Simulation("random", WORLD, seed=3, federation=FEDERATION)
    early, late = (set(all_jobs(play(simulation, 150)).client.tolist()) for _ in range(2))
    assert len(late) >= len(early) - 2 > 15


def _left(jobs: Any) -> np.ndarray[Any, Any]:
    """When each slot is free: a moment before the job has ended."""
    return np.asarray(np.nextafter(jobs.ended_at_seconds, 0))


def test_each_edge_aggregates_its_own_buffer_and_all_of_them_in_turn_globally() -> None:
    """With a budget for everybody, so that no period ends before its M T aggregations."""
    simulation = start(world=replace(WORLD, budget=1000.0))
    trainer, ends = simulation.trainer, periods_of(simulation)
    assert trainer is not None
    before = [server.model for server in trainer.edge_servers]
    changed: list[int] = []
    for number in range(1, 25):
        row = simulation.step()
        assert row.jobs is not None
        used = row.jobs.used
        after = [server.model for server in trainer.edge_servers]
        if number % (M * T) == 0:
            assert all(model is after[0] for model in after)
        else:
            moved = [edge for edge in range(M) if after[edge] is not before[edge]]
            assert set(row.jobs.edge[used].tolist()) == set(moved)
            assert len(moved) == 1
            changed += moved
        assert np.count_nonzero(used) == row.learning.num_aggregated == B
        assert row.num_completed == B
        answered = row.jobs.answered & ~used
        assert not answered.any()
        before = after
    assert len(ends) == 24 // (M * T)
    assert set(changed) == set(range(M))


def test_the_cloud_averages_when_no_edge_can_pay_anybody_any_more() -> None:
    simulation = start(world=replace(WORLD, budget=2.5))
    ends = periods_of(simulation)
    rows = play(simulation, 30)
    assert not simulation.finished
    assert len(ends) > 30 // (M * T)
    assert sum(len(row.clients) for row in rows) > 30


def test_a_job_that_failed_is_told_at_once_and_an_answer_with_its_aggregation() -> None:
    simulation = start(world=replace(WORLD, deadline_seconds=1.2))
    rows = play(simulation, 80)
    now = np.cumsum([row.seconds for row in rows])
    jobs = all_jobs(rows)
    assert len(set(zip(jobs.decision, jobs.client, strict=True))) == len(jobs.client)
    waited = 0
    for row, begins, ends in zip(rows, [0.0, *now[:-1]], now, strict=True):
        assert row.jobs is not None
        ended = row.jobs.ended_at_seconds
        failed = ~row.jobs.answered
        assert (ended[failed] >= begins - 1e-9).all()
        assert (ended <= ends + 1e-9).all()
        assert len(set(row.jobs.edge[row.jobs.answered].tolist())) <= 1
        waited += int(np.count_nonzero(ended[~failed] < begins - 1e-9))
        assert row.network is not None
        np.testing.assert_array_equal(row.network.edges, row.jobs.edge)
        np.testing.assert_array_equal(row.network.in_time, row.jobs.answered)
        assert row.network.context.shape == (len(ended), 2)
    assert waited > 5
    assert np.count_nonzero(~jobs.answered) > 20
