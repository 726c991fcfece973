"""Every client's signals are its own, however clients train together."""

from dataclasses import replace
from typing import Any

import numpy as np
from tests.federation.test_resuming_without_rounds import TRAINING

from fedmuster.federation import Federation, Simulation
from fedmuster.training.local_sgd import Cosine, LocalSGD
from fedmuster.worlds import BSFLGroups, EdgeNetwork


def simulated(**settings: Any) -> Simulation[Any]:
    world = BSFLGroups(num_clients=40, cohort_size=8)
    way = Federation(concurrency=8, **settings)
    return Simulation("oort", world, seed=1, training=TRAINING, federation=way)


def test_what_a_policy_hears_of_a_client_is_what_that_client_sent() -> None:
    simulation = simulated(refill=3, buffer=4)
    work = simulation.work
    assert work is not None
    send, wrong, calls = work.send, 0, 0

    def checked(jobs: Any, **how: Any) -> Any:
        nonlocal wrong, calls
        sent = send(jobs, **how)
        calls += 1
        wrong += sent.updates.clients.tolist() != [job.client for job in jobs]
        return sent

    vars(work)["send"] = checked
    for _ in range(40):
        simulation.step()
    assert calls > 40
    assert wrong == 0


def test_the_learning_rate_counts_aggregations() -> None:
    local = LocalSGD(learning_rate=0.1, schedule=Cosine(rounds=100))
    world = BSFLGroups(num_clients=6, cohort_size=5)
    simulation: Simulation[Any] = Simulation(
        "random",
        world,
        seed=1,
        training=replace(TRAINING, local=local),
        federation=Federation(concurrency=5, buffer=5),
    )
    assert simulation.trainer is not None
    send, rounds = simulation.trainer.send, list[int]()

    def noted(clients: Any, starts: Any, numbers: Any, **how: Any) -> Any:
        rounds.extend(numbers.tolist())
        assert (how["orders"] >= numbers).all()
        return send(clients, starts, numbers, **how)

    vars(simulation.trainer)["send"] = noted
    for _ in range(30):
        simulation.step()
    assert max(rounds) <= 31
    # A client that trains twice on a model has another order.
    assert simulation.sample_orders.max() > 31


def test_the_age_counts_aggregations_of_the_clients_own_edge() -> None:
    way = Federation(concurrency=4, buffer=2, refill=4)
    simulation: Simulation[Any] = Simulation(
        "random", EdgeNetwork(num_clients=30), seed=2, federation=way
    )
    jobs = [simulation.step().jobs for _ in range(60)]
    seen = np.zeros(3, dtype=np.int64)
    for rows in jobs:
        assert rows is not None
        if len(rows.edge) == 0:
            continue
        used = rows.used
        edge = int(rows.edge[used][0]) if used.any() else None
        for where, version, age in zip(rows.edge, rows.version, rows.age, strict=True):
            assert version + age == seen[where]
        if edge is not None:
            seen[edge] += 1
