"""PAUSE's selection problems, solved exactly, by annealing and, if small, by brute force."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import process_time

import numpy as np
from numpy.random import Generator

from fedmuster.claims.pause_networks import KAPPA, SMALL, Network, sa_pause
from fedmuster.claims.seeds import seeds as first_seeds
from fedmuster.core.records import FloatArray
from fedmuster.core.streams import stream
from fedmuster.solvers.best_cohort import Solver
from fedmuster.solvers.bottleneck import Exact
from fedmuster.solvers.instance import BruteForce, Instance

KAPPAS = (1.0, KAPPA)
FEW, MORE = 500, 3_000
"""Steps of annealing: defaults of the authors' code. Those are timed."""
ROUNDING = 1e-9

_TINY = replace(SMALL, num_clients=12, cohort_size=4, num_clusters=3)
_RANDOM_COHORTS = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """The selection problems of one network, solved in several ways.

    Args:
        network: whose.
        gaps: for each kappa [instances, steps + 1], what the best cohort within so many steps of
            annealing lacks to the optimum.
        spreads: [instances], what random cohorts lack on average.
        exact_seconds: of the exact solver, median over the instances.
        annealing_seconds: the same of annealing, by number of steps.
    """

    network: Network
    gaps: Mapping[float, FloatArray]
    spreads: FloatArray
    exact_seconds: float
    annealing_seconds: Mapping[int, float]

    @property
    def steps(self) -> int:
        """How many steps annealing took at most."""
        return int(self.gaps[KAPPA].shape[1]) - 1

    def gap(self, kappa: float, steps: int) -> float:
        """The mean gap after ``steps``."""
        return float(self.gaps[kappa][:, steps].mean())

    def shares(self, kappa: float) -> FloatArray:
        """Gaps in units of what random cohorts lack."""
        return self.gaps[kappa] / self.spreads[:, None]

    def share(self, kappa: float, steps: int) -> float:
        """The mean of those after ``steps``."""
        return float(self.shares(kappa)[:, steps].mean())

    def optimal(self, kappa: float, steps: int) -> float:
        """In which share of the instances the optimum was found within ``steps``."""
        return float((self.gaps[kappa][:, steps] <= ROUNDING).mean())

    @property
    def never_beaten(self) -> bool:
        """Whether annealing was never above the exact solver."""
        return all(bool((gaps >= -ROUNDING).all()) for gaps in self.gaps.values())

    def ratio(self, steps: int) -> float:
        """How many times as long as the exact solver annealing takes."""
        return self.annealing_seconds[steps] / self.exact_seconds

    @property
    def steps_in_exact_time(self) -> float:
        """How many steps take as long as the exact solver, if sorting cost nothing."""
        longer = self.annealing_seconds[MORE] - self.annealing_seconds[FEW]
        return self.exact_seconds / (longer / (MORE - FEW))


def search(network: Network, *, seeds: int, rounds: Sequence[int], steps: int) -> Search:
    """Solve what PAUSE has to solve in ``rounds`` of its own runs."""
    gaps: dict[float, list[FloatArray]] = {kappa: [] for kappa in KAPPAS}
    exact_seconds: list[float] = []
    annealing_seconds: dict[int, list[float]] = {FEW: [], MORE: []}
    spreads = []
    for seed in first_seeds(seeds):
        for number, instance in enumerate(network.problems(seed=seed, rounds=rounds)):
            rng = stream(seed, "pause-exact", network.num_clients, number)
            optimum, spent = _solve(Exact(), instance, rng)
            exact_seconds.append(spent)
            for count, seconds in annealing_seconds.items():
                seconds.append(_solve(sa_pause(steps=count), instance, rng)[1])
            for kappa, found in gaps.items():
                walk = sa_pause(steps=steps, kappa=kappa).trace(instance, rng)
                found.append(optimum - walk.best)
            spreads.append(optimum - _random_energy(instance, rng))
    return Search(
        network=network,
        gaps={kappa: np.array(found) for kappa, found in gaps.items()},
        spreads=np.array(spreads),
        exact_seconds=median(exact_seconds),
        annealing_seconds={count: median(values) for count, values in annealing_seconds.items()},
    )


def _solve(solver: Solver, instance: Instance, rng: Generator) -> tuple[float, float]:
    """The energy reached, and the processor seconds it took: others may use the machine, too."""
    start = process_time()
    positions = solver.solve(instance, rng)
    seconds = process_time() - start
    return instance.energy(positions), seconds


def _random_energy(instance: Instance, rng: Generator) -> float:
    num_clients = len(instance.weight)
    energies = [
        instance.energy(rng.choice(num_clients, instance.size, replace=False))
        for _ in range(_RANDOM_COHORTS)
    ]
    return float(np.mean(energies))


def small_instances(count: int) -> list[Instance]:
    """So small that every cohort can be tried: half drawn at random, half from PAUSE's rounds."""
    drawn = [_drawn(stream(number, "pause-exact drawn")) for number in range(count // 2)]
    rounds = range(1, count - len(drawn) + 1)  # from the first, when nobody has been seen
    return drawn + list(_TINY.problems(seed=0, rounds=rounds))


def _drawn(rng: Generator) -> Instance:
    """With ties, and with clients that were never seen."""
    num_clients = int(rng.integers(5, 13))
    speed = rng.integers(0, 8, num_clients) / 4
    return Instance(
        bottleneck=np.where(rng.random(num_clients) < 0.2, np.inf, speed),
        weight=rng.integers(-6, 7, num_clients) / 4,
        size=int(rng.integers(1, num_clients)),
        clusters=rng.integers(0, rng.integers(1, num_clients), num_clients),
        penalty=float(rng.choice((0.05, 0.3, 1.0, 10.0))),
    )


def agrees_with_brute_force(instance: Instance, rng: Generator) -> bool:
    """Whether the exact solver's cohort is as good as the best of all.

    Where nobody in either cohort was seen before, both energies are infinite, and what is
    compared is their additive parts.
    """
    speed, rest = instance.parts(Exact().solve(instance, rng))
    best_speed, best_rest = instance.parts(BruteForce().solve(instance, rng))
    if np.isinf(best_speed):
        return bool(np.isinf(speed)) and abs(rest - best_rest) <= ROUNDING
    return abs((speed + rest) - (best_speed + best_rest)) <= ROUNDING
