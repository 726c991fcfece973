"""Oort's selection among a million explored clients, against plain numpy and plain Python.

All three follow the same rule: clip, score, penalise, cut off, draw by score. *Plain numpy* sorts
durations, utilities and scores and draws with ``Generator.choice``; *plain Python* keeps a
dictionary for each client, as the authors' code does, and is timed on fewer clients. Bar: at most
100 ms a choice at K = 10^6.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.measure import in_turns, write
from fedmuster.core.records import IntArray, Problem, RoundView
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.oort.policy import Oort, OortState
from fedmuster.policies.oort.scores import TrackRecord

CLIENTS = (1_000, 10_000, 100_000, 1_000_000)
SIZES = (10, 100)
LONGEST_PYTHON = 100_000
ROUND = 5_000
BAR_SECONDS = 0.1
POLICY_UNDER_TEST = Oort()


def state_of(clients: int, rng: Generator) -> OortState:
    """Everybody explored, in all rounds so far, with log-normal utilities and durations."""
    state = POLICY_UNDER_TEST.init(Problem(num_clients=clients, cohort_size=1))
    state.record.utility[:] = rng.lognormal(3.0, 1.0, clients)
    state.record.seconds[:] = rng.lognormal(2.0, 0.7, clients)
    state.record.last_round[:] = rng.integers(1, ROUND, clients)
    state.record.times[:] = 1
    return state


def plain_numpy(record: TrackRecord, size: int, percentile: float, rng: Generator) -> IntArray:
    """The rule in the fewest lines of numpy."""
    policy, number = POLICY_UNDER_TEST, len(record.utility)
    preferred = np.sort(record.seconds)[int(percentile / 100 * number)]
    ordered = np.sort(record.utility)
    low, high = 0.999 * ordered[0], ordered[int(policy.clip * number)]
    score = (np.minimum(record.utility, high) - low) / (high - low)
    score += np.sqrt(policy.staleness * math.log(ROUND) / record.last_round)
    slow = record.seconds > preferred
    score[slow] *= (preferred / record.seconds[slow]) ** policy.slow_penalty
    order = np.argsort(score)[::-1]
    near = order[score[order] >= policy.cut_off * score[order[size - 1]]]
    return rng.choice(near, size, replace=False, p=score[near] / score[near].sum())


def plain_python(
    arms: dict[int, dict[str, float]], size: int, percentile: float, rng: Generator
) -> IntArray:
    """The rule client by client."""
    policy = POLICY_UNDER_TEST
    durations = sorted(arm["seconds"] for arm in arms.values())
    preferred = durations[int(percentile / 100 * len(arms))]
    ordered = sorted(arm["utility"] for arm in arms.values())
    low, high = 0.999 * ordered[0], ordered[int(policy.clip * len(arms))]
    scores = {}
    for client, arm in arms.items():
        score = (min(arm["utility"], high) - low) / (high - low)
        score += math.sqrt(policy.staleness * math.log(ROUND) / arm["last_round"])
        if arm["seconds"] > preferred:
            score *= (preferred / arm["seconds"]) ** policy.slow_penalty
        scores[client] = score
    ranked = sorted(scores, key=lambda client: scores[client], reverse=True)
    bar = policy.cut_off * scores[ranked[size - 1]]
    near = [client for client in ranked if scores[client] >= bar]
    total = sum(scores[client] for client in near)
    chances = [scores[client] / total for client in near]
    return rng.choice(near, size, replace=False, p=chances)


def contenders(clients: int, size: int) -> dict[str, Callable[[], object]]:
    """The calls that choose a cohort from the same state."""
    state = state_of(clients, stream(1, "oort", clients))
    record, percentile = state.record, float(state.pacer.percentile)
    view = RoundView(round=ROUND, cohort_size=size, available=np.ones(clients, dtype=np.bool_))
    calls: dict[str, Callable[[], object]] = {
        "ours": lambda: POLICY_UNDER_TEST.select(state, view, stream(0, POLICY, 1)),
        "numpy": lambda: plain_numpy(record, size, percentile, stream(0, POLICY, 1)),
    }
    if clients <= LONGEST_PYTHON:
        columns = ("utility", "seconds", "last_round")
        values = zip(*(getattr(record, name).tolist() for name in columns), strict=True)
        arms = {k: dict(zip(columns, row, strict=True)) for k, row in enumerate(values)}
        calls["python"] = lambda: plain_python(arms, size, percentile, stream(0, POLICY, 1))
    return calls


def main() -> None:
    """Print the table of times and ratios and whether the bar is met."""
    rows: list[dict[str, Any]] = []
    print(f"{'K':>10}{'m':>5}{'ours ms':>10}{'numpy ms':>10}{'x':>6}{'python ms':>11}{'x':>7}")
    for clients in CLIENTS:
        for size in SIZES:
            turns = 15 if clients < LONGEST_PYTHON else 9
            seconds = in_turns(contenders(clients, size), turns=turns)
            ours, plain, python = seconds["ours"], seconds["numpy"], seconds.get("python")
            rows.append({"clients": clients, "cohort_size": size, "seconds": seconds})
            line = f"{clients:>10,}{size:>5}{ours * 1e3:>10.2f}{plain * 1e3:>10.2f}"
            line += f"{plain / ours:>6.1f}"
            print(line + ("" if python is None else f"{python * 1e3:>11.1f}{python / ours:>7.0f}"))
    worst = max(row["seconds"]["ours"] for row in rows if row["clients"] == CLIENTS[-1])
    print(
        f"K = 10^6: at most {worst * 1e3:.0f} ms a choice (bar {BAR_SECONDS * 1e3:.0f} ms: "
        f"{'met' if worst <= BAR_SECONDS else 'missed'})"
    )
    write("oort_selection", {"rows": rows, "worst_seconds_of_a_million": worst})


if __name__ == "__main__":
    main()
