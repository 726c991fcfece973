"""PAUSE, Fig. 2–15: accuracy and leakage against latency, in small and large networks."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from fedmuster.claims import pause_findings as findings
from fedmuster.claims.claim import Claim, Evidence, RunCells, play
from fedmuster.claims.pause_tasks import (
    CNN3,
    CNN5,
    LARGE_DEEP,
    LARGE_MNIST,
    LARGE_R1,
    LARGE_R2,
    SMALL_NON_IID,
    SMALL_R1,
    SMALL_R2,
    Task,
    full,
)
from fedmuster.report.summary import summarise
from fedmuster.report.tables import tables

_SIMULATED = (
    "Every policy starts without knowing anything of its clients; fastest is told their mean "
    "latencies. Noise is seeded: privacy is simulated."
)


_EQUAL_DATA = (
    "Where all have equally much data, clustered sampling (by size, as the authors have it) is "
    "uniform sampling, as random's is."
)


_UNEQUAL_DATA = (
    "Updates are weighted by data; clustered sampling wants equal weights, for it counts data by "
    "choosing: that costs it something here."
)
_LATENCY = (
    "That SA-PAUSE's rounds must not take longer was asked after its first full run had been seen, "
    "in which it matched PAUSE in accuracy and leakage but was hardly faster than random."
)
_SETTLED = (
    "What a policy ends with is the mean of the evaluations in the last tenth of its time, ± the "
    "half width of a 95 % interval over seeds; the table below has the last evaluation."
)


def _gather(
    folder: Path, *, quick: bool, run: RunCells, task: Task, leakage: Literal["epochs", "time"]
) -> Evidence:
    from fedmuster.report import figures

    if quick:
        task = task.quick()
    comparison = play(task.experiment(), folder, run)
    summary = summarise(comparison, task.baseline)
    other: Literal["epochs", "time"] = "time" if leakage == "epochs" else "epochs"
    found = [
        findings.is_sooner(summary),
        findings.ends_higher(comparison),
        findings.best_on_the_way(comparison),
        findings.nears_no_privacy(comparison),
        findings.approximated(comparison),
        findings.leaks_less(comparison, leakage),
        findings.leaks_less(comparison, other)._replace(ours=True),
        findings.coincide(comparison),
        findings.below_the_cap(comparison),
        findings.below_theorem_3(comparison, task.network),
    ]
    if task.network.policy.rho > 0:
        plain = replace(task, network=task.network.with_rho(0.0)).pause_alone()
        found += findings.clusters_cost(comparison, play(plain, folder / "r1", run))
    found.append(findings.whole_update(comparison))
    if task.other_mechanisms:
        others = {
            label: play(task.pause_alone(mechanism), folder / label, run)
            for label, mechanism in task.other_mechanisms.items()
        }
        found.append(findings.still_learns(others))
    return Evidence(
        setting=task.describe(),
        findings=tuple(found),
        tables=tables(summary),
        figures={
            "accuracy": figures.accuracy(comparison, summary.target),
            "leakage": figures.leakage(comparison),
        },
        notes=(
            *task.notes,
            _EQUAL_DATA if task.iid else _UNEQUAL_DATA,
            _LATENCY,
            _SETTLED,
            _SIMULATED,
        ),
    )


_SUPERIOR = (
    "PAUSE consistently achieves both accurate learning and rapid convergence, SA-PAUSE "
    "approximates it, and its privacy leakage is lower than that of the others."
)
_CONSTRAINED = (
    " Network constraints (R2) mildly worsen how it manages leakage, and affect convergence, "
    "especially in its early stages."
)
_FIGURES: dict[str, tuple[str, Literal["epochs", "time"], Task]] = {
    "pause-small-r1": ("Fig. 2, 4", "epochs", SMALL_R1),
    "pause-small-r2": ("Fig. 3, 5", "epochs", SMALL_R2),
    "pause-small-non-iid": ("Fig. 6, 7", "time", SMALL_NON_IID),
    "pause-mnist": ("Fig. 8, 9", "time", LARGE_MNIST),
    "pause-cifar-r1": ("Fig. 10, 12", "time", LARGE_R1),
    "pause-cifar-r2": ("Fig. 11, 13", "time", LARGE_R2),
    "pause-cifar-large": ("Fig. 14, 15", "time", LARGE_DEEP),
}
_FULL = {
    "pause-small-r1": full(SMALL_R1, CNN3, rounds=300),
    "pause-small-r2": full(SMALL_R2, CNN3, rounds=300),
    "pause-small-non-iid": full(SMALL_NON_IID, CNN3, rounds=400),
    "pause-cifar-r1": full(LARGE_R1, CNN3, rounds=500),
    "pause-cifar-r2": full(LARGE_R2, CNN3, rounds=600),
    "pause-cifar-large": full(LARGE_DEEP, CNN5, rounds=500),
}


def _claim(name: str, *, whole: bool) -> Claim:
    source, leakage, task = _FIGURES[name]
    reduced = name in _FULL and not whole
    return Claim(
        name=f"{name}-full" if whole else name,
        source=f"PAUSE, {source}" + (", reduced" if reduced else ""),
        statement=_SUPERIOR + (_CONSTRAINED if task.network.policy.rho > 0 else ""),
        gather=partial(_gather, task=_FULL[name] if whole else task, leakage=leakage),
        heavy=whole,
    )


TRAINING = (
    *(_claim(name, whole=False) for name in _FIGURES),
    *(_claim(name, whole=True) for name in _FULL),
)
