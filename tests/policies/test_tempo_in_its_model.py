"""Tempo in the model of its page, where the most that any schedule can earn is known."""

import heapq

import numpy as np
import pytest

from fedmuster import Problem, Selector
from fedmuster.core.records import Feedback, FloatArray
from fedmuster.policies.tempo import Tempo

_ANSWERS, _BEFORE = 6_000, 2_000


def most(value: FloatArray, seconds: FloatArray, slots: int) -> float:
    """F: the largest sum v sqrt(y) with sum tau y <= C and tau y <= 1, by bisection of lambda."""
    low, high = 1e-9, 1e9
    for _ in range(200):
        price = np.sqrt(low * high)
        rate = np.minimum(1.0 / seconds, (value / (2.0 * price * seconds)) ** 2)
        low, high = (price, high) if (seconds * rate).sum() > slots else (low, price)
    return float((value * np.sqrt(rate)).sum())


def earned(value: FloatArray, seconds: FloatArray, slots: int) -> float:
    """Value a second of Tempo, which knows times and values, after the first answers."""
    clients = len(value)
    problem = Problem(num_clients=clients, cohort_size=slots)
    selector = Selector(Tempo(coverage=0.0), problem, seed=1)
    state = selector.state
    state.need.log[:] = 2.0 * np.log(value)  # u = sqrt(need * age)
    state.latency.count[:] = 20
    state.latency.mean[:] = np.log(seconds)
    state.latency.variance[:] = 1e-9
    state.latency.fleet[:] = clients, np.log(seconds).mean(), clients
    now, total, since, last = 0.0, 0.0, 0.0, np.zeros(clients)
    jobs: list[tuple[float, int, int]] = []
    free = slots
    for number in range(_ANSWERS):
        chosen = selector.select(count=free)
        assert chosen.tickets is not None
        for ticket, client in zip(chosen.tickets.tolist(), chosen.clients.tolist(), strict=True):
            heapq.heappush(jobs, (now + seconds[client], ticket, client))
        now, ticket, client = heapq.heappop(jobs)
        free = 1
        if number == _BEFORE:
            since, total = now, 0.0
        total += value[client] * np.sqrt(now - last[client])
        last[client] = now
        selector.observe(
            Feedback(
                tickets=np.array([ticket]),
                clients=np.array([client]),
                latency_seconds=seconds[[client]],
            )
        )
    return total / (now - since)


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "slots"), [(2, 1), (10, 5), (100, 10), (100, 50)])
def test_tempo_earns_nearly_all_that_can_be_earned(clients: int, slots: int) -> None:
    shares = []
    for seed in range(3):
        rng = np.random.default_rng([clients, seed])
        value, seconds = rng.lognormal(0.0, 1.0, clients), rng.lognormal(0.0, 1.0, clients)
        shares.append(earned(value, seconds, slots) / most(value, seconds, slots))
    assert min(shares) > 0.9
    assert max(shares) <= 1.0 + 1e-3  # F is per second in the long run
