"""Tempo's choice among a million clients, in rounds and without, against one read of its state.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.tempo_selection

Bars at K = 10^6: a cohort of 100 in at most 15 reads of the state, one decision without rounds,
learning included, in at most 2 ms on average.
"""

from time import perf_counter

import numpy as np
from numpy.random import Generator

from benchmarks.measure import write
from fedmuster import Feedback, Problem, Selector
from fedmuster.core.state import to_arrays
from fedmuster.policies.tempo import Tempo
from fedmuster.policies.tempo.policy import TempoState

CLIENTS = (10_000, 100_000, 1_000_000)
COHORT, TURNS, DECISIONS = 100, 9, 1_000


def settle(state: TempoState, rng: Generator) -> None:
    """Everybody was seen three times."""
    clients = len(state.last_end)
    for times in (state.answering.asked, state.answering.answered, state.need.reports):
        times[:] = 3
    state.latency.count[:] = 3
    state.latency.mean[:] = rng.normal(0.0, 1.0, clients)
    state.latency.variance[:] = 0.09
    state.latency.fleet[:] = clients, 0.0, clients
    state.answering.longest_seconds[...] = 10.0
    state.need.log[:] = rng.normal(0.0, 0.5, clients)
    state.last_end[:] = rng.integers(0, 3 * clients, clients)
    state.num_answers[...] = 3 * clients
    state.price.value[...] = state.price.slot_seconds[...] = 1.0


def read(state: TempoState) -> float:
    """Read every number of the state once, but for costs, which have no price here."""
    arrays = to_arrays(state)
    del arrays["costs.mean"], arrays["costs.reports"]
    return float(sum(array.sum() for array in arrays.values()))


def main() -> None:
    """Print reads of the state for a cohort, and milliseconds for a decision without rounds."""
    rng, rows = np.random.default_rng(0), []
    print(f"{'K':>9}{'rounds':>24}{'reads':>8}{'ms/decision without':>21}")
    for clients in CLIENTS:
        for policy in (Tempo(), Tempo(close_early=False)):
            selector = Selector(policy, Problem(num_clients=clients, cohort_size=COHORT), seed=1)
            settle(selector.state, rng)
            times = []
            for _ in range(TURNS + 1):
                start = perf_counter()
                cohort = selector.select()
                chosen = perf_counter()
                read(selector.state)
                times.append((chosen - start, perf_counter() - chosen))
                seconds = np.ones(len(cohort.clients))
                answer = Feedback(
                    round=cohort.round, clients=cohort.clients, latency_seconds=seconds
                )
                selector.observe(answer)
            choosing, reading = np.median(times[1:], axis=0)
            without = _without_rounds(policy, clients, rng)
            kind = "close early" if policy.close_early else "wait for all"
            ratio = choosing / reading
            rows.append({"clients": clients, "rounds": kind, "reads": ratio, "ms": without})
            print(f"{clients:>9,}{kind:>24}{ratio:>8.1f}{without:>21.2f}")
    write("tempo_selection", rows)


def _without_rounds(policy: Tempo, clients: int, rng: Generator) -> float:
    selector = Selector(policy, Problem(num_clients=clients, cohort_size=COHORT), seed=1)
    settle(selector.state, rng)
    start = perf_counter()
    for _ in range(DECISIONS):
        job = selector.select(count=1)
        answer = Feedback(tickets=job.tickets, clients=job.clients, latency_seconds=np.ones(1))
        selector.observe(answer)
    return 1e3 * (perf_counter() - start) / DECISIONS


if __name__ == "__main__":
    main()
