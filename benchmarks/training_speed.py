"""How fast federated training is: ours, plain PyTorch loops, Flower's simulation, Apple's pfl.

    python -m benchmarks.training_speed [W1 W2 W3 W4]

All contenders train the same models on the same samples in the same order, each in a process of
its own, in turns; start-up, the first turn and evaluation are not measured. That they do the same
work is checked: after a first round their global models agree. Each is compared with ours on as
many cores, or on one where we need no more. Who is not installed is left out: see
``benchmarks/README.md``.

Bars: never slower than the best plain loop; on W2 at least 10 times as fast as Flower's simulation
and twice as fast as pfl.
"""

import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import metadata
from statistics import median
from typing import Any

import numpy as np

from benchmarks.measure import write
from benchmarks.training.contenders import CONTENDERS, LOOPS, OURS, REFERENCE, Contender
from benchmarks.training.turns import Process
from benchmarks.training.workloads import WORKLOADS, Tensors, Workload

PEER_BARS = {"Flower": 10.0, "pfl": 2.0}
PEER_WORKLOAD = "W2"
PACKAGES = ("torch", "flwr", "ray", "pfl")


@dataclass(kw_only=True, slots=True)
class Score:
    """What was measured of a contender: in each turn, seconds a round; and its models."""

    contender: Contender
    seconds: list[float] = field(default_factory=list)
    processor_seconds: list[float] = field(default_factory=list)
    first_model: Tensors = field(default_factory=list)
    model: Tensors = field(default_factory=list)
    failure: str = ""

    @property
    def round_seconds(self) -> float:
        """Median over the turns."""
        return median(self.seconds)

    @property
    def round_processor_seconds(self) -> float:
        """Mean over the turns, for the clock of the operating system ticks slowly."""
        return float(np.mean(self.processor_seconds))


def main() -> None:
    """Print a table for each workload; exit with 1 if a contender failed or did other work."""
    wanted = tuple(sys.argv[1:])
    faults: list[str] = []
    for name, workload in WORKLOADS.items():
        if wanted and not name.startswith(wanted):
            continue
        load = os.getloadavg()[0]
        print(f"\n{name}: {workload.title}; {workload.rounds * workload.turns} rounds", flush=True)
        scores = [Score(contender=c) for c in CONTENDERS if name in c.workloads]
        play(name, workload, scores)
        rows = table(workload, scores)
        bars(name, rows)
        strange = [row for row in rows if row["difference"] > workload.agreement]
        faults += [f"{name}: {row['contender']}" for row in strange]
        faults += [f"{name}: {s.contender.name}" for s in scores if s.failure == "failed"]
        versions = {package: _version(package) for package in PACKAGES}
        write(
            f"training_speed_{name.replace(' ', '_')}",
            {"packages": versions, "load_average_before": load, "rows": rows},
        )
    if faults:
        sys.exit(f"failed, or trained another model: {'; '.join(faults)}")


def play(name: str, workload: Workload, scores: Sequence[Score]) -> None:
    """Let all contenders that are installed play: a first round, and then all rounds in turns."""
    for score in scores:
        if missing := score.contender.missing:
            score.failure = f"not installed ({', '.join(missing)})"
    one_round = replace(workload, rounds=1, turns=0)
    for score, process in _start(name, one_round, scores):
        with _failing(score):
            process.play(1)
            score.first_model = process.finish()
    processes = _start(name, workload, scores)
    for turn in range(workload.turns + 1):
        for score, process in processes:
            if score.failure:
                continue
            with _failing(score):
                before = process.processor_seconds()
                seconds = process.play(workload.rounds)
                if turn > 0:
                    spent = process.processor_seconds() - before
                    score.seconds.append(seconds / workload.rounds)
                    score.processor_seconds.append(spent / workload.rounds)
    for score, process in processes:
        if not score.failure:
            score.model = process.finish()


def _start(
    name: str, workload: Workload, scores: Sequence[Score]
) -> list[tuple[Score, Process[Tensors]]]:
    return [(s, s.contender.start(name, workload)) for s in scores if not s.failure]


@contextmanager
def _failing(score: Score) -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError):  # the process has printed why
        score.failure = "failed"


def table(workload: Workload, scores: Sequence[Score]) -> list[dict[str, Any]]:
    """Print and return what was measured."""
    print(
        f"{'':<40}{'cores':>6}{'updates/s':>11}{'rounds/s':>10}{'ms/round':>10}{'x ours':>8}"
        f"{'CPU ms':>10}{'x ours':>8}{'difference':>12}{'in the end':>12}"
    )
    rows = []
    start: Tensors = []
    if not all(score.failure for score in scores):  # without PyTorch nobody plays
        start = [tensor.detach().numpy() for tensor in workload.network().parameters()]
    reference = next(s for s in scores if s.contender.name == REFERENCE)
    ours = {s.contender.cores: s for s in scores if s.contender.name in OURS and s.seconds}
    for score in scores:
        contender = score.contender
        if score.failure:
            print(f"{contender.name:<40}{contender.cores:>6}  {score.failure}")
            continue
        standard = ours.get(contender.cores) or ours.get(1) or score
        seconds, spent = score.round_seconds, score.round_processor_seconds
        row = {
            "contender": contender.name,
            "cores": contender.cores,
            "client_updates_per_second": workload.cohort_size / seconds,
            "rounds_per_second": 1 / seconds,
            "round_seconds": seconds,
            "times_ours": seconds / standard.round_seconds,
            "round_processor_seconds": spent,
            "processor_times_ours": spent / (standard.round_processor_seconds or math.nan),
            "difference": difference(score.first_model, reference.first_model, start),
            "difference_in_the_end": difference(score.model, reference.model, start),
        }
        rows.append(row)
        print(
            f"{contender.name:<40}{contender.cores:>6}{row['client_updates_per_second']:>11.1f}"
            f"{row['rounds_per_second']:>10.2f}{1e3 * seconds:>10.2f}{row['times_ours']:>8.2f}"
            f"{1e3 * spent:>10.2f}{row['processor_times_ours']:>8.2f}{row['difference']:>12.1e}"
            f"{row['difference_in_the_end']:>12.1e}"
        )
    return rows


def difference(model: Tensors, reference: Tensors, start: Tensors) -> float:
    """Distance of two models, over how far the second has come; NaN if there is none."""
    return _distance(model, reference) / _distance(start, reference) if reference else math.nan


def bars(name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Say which bars are met."""
    loops = [row for row in rows if row["contender"] in LOOPS]
    if loops and any(row["contender"] in OURS for row in rows):
        best = min(loops, key=lambda row: row["times_ours"])
        print(
            f"bar: at most the time of the best plain loop ({best['contender']}): "
            f"{best['times_ours']:.2f} x as fast, {_met(best['times_ours'] >= 1)}"
        )
    for peer, bar in PEER_BARS.items():
        for row in rows:
            if name == PEER_WORKLOAD and row["contender"].startswith(peer):
                print(
                    f"bar: at least {bar:g} x as fast as {peer}: {row['times_ours']:.1f} x, "
                    f"{_met(row['times_ours'] >= bar)}"
                )


def _met(met: bool) -> str:
    return "met" if met else "missed"


def _distance(one: Tensors, other: Tensors) -> float:
    squares = [np.sum((a - b).astype(np.float64) ** 2) for a, b in zip(one, other, strict=True)]
    return float(np.sqrt(np.sum(squares)))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
