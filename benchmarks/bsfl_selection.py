"""Exact BSFL selection (index and solve), in units of reading its state once.

The floor reads the two arrays that every index needs, participations and mean. Bars: at most 10
times the floor at K = 10^6, m = 100 on typical states, growth exponent at most 1.1 from 10^4 to
10^6. What adversarial scores cost the solver, :mod:`benchmarks.solver_speed` reports.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.measure import in_turns, read, write
from fedmuster.core.records import IntArray, Problem, RoundView
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.bottleneck_policy import BanditState
from fedmuster.policies.bsfl import BSFL

CLIENTS = (1_000, 10_000, 100_000, 1_000_000)
SIZES = (10, 25, 100)
POLICY_UNDER_TEST = BSFL(alpha=3.0, beta=1.2)
BAR = 10.0
EXPONENT_BAR = 1.1

Counts = Callable[[int, int, Generator], IntArray]

TYPICAL: dict[str, Counts] = {
    "first round": lambda k, m, rng: np.zeros(k, dtype=np.int64),
    "half seen": lambda k, m, rng: rng.integers(0, 2, k),
    "a few times each": lambda k, m, rng: rng.integers(1, 6, k),
    "geometric": lambda k, m, rng: rng.geometric(0.2, k),
    "hundreds of times each": lambda k, m, rng: 1 + rng.poisson(200, k),
}


def state_of(counts: IntArray, rng: Generator) -> BanditState:
    """BSFL's state after clients of log-normal speed took part ``counts`` times."""
    problem = Problem(num_clients=len(counts), cohort_size=1)
    state = POLICY_UNDER_TEST.init(problem)
    state.speed.inverse.count[:] = counts
    speed = np.minimum(1.0, 0.3 * np.exp(0.5 * rng.standard_normal(len(counts))))
    state.speed.inverse.mean[:] = np.where(counts > 0, speed, 0.0)
    state.speed.fastest_seconds[...] = 1.0
    return state


def selection(state: BanditState, size: int) -> Callable[[], object]:
    """A call that chooses a cohort from ``state``."""
    counts = state.speed.inverse.count
    state.target_share = np.asarray(size / len(counts))
    view = RoundView(
        round=max(2, int(counts.sum()) // size),
        cohort_size=size,
        available=np.ones(len(counts), dtype=np.bool_),
    )
    return lambda: POLICY_UNDER_TEST.select(state, view, stream(0, POLICY, 1))


def floor(state: BanditState) -> Callable[[], object]:
    """A call that reads the state once."""
    return partial(read, state.speed.inverse.count, state.speed.inverse.mean)


def main() -> None:
    """Print the table of ratios and whether the bars are met."""
    rows: list[dict[str, Any]] = []
    print(f"{'state':<26}{'K':>10}{'m':>5}{'ms':>10}{'x floor':>9}")
    for name, make in TYPICAL.items():
        for clients in CLIENTS:
            for size in SIZES:
                rng = stream(1, name, clients, size)
                state = state_of(make(clients, size, rng), rng)
                rows.append(_row(name, clients, size, selection(state, size), floor(state)))
    write("bsfl_selection", {"rows": rows, **_bars(rows)})


def _row(
    name: str, clients: int, size: int, choose: Callable[[], object], scan: Callable[[], object]
) -> dict[str, Any]:
    repeat = max(1, 20_000 // clients)
    seconds = in_turns({"choose": choose, "read": scan}, turns=15, repeat=repeat)
    ratio = seconds["choose"] / seconds["read"]
    print(f"{name:<26}{clients:>10,}{size:>5}{seconds['choose'] * 1e3:>10.3f}{ratio:>9.1f}")
    return {
        "state": name,
        "clients": clients,
        "cohort_size": size,
        "seconds": seconds["choose"],
        "times_floor": ratio,
    }


def _bars(rows: list[dict[str, Any]]) -> dict[str, Any]:
    hardest = max(
        row["times_floor"]
        for row in rows
        if row["clients"] == CLIENTS[-1] and row["cohort_size"] == SIZES[-1]
    )
    seconds = {(r["state"], r["clients"], r["cohort_size"]): r["seconds"] for r in rows}
    exponent = max(
        math.log(seconds[name, 1_000_000, size] / seconds[name, 10_000, size]) / math.log(100)
        for name in TYPICAL
        for size in SIZES
    )
    print(
        f"typical states, K = 10^6, m = 100: at most {hardest:.1f} x the floor (bar {BAR:g}: "
        f"{'met' if hardest <= BAR else 'missed'}); growth exponent 10^4 … 10^6 at most "
        f"{exponent:.2f} (bar {EXPONENT_BAR:g}: {'met' if exponent <= EXPONENT_BAR else 'missed'})"
    )
    return {"worst_typical_times_floor": hardest, "worst_growth_exponent": exponent}


if __name__ == "__main__":
    main()
