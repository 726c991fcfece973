"""FedSUV's round: choose, learn and narrow the boxes, against scikit-learn's refit of its GP.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.fedsuv_selection

A round is ``select`` and ``observe`` in FedSUV's own world: both models, the fits of their
hyper-parameters included (they make the worst rounds), boxes and classification. scikit-learn
fits its GaussianProcessRegressor to the same observations and predicts mean and deviation of all
clients, every tenth round, right after ours; its kernel is given, so that it has nothing to
optimise. The classification of boxes alone is compared with sorting as many numbers once. The bars
are for elapsed time. CPU time is told beside it: on a machine that others use, too, the two differ.
"""

from collections.abc import Callable
from functools import partial
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np

from benchmarks.measure import in_turns, write
from fedmuster.core.records import Feedback, FloatArray
from fedmuster.core.selector import Selector
from fedmuster.core.streams import stream
from fedmuster.policies.fedsuv.policy import FedSUV
from fedmuster.solvers.pareto import dominated_boxes
from fedmuster.worlds.validity_utility import ValidityUtilityWorld

ROUNDS = 100
EXACT_CLIENTS, MANY_CLIENTS = 3_500, 1_000_000
BARS = {EXACT_CLIENTS: 0.05, MANY_CLIENTS: 1.0}
"""Seconds a round may take."""
REFIT_EVERY = 10
WIDTHS = (1.0, 0.3, 0.1, 0.01)
"""Of the boxes, whose centres are uniform on the unit square."""

After = Callable[[int, Feedback], None]


class Spent(NamedTuple):
    """Seconds of each round, on the clock and of the processor."""

    elapsed: list[float]
    cpu: list[float]


def play(num_clients: int, after: After) -> Spent:
    """All rounds; ``after`` is called when one is over."""
    run = ValidityUtilityWorld(num_clients=num_clients).start(seed=1)
    selector = Selector(FedSUV(), run.problem, seed=1)
    spent = Spent([], [])
    for t in range(1, ROUNDS + 1):
        drawn = run.realise(t)
        start = _clocks()
        cohort = selector.select(available=drawn.available)
        chosen = _clocks()
        feedback = drawn.play(cohort).feedback
        played = _clocks()
        selector.observe(feedback)
        seconds = chosen - start + _clocks() - played
        spent.elapsed.append(float(seconds[0]))
        spent.cpu.append(float(seconds[1]))
        after(t, feedback)
    return spent


def _clocks() -> FloatArray:
    return np.array([perf_counter(), process_time()])


class Refit:
    """scikit-learn on all observations so far."""

    def __init__(self, attributes: FloatArray) -> None:
        self.attributes = (attributes - attributes.mean(axis=0)) / attributes.std(axis=0)
        self.clients: list[int] = []
        self.utilities: list[float] = []
        self.seconds: dict[int, float] = {}

    def __call__(self, round_: int, feedback: Feedback) -> None:
        """Keep what was observed; refit every tenth round."""
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF

        answered = feedback.answered
        self.clients += feedback.clients[answered].tolist()
        self.utilities += feedback.signals["utility"][answered].tolist()
        if round_ % REFIT_EVERY == 0:
            process = GaussianProcessRegressor(RBF(2.0), alpha=0.1, optimizer=None)
            start = perf_counter()
            process.fit(self.attributes[self.clients], self.utilities)
            process.predict(self.attributes, return_std=True)
            self.seconds[round_] = perf_counter() - start


def summary(num_clients: int, spent: Spent) -> dict[str, Any]:
    """Printed, and for the results."""
    seconds, cpu = spent.elapsed, float(np.mean(spent.cpu))
    mean, median, worst = np.mean(seconds), np.median(seconds), np.max(seconds)
    bar = BARS[num_clients]
    print(
        f"N = {num_clients:,}: {1e3 * mean:.1f} ms a round on average (median {1e3 * median:.1f}, "
        f"worst {1e3 * worst:.1f}; CPU {1e3 * cpu:.1f}), bar {1e3 * bar:.0f} ms: "
        f"{'met' if mean <= bar else 'MISSED'}",
        flush=True,
    )
    return {
        "clients": num_clients,
        "mean_seconds": float(mean),
        "median_seconds": float(median),
        "worst_seconds": float(worst),
        "mean_cpu_seconds": cpu,
        "bar_seconds": bar,
    }


def exact() -> dict[str, Any]:
    """The exact posterior, beside scikit-learn."""
    attributes = ValidityUtilityWorld(num_clients=EXACT_CLIENTS).start(seed=1).problem.attributes
    assert attributes is not None
    refit = Refit(attributes)
    spent = play(EXACT_CLIENTS, refit)
    row, seconds = summary(EXACT_CLIENTS, spent), spent.elapsed
    ours = float(np.mean([seconds[t - 1] for t in refit.seconds]))
    theirs = float(np.mean(list(refit.seconds.values())))
    last = refit.seconds[ROUNDS]
    print(
        f"  in the same rounds {1e3 * ours:.1f} ms, scikit-learn's GP alone {1e3 * theirs:.1f} ms "
        f"({theirs / ours:.1f} x); in round {ROUNDS} {1e3 * seconds[-1]:.1f} and {1e3 * last:.1f} "
        f"ms ({last / seconds[-1]:.1f} x)"
    )
    return {**row, "sklearn_mean_seconds": theirs, "times_ours": theirs / ours}


def many() -> dict[str, Any]:
    """Random features."""
    return summary(MANY_CLIENTS, play(MANY_CLIENTS, lambda _round, _feedback: None))


def classification() -> list[dict[str, Any]]:
    """Dominated boxes of a million, in units of a sort."""
    rng = stream(0, "benchmark")
    centre = rng.random((2, MANY_CLIENTS))
    rows = []
    for width in WIDTHS:
        half = 0.5 * width * rng.random((2, MANY_CLIENTS))
        low, high = centre - half, centre + half
        corners = (low[0], low[1]), (high[0], high[1])
        calls: dict[str, Callable[[], object]] = {
            "classify": partial(dominated_boxes, *corners),
            "argsort": partial(np.argsort, low[0]),
        }
        seconds = in_turns(calls, turns=7)
        share = float(np.mean(dominated_boxes(*corners)))
        ratio = seconds["classify"] / seconds["argsort"]
        print(
            f"boxes up to {width} wide: {share:.0%} dominated, {1e3 * seconds['classify']:.0f} ms, "
            f"{ratio:.2f} x a sort"
        )
        rows.append({"width": width, "dominated": share, **seconds, "times_argsort": ratio})
    return rows


def main() -> None:
    """Print all of it and keep the numbers."""
    write("fedsuv_selection", {"rounds": [exact(), many()], "classification": classification()})


if __name__ == "__main__":
    main()
