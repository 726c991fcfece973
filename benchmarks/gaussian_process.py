"""The Gaussian process of FedSUV: observing a cohort and the posterior of every client.

Exact, for 3,500 clients, 20 new observations a round over 100 rounds, fits of hyper-parameters
included, against scikit-learn's GaussianProcessRegressor, refitted to the same observations under
the same fixed kernel at a few of the rounds. Approximate, by 256 random features, for a million
clients; the floor is to read the attributes once. CPU time on one core.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.gaussian_process
"""

from collections.abc import Callable, Iterator
from resource import RUSAGE_SELF, getrusage
from statistics import mean, median
from time import process_time
from typing import Any

import numpy as np
from numpy.random import default_rng

from benchmarks.measure import read, write
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.policies.fedsuv.gaussian_process import GaussianProcess, GPState

DIMENSION = 6
COHORT = 20
ROUNDS = 100
MANY_ROUNDS = 40
COMPARED = (5, 20, 50, 100)


def cpu_seconds(call: Callable[[], object]) -> float:
    start = process_time()
    call()
    return process_time() - start


def peak_megabytes() -> float:
    return getrusage(RUSAGE_SELF).ru_maxrss / 1024


def fleet(num_clients: int) -> FloatArray:
    return default_rng(1).normal(size=(num_clients, DIMENSION))


def cohorts(attributes: FloatArray, rounds: int) -> Iterator[tuple[IntArray, FloatArray]]:
    """Clients and their utilities, round by round."""
    rng = default_rng(2)
    truth = np.sin(attributes[:, 0]) + 0.5 * attributes[:, 1] + 5.0
    for _ in range(rounds):
        clients = rng.choice(len(truth), COHORT, replace=False)
        yield clients, truth[clients] + 0.3 * rng.normal(size=COHORT)


def one_round(
    process: GaussianProcess, state: GPState, clients: IntArray, values: FloatArray
) -> tuple[float, bool]:
    """CPU seconds of a round, and whether hyper-parameters were fitted in it."""
    last_fit = int(state.fitted)

    def play() -> None:
        process.observe(state, clients, values)
        process.posterior(state)

    return cpu_seconds(play), int(state.fitted) != last_fit


def summary(rounds: list[tuple[float, bool]]) -> dict[str, float]:
    return {
        "mean": mean(seconds for seconds, _ in rounds),
        "median": median(seconds for seconds, _ in rounds),
        "worst": max(seconds for seconds, _ in rounds),
        "with a fit": mean(seconds for seconds, fit in rounds if fit),
    }


def refit(state: GPState, clients: IntArray, values: FloatArray) -> Callable[[], object] | None:
    """scikit-learn on all observations under our hyper-parameters, where it is installed."""
    try:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    except ImportError:
        return None
    hyper = state.hyper
    kernel = ConstantKernel(float(hyper.signal)) * RBF(hyper.length_scales)
    peer = GaussianProcessRegressor(kernel, alpha=float(hyper.noise), optimizer=None)
    rows, standard = state.attributes[clients], (values - hyper.offset) / hyper.scale
    return lambda: peer.fit(rows, standard).predict(state.attributes, return_std=True)


def exact() -> dict[str, Any]:
    process, attributes = GaussianProcess(), fleet(3_500)
    state = process.init(len(attributes), attributes)
    rounds, peers = [], {}
    seen, heard = np.empty(0, dtype=np.int64), np.empty(0)
    for number, (clients, values) in enumerate(cohorts(attributes, ROUNDS), start=1):
        rounds.append(one_round(process, state, clients, values))
        seen, heard = np.append(seen, clients), np.append(heard, values)
        peer = refit(state, seen, heard) if number in COMPARED else None
        if peer is not None:
            peers[number] = cpu_seconds(peer)
    ours = summary(rounds)
    print(f"{len(attributes):,} clients, exact, {ROUNDS} rounds of {COHORT} observations; CPU ms")
    print("".join(f"{name:>12}{seconds * 1e3:>8.1f}" for name, seconds in ours.items()))
    for number, seconds in peers.items():
        print(
            f"  round {number:>3}: scikit-learn's refit {seconds * 1e3:>8.1f} ms, "
            f"{seconds / ours['mean']:.1f} × our mean, {seconds / ours['median']:.1f} × our median"
        )
    return {"clients": len(attributes), "seconds": ours, "scikit-learn": peers}


def approximate() -> dict[str, Any]:
    process, attributes = GaussianProcess(), fleet(1_000_000)
    before = peak_megabytes()
    state = process.init(len(attributes), attributes)
    rounds, floors = [], []
    for clients, values in cohorts(attributes, MANY_ROUNDS):
        rounds.append(one_round(process, state, clients, values))
        floors.append(cpu_seconds(lambda: read(attributes)))
    ours, floor, memory = summary(rounds), median(floors), peak_megabytes() - before
    print(
        f"{len(attributes):,} clients, {process.num_features} random features, {MANY_ROUNDS} "
        f"rounds of {COHORT} observations; CPU s"
    )
    print("".join(f"{name:>12}{seconds:>8.2f}" for name, seconds in ours.items()))
    print(
        f"  median {ours['median'] / floor:,.0f} × reading the attributes once; "
        f"{memory:,.0f} MB more memory at its peak than before"
    )
    return {
        "clients": len(attributes),
        "seconds": ours,
        "read attributes": floor,
        "megabytes": memory,
    }


def main() -> None:
    """Print milliseconds a round, and ratios."""
    rows = [approximate(), exact()]  # the larger first: peak memory never falls again
    write("gaussian_process", rows)


if __name__ == "__main__":
    main()
