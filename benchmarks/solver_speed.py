"""How long the exact solver takes, in units of reading its two arrays once.

    python -m benchmarks.solver_speed

``STATES`` makes the instances: states a bandit passes through, and adversarial ones, which no
bandit produces.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.measure import in_turns, read, write
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.core.streams import stream
from fedmuster.solvers.bottleneck import Exact
from fedmuster.solvers.bottleneck_problem import BottleneckProblem

StateMaker = Callable[[int, int, Generator], BottleneckProblem]


def bandit(
    counts: IntArray,
    size: int,
    rng: Generator,
    *,
    alpha: float = 3.0,
    beta: float = 1.2,
    gamma: float = 0.0,
    targets: FloatArray | float = 1.0,
) -> BottleneckProblem:
    """The state of BSFL (or PAUSE, with ``gamma``) after clients took part ``counts`` times."""
    num_clients = len(counts)
    rounds = max(2.0, counts.sum() / size)
    mean_speed = np.minimum(1.0, 0.3 * np.exp(0.5 * rng.standard_normal(num_clients)))
    with np.errstate(divide="ignore"):
        ucb = mean_speed + np.sqrt((size + 1) * np.log(rounds) / counts)  # BSFL Eq. 8
    x = size * (targets / np.mean(targets)) / num_clients - counts / rounds
    weight = alpha * np.sign(x) * np.abs(x) ** beta  # BSFL Eq. 3
    if gamma:
        weight = weight + gamma * np.exp(-0.04 * counts)  # PAUSE Eq. 7
    return BottleneckProblem(bottleneck=ucb, weight=weight, size=size)


def _first_round(num_clients: int, size: int, rng: Generator) -> BottleneckProblem:
    return bandit(np.zeros(num_clients, dtype=np.int64), size, rng)


def _half_seen(num_clients: int, size: int, rng: Generator) -> BottleneckProblem:
    return bandit(rng.integers(0, 2, num_clients), size, rng)


def _few_counts(num_clients: int, size: int, rng: Generator) -> BottleneckProblem:
    return bandit(rng.integers(1, 6, num_clients), size, rng)


def _geometric_counts(num_clients: int, size: int, rng: Generator) -> BottleneckProblem:
    return bandit(rng.geometric(0.2, num_clients), size, rng)


def _many_counts(num_clients: int, size: int, rng: Generator) -> BottleneckProblem:
    return bandit(1 + rng.poisson(200, num_clients), size, rng)


def _last_of_a_class(num_clients: int, size: int, rng: Generator) -> BottleneckProblem:
    """Fewer than m clients have the smallest count; ties decide nearly everything."""
    counts = 2 + rng.integers(0, 2, num_clients)
    counts[rng.choice(num_clients, size // 2, replace=False)] = 1
    return bandit(counts, size, rng)


def _uneven_targets(num_clients: int, size: int, rng: Generator) -> BottleneckProblem:
    """Clients hold different amounts of data; alpha makes their shares matter at this K."""
    targets = rng.lognormal(0.0, 1.0, num_clients)
    counts = 1 + rng.poisson(20 * targets)
    return bandit(counts, size, rng, alpha=num_clients / size, beta=1.0, targets=targets)


def _pause(num_clients: int, size: int, rng: Generator) -> BottleneckProblem:
    return bandit(1 + rng.poisson(10, num_clients), size, rng, gamma=5.0)


def _pause_clustered(num_clients: int, size: int, rng: Generator) -> BottleneckProblem:
    plain = _pause(num_clients, size, rng)
    return BottleneckProblem(
        bottleneck=plain.bottleneck,
        weight=plain.weight,
        size=size,
        clusters=rng.integers(0, 20, num_clients),
        penalty=0.05,
    )


def _independent(num_clients: int, size: int, rng: Generator) -> BottleneckProblem:
    return BottleneckProblem(
        bottleneck=rng.random(num_clients), weight=rng.random(num_clients), size=size
    )


def _weights_dominate(num_clients: int, size: int, rng: Generator) -> BottleneckProblem:
    return BottleneckProblem(
        bottleneck=rng.random(num_clients), weight=100 * rng.random(num_clients), size=size
    )


def _independent_clustered(num_clients: int, size: int, rng: Generator) -> BottleneckProblem:
    return BottleneckProblem(
        bottleneck=rng.random(num_clients),
        weight=rng.random(num_clients),
        size=size,
        clusters=rng.integers(0, 1 + num_clients // 50, num_clients),
        penalty=0.01,
    )


def _all_equal(num_clients: int, size: int, rng: Generator) -> BottleneckProblem:
    same = np.full(num_clients, rng.random())
    return BottleneckProblem(bottleneck=same, weight=same.copy(), size=size)


def _two_weights(num_clients: int, size: int, rng: Generator) -> BottleneckProblem:
    """u is fine and w coarse, with too few of the best: the bound on u alone drops nobody."""
    weight = rng.integers(0, 2, num_clients).astype(np.float64)
    weight[rng.choice(num_clients, size // 2, replace=False)] = 10.0
    return BottleneckProblem(bottleneck=rng.random(num_clients), weight=weight, size=size)


def _arc(num_clients: int, size: int, rng: Generator) -> BottleneckProblem:
    """Everyone on a quarter circle: nobody is dominated."""
    angle = rng.random(num_clients) * np.pi / 2
    return BottleneckProblem(bottleneck=np.sin(angle), weight=np.cos(angle), size=size)


def _opposed(num_clients: int, size: int, rng: Generator) -> BottleneckProblem:
    """w = -u: nobody is dominated and all thresholds are nearly equally good."""
    u = rng.random(num_clients)
    return BottleneckProblem(bottleneck=u, weight=-u, size=size)


TYPICAL: Mapping[str, StateMaker] = {
    "first round": _first_round,
    "half seen": _half_seen,
    "counts 1-5": _few_counts,
    "geometric counts": _geometric_counts,
    "many counts": _many_counts,
    "last of a class": _last_of_a_class,
    "uneven targets": _uneven_targets,
    "PAUSE": _pause,
    "PAUSE, 20 clusters": _pause_clustered,
}
ADVERSARIAL: Mapping[str, StateMaker] = {
    "independent": _independent,
    "independent, clusters": _independent_clustered,
    "weights dominate": _weights_dominate,
    "all equal": _all_equal,
    "two weights": _two_weights,
    "arc": _arc,
    "w = -u": _opposed,
}
STATES: Mapping[str, StateMaker] = {**TYPICAL, **ADVERSARIAL}

CLIENTS = (1_000, 10_000, 100_000, 1_000_000)
SIZES = (10, 25, 100)


def main() -> None:
    rows: list[dict[str, Any]] = []
    print(f"{'state':24}{'m':>5}", *(f"{f'K = {k:,}':>21}" for k in CLIENTS))
    for name, make in STATES.items():
        for size in SIZES:
            cells = []
            for clients in CLIENTS:
                instance = make(clients, size, stream(0, "layout", clients))
                seconds = in_turns(
                    {
                        "solve": partial(Exact().solve, instance, stream(0, "benchmark")),
                        "read": partial(read, instance.bottleneck, instance.weight),
                    },
                    turns=7,
                    repeat=max(1, 10_000 // clients),
                )
                ratio = seconds["solve"] / seconds["read"]
                cells.append(f"{1e3 * seconds['solve']:9.3f} ms {ratio:7.1f} ×")
                rows.append(
                    {
                        "state": name,
                        "adversarial": name in ADVERSARIAL,
                        "clients": clients,
                        "cohort_size": size,
                        "seconds": seconds["solve"],
                        "times_floor": ratio,
                    }
                )
            print(f"{name:24}{size:5}", *cells, flush=True)
    write("solver_speed", rows)


if __name__ == "__main__":
    main()
