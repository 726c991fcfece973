"""PAUSE's selection under R2: the exact solver, and what SA-PAUSE misses in the same time.

    python -m benchmarks.pause_selection

The instances are those that PAUSE itself meets in a run, once everybody has been chosen. The floor
reads index, weight and cluster of every client once. A gap is what annealing's best cohort lacks
to the optimum, in brackets in units of what random cohorts lack on average: 0 % is the optimum,
100 % no better than chance. "Equal time" is that of the exact solver, "after sorting" the same
without counting what annealing needs before its first step. A step costs O(log m) here; the
paper's lists all neighbours.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from claims.pause.networks import LARGE, Network, sa_pause
from numpy.random import Generator

from benchmarks.measure import in_turns, read, write
from fedmuster.core.streams import stream
from fedmuster.solvers.annealing import Walk
from fedmuster.solvers.bottleneck import Exact
from fedmuster.solvers.instance import Instance

CLIENTS = (1_000, 10_000, 100_000)
COHORTS = ((15, 20), (100, 200))
"""Cohort size, and number of clusters."""
STEPS = (500, 3_000, 30_000)
"""Two defaults of the authors' code, and the script of their largest experiment."""
VISITS = (1.01, 1.25, 1.5, 1.75, 2.0)
"""When instances are taken, in units of the rounds that it takes to choose everybody once."""
WALKS = 4
RANDOM_COHORTS = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Walked:
    """One annealing: how long it was, and how far it got."""

    steps: float
    seconds: float
    gap: float
    gap_share: float


def instances(network: Network) -> list[Instance]:
    """From a run of PAUSE in its own world, when nobody is unseen any more."""
    rounds = {int(visits * network.rounds_to_see_all) + 1 for visits in VISITS}
    return list(network.problems(seed=0, rounds=rounds))


def exact(instance: Instance) -> tuple[float, float]:
    """Seconds of the exact solver, and their ratio to the floor."""
    assert instance.clusters is not None
    seconds = in_turns(
        {
            "solve": partial(Exact().solve, instance, stream(0, "benchmark")),
            "read": partial(read, instance.bottleneck, instance.weight, instance.clusters),
        },
        turns=7,
        repeat=max(1, 10_000 // len(instance.weight)),
    )
    return seconds["solve"], seconds["solve"] / seconds["read"]


def walks(instance: Instance, limit: float, rng: Generator) -> Iterator[tuple[str, Walked]]:
    """Annealing for ``limit`` seconds, with and without its sorting, and for each of STEPS."""
    optimum = instance.energy(Exact().solve(instance, rng))
    num_clients = len(instance.weight)
    random = [
        instance.energy(rng.choice(num_clients, instance.size, replace=False))
        for _ in range(RANDOM_COHORTS)
    ]
    spread = optimum - float(np.mean(random))

    def walk(*, steps: int, limit: float = np.inf, sorting_is_free: bool = False) -> Walked:
        start, step = perf_counter(), 0
        walk = Walk(sa_pause(steps=steps), instance, rng)
        end = limit + (perf_counter() if sorting_is_free else start)
        while step < steps and perf_counter() < end:
            step += 1
            walk.step(step)
        chosen = walk.best_positions()
        seconds = perf_counter() - start
        gap = optimum - instance.energy(chosen)
        return Walked(steps=step, seconds=seconds, gap=gap, gap_share=gap / spread)

    for _ in range(WALKS):
        yield "equal time", walk(steps=max(STEPS), limit=limit)
        yield "after sorting", walk(steps=max(STEPS), limit=limit, sorting_is_free=True)
        for steps in STEPS:
            yield f"{steps:,} steps", walk(steps=steps)


def row(network: Network) -> dict[str, Any]:
    """Means over the instances of a network, printed."""
    seconds, ratios = [], []
    reached: dict[str, list[Walked]] = {}
    for number, instance in enumerate(instances(network)):
        spent, ratio = exact(instance)
        seconds.append(spent)
        ratios.append(ratio)
        for name, walked in walks(instance, spent, stream(number, "benchmark")):
            reached.setdefault(name, []).append(walked)
    mean = {
        name: {key: float(np.mean([asdict(w)[key] for w in many])) for key in asdict(many[0])}
        for name, many in reached.items()
    }
    print(f"{network}: exact {1e3 * np.mean(seconds):.2f} ms, {np.mean(ratios):.1f} x the floor")
    for name, walk in mean.items():
        print(
            f"  annealing, {name:<14}{walk['steps']:>9,.0f} steps"
            f"{walk['seconds'] / np.mean(seconds):>8.1f} x the time"
            f"{walk['gap']:>9.3f} below the optimum ({walk['gap_share']:.0%})",
            flush=True,
        )
    return {
        "clients": network.num_clients,
        "cohort_size": network.cohort_size,
        "clusters": network.num_clusters,
        "exact_seconds": float(np.mean(seconds)),
        "exact_times_floor": float(np.mean(ratios)),
        "annealing": mean,
    }


def main() -> None:
    """Print the gaps of every network and keep the numbers."""
    networks = [
        replace(LARGE, num_clients=clients, cohort_size=cohort_size, num_clusters=num_clusters)
        for clients in CLIENTS
        for cohort_size, num_clusters in COHORTS
    ]
    write("pause_selection", [row(network) for network in networks])


if __name__ == "__main__":
    main()
