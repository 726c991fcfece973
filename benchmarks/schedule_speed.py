"""MAB-CS's schedule (Algorithm 1): ours, a vectorised scan of all candidates, and plain Python.

    python -m benchmarks.schedule_speed

All three choose the same clients, or the benchmark fails. ``STATES`` makes the times: those of the
paper's cell, where uploads take longest; updates that take longest, where clients must be waited
for; optimistic times of Element-wise MAB-CS, many of them negative; and first rounds, in which
nothing is known. Plain Python is measured up to 10^6 times looked at.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.measure import in_turns, write
from fedmuster.core.records import FloatArray
from fedmuster.core.streams import stream
from fedmuster.solvers.schedule import greedy_schedule
from fedmuster.worlds.lte_cell import LTECell

CANDIDATES = (10, 10_000, 1_000_000)
SIZES = (5, 100, 1_000)
MOST_LOOKS_IN_PYTHON = 10**6
MOST_LOOKS_IN_NUMPY = 10**8

Times = tuple[FloatArray, FloatArray]
"""Seconds of update and of upload."""


def cell(candidates: int, rng: Generator) -> Times:
    """The still means of the paper's cell."""
    distance = 2_000.0 * np.sqrt(rng.random(candidates))
    update = rng.integers(100, 1_001, candidates) / rng.uniform(10.0, 100.0, candidates)
    # Nobody is as near as the next, even where the throughput is the highest there is.
    upload = 8 * 18.3e6 / LTECell().throughput(distance) + 1e-6 * rng.random(candidates)
    return update, upload


def slow_updates(candidates: int, rng: Generator) -> Times:
    return rng.exponential(1e4, candidates), rng.exponential(1.0, candidates)


def optimistic(candidates: int, rng: Generator) -> Times:
    update, upload = cell(candidates, rng)
    bonus = np.sqrt(8.0 / rng.integers(1, 30, candidates))
    return update / 50.0 - bonus, upload / 50.0 - bonus


def first_round(candidates: int, rng: Generator) -> Times:
    del rng
    return np.zeros(candidates), np.zeros(candidates)


STATES: Mapping[str, Callable[[int, Generator], Times]] = {
    "cell": cell,
    "slow updates": slow_updates,
    "optimistic": optimistic,
    "first round": first_round,
}


def scan(update: FloatArray, upload: FloatArray, size: int) -> list[int]:
    """K candidates in each of m steps, vectorised."""
    left, elapsed, longest = update.copy(), 0.0, 0.0
    chosen = []
    for _ in range(size):
        added = np.maximum(upload - longest, 0.0) + np.maximum(left - elapsed, 0.0) + upload
        best = int(added.argmin())
        chosen.append(best)
        elapsed = max(elapsed, left[best]) + upload[best]
        longest = max(longest, upload[best])
        left[best] = np.inf
    return chosen


def plain(update: list[float], upload: list[float], size: int) -> list[int]:
    """Algorithm 1 as it is printed."""
    left = list(range(len(update)))
    chosen: list[int] = []
    t = longest = 0.0
    for _ in range(size):
        added = {
            k: max(upload[k] - longest, 0.0) + max(update[k] - (t - longest), 0.0) + upload[k]
            for k in left
        }
        best = min(added, key=added.__getitem__)
        left.remove(best)
        t += added[best]
        longest = max(longest, upload[best])
        chosen.append(best)
    return chosen


def main() -> None:
    """Print times and ratios."""
    rows: list[dict[str, Any]] = []
    print(f"{'times':<14}{'K':>10}{'m':>6}{'ms':>10}{'scan / ours':>13}{'Python / ours':>15}")
    for name, make in STATES.items():
        for candidates in CANDIDATES:
            for size in SIZES:
                if size <= candidates:
                    times = make(candidates, stream(0, name, candidates))
                    rows.append(_row(name, times, size))
    write("schedule_speed", rows)


def _row(name: str, times: Times, size: int) -> dict[str, Any]:
    candidates = len(times[0])
    looks = candidates * size
    contenders: dict[str, Callable[[], object]] = {
        "ours": partial(greedy_schedule, *times, size, stream(0, "benchmark"))
    }
    if looks <= MOST_LOOKS_IN_NUMPY:
        contenders["scan"] = partial(scan, *times, size)
    if looks <= MOST_LOOKS_IN_PYTHON:
        contenders["plain"] = partial(plain, times[0].tolist(), times[1].tolist(), size)
    if name != "first round":
        _check(contenders)
    turns, repeat = (3, 1) if looks > 10**6 else (7, max(1, 2_000 // candidates))
    seconds = in_turns(contenders, turns=turns, repeat=repeat)
    ratios = {what: seconds[what] / seconds["ours"] for what in seconds if what != "ours"}
    cells = "".join(
        f"{ratios[what]:>{width}.1f}" if what in ratios else f"{'–':>{width}}"
        for what, width in (("scan", 13), ("plain", 15))
    )
    print(f"{name:<14}{candidates:>10,}{size:>6}{1e3 * seconds['ours']:>10.3f}{cells}", flush=True)
    return {
        "times": name,
        "candidates": candidates,
        "cohort_size": size,
        "seconds": seconds["ours"],
        **{f"{what}_over_ours": ratio for what, ratio in ratios.items()},
    }


def _check(contenders: Mapping[str, Callable[[], Any]]) -> None:
    """The same clients in the same order, whoever chooses."""
    found = {name: np.asarray(choose()).tolist() for name, choose in contenders.items()}
    for name, chosen in found.items():
        if chosen != found["ours"]:
            raise AssertionError(f"{name} chose otherwise than ours")


if __name__ == "__main__":
    main()
