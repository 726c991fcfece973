"""What training costs in memory and time when there are more clients, and when more are chosen.

    python -m benchmarks.training_memory

Workload W2 (an MLP, about 110 samples a client) with K = 500 … 10,000 clients and cohorts of
m = 25 … 400, each in a process of its own, in turns. Every client trains once before anything is
timed, so all that an engine keeps for a client is in memory.

Bars: from K = 500 to 10,000 a round becomes at most 1.25 times as long, from m = 25 to 400 it grows
with an exponent of at most 1.1; the engine takes at most half the memory of the data on top of it.
"""

import math
import resource
import sys
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks.measure import write
from benchmarks.training.fedmuster_engine import train_round
from benchmarks.training.turns import Process, Turns
from benchmarks.training.workloads import SEED, WORKLOADS
from fedmuster.training.engines.numpy_engine import NumpyEngine
from fedmuster.training.models import MLP
from fedmuster.training.trainer import Trainer

CLIENTS = (500, 2_000, 10_000)
COHORT = 25
COHORTS = (25, 50, 100, 200, 400)
CLIENTS_OF_COHORTS = 2_000
ROUNDS = 20
TURNS = 9
CLIENTS_BAR, EXPONENT_BAR, MEMORY_BAR = 1.25, 1.1, 0.5


class Memory(NamedTuple):
    """Bytes that a process had at most: before there was data, of data, and in the end."""

    before: int
    data: int
    peak: int


def train(turns: Turns, num_clients: int, cohort_size: int) -> Memory:
    """Train cohorts that visit all clients again and again."""
    before = _peak_bytes()
    workload = replace(WORKLOADS["W2"], num_clients=num_clients, cohort_size=cohort_size)
    data = workload.data()
    engine = NumpyEngine(MLP(hidden=(64,)), data, workload.local, SEED)
    trainer = Trainer(engine, data, evaluate_every=sys.maxsize)
    cohorts = np.random.default_rng(SEED).permutation(num_clients).reshape(-1, cohort_size)
    for number in turns:
        clients = np.sort(cohorts[number % len(cohorts)])
        train_round(trainer, clients, number)
    return Memory(before, data.inputs.nbytes + data.targets.nbytes, _peak_bytes())


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def main() -> None:
    """Print the tables and whether the bars are met."""
    by_clients = measure([(clients, COHORT) for clients in CLIENTS])
    by_cohort = measure([(CLIENTS_OF_COHORTS, size) for size in COHORTS])
    slower = by_clients[-1]["times_first"]
    exponent = math.log(by_cohort[-1]["times_first"]) / math.log(COHORTS[-1] / COHORTS[0])
    memory = by_clients[-1]["engine_times_data"]
    print(
        f"K = {CLIENTS[0]:,} … {CLIENTS[-1]:,}: {slower:.2f} x the time (bar {CLIENTS_BAR:g}: "
        f"{_met(slower <= CLIENTS_BAR)}); m = {COHORTS[0]} … {COHORTS[-1]}: exponent "
        f"{exponent:.2f} (bar {EXPONENT_BAR:g}: {_met(exponent <= EXPONENT_BAR)}); memory beyond "
        f"data at K = {CLIENTS[-1]:,}: {memory:.2f} x the data (bar {MEMORY_BAR:g}: "
        f"{_met(memory <= MEMORY_BAR)})"
    )
    write("training_memory", {"by_clients": by_clients, "by_cohort": by_cohort})


def measure(settings: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """Train in all settings (K, m), in turns; the first is the standard of the others."""
    processes = [Process(train, setting) for setting in settings]
    first_visits = [
        process.play(clients // size) * size / clients
        for process, (clients, size) in zip(processes, settings, strict=True)
    ]
    seconds: list[list[float]] = [[] for _ in settings]
    for _ in range(TURNS):
        for process, values in zip(processes, seconds, strict=True):
            values.append(process.play(ROUNDS) / ROUNDS)
    print(
        f"\n{'K':>8}{'m':>6}{'data MB':>10}{'engine MB':>11}{'peak MB':>9}{'first visit ms':>16}"
        f"{'ms/round':>10}{'x first row':>13}{'ms/client':>11}"
    )
    rows = []
    for (clients, size), process, first, values in zip(
        settings, processes, first_visits, seconds, strict=True
    ):
        memory = process.finish()
        engine = memory.peak - memory.before - memory.data
        row = {
            "clients": clients,
            "cohort_size": size,
            "data_bytes": memory.data,
            "peak_bytes": memory.peak,
            "engine_bytes": engine,
            "engine_times_data": engine / memory.data,
            "first_visit_round_seconds": first,
            "round_seconds": median(values),
            "times_first": median(values) / median(seconds[0]),
        }
        rows.append(row)
        print(
            f"{clients:>8,}{size:>6}{memory.data / 1e6:>10.0f}{engine / 1e6:>11.0f}"
            f"{memory.peak / 1e6:>9.0f}{1e3 * first:>16.2f}{1e3 * row['round_seconds']:>10.2f}"
            f"{row['times_first']:>13.2f}{1e3 * row['round_seconds'] / size:>11.3f}"
        )
    return rows


def _met(met: bool) -> str:
    return "met" if met else "missed"


if __name__ == "__main__":
    main()
