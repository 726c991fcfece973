"""BSFL, Tables 1 and 2: how alpha and beta change the test accuracy on CIFAR-10, i.i.d."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from claims.bsfl.training import CIFAR
from claims.claim import Claim, Evidence, Finding, RunCells, play
from claims.measures import INTERVALS, number, points, settled
from fedmuster import BSFL
from fedmuster.core.records import FloatArray
from fedmuster.report.runs import Run
from fedmuster.report.statistics import interval, paired
from fedmuster.report.tables import Table

_BEST = BSFL(alpha=2.0, beta=1.0)  # BSFL Table 3
_ALPHAS = {0.1: 0.58, 1.0: 0.63, 2.0: 0.67, 3.0: 0.66, 10.0: 0.62}  # BSFL Table 1
_BETAS = {0.1: 0.60, 0.8: 0.65, 1.0: 0.67, 1.2: 0.66, 5.0: 0.61}  # BSFL Table 2


def _gather(
    folder: Path,
    *,
    quick: bool,
    run: RunCells,
    parameter: str,
    published: Mapping[float, float],
    seconds: float,
) -> Evidence:
    from fedmuster.report import figures

    task = replace(CIFAR, seconds=seconds)
    if quick:
        task = task.quick()
    policies = {f"{parameter} = {value:g}": _variant(parameter, value) for value in published}
    comparison = play(task.experiment(policies), folder, run)
    accuracy: dict[float, FloatArray] = {
        value: np.array([settled(r, "accuracy") for r in comparison.runs[label]])
        for value, label in zip(published, policies, strict=True)
    }
    middle = max(published, key=lambda value: published[value])
    lowest, highest = min(published), max(published)
    means = {value: float(numbers.mean()) for value, numbers in accuracy.items()}
    best = max(means, key=lambda value: means[value])
    return Evidence(
        setting=task.describe(),
        findings=(
            Finding(
                sentence=f"Accuracy is highest at {parameter} = {middle:g}",
                measured=f"highest at {parameter} = {best:g} ({means[best]:.3f}; at {middle:g}: "
                f"{means[middle]:.3f})",
                holds=best == middle,
            ),
            *(
                Finding(
                    sentence=f"{parameter} = {end:g} is worse than {parameter} = {middle:g} "
                    "(significantly)",
                    measured=_difference(accuracy[middle], accuracy[end]),
                    holds=paired(accuracy[middle], accuracy[end], comparisons=2).verdict
                    == "higher",
                )
                for end in (lowest, highest)
            ),
        ),
        tables=(_table(parameter, published, accuracy, comparison.runs),),
        figures={"accuracy": figures.accuracy(comparison)},
        notes=(
            "A quick look on small data: compare the columns' shapes at most."
            if quick
            else "The paper trains ResNet-18, which takes days without an accelerator; this is an "
            "MLP on the same data, with the same K and m.",
        ),
    )


def _variant(parameter: str, value: float) -> BSFL:
    return replace(_BEST, alpha=value) if parameter == "alpha" else replace(_BEST, beta=value)


def _difference(one: FloatArray, other: FloatArray) -> str:
    difference = paired(one, other, comparisons=2)
    return f"{points(difference, 2)} ({difference.verdict})"


def _table(
    parameter: str,
    published: Mapping[float, float],
    accuracy: Mapping[float, FloatArray],
    runs: Mapping[str, Sequence[Run]],
) -> Table:
    return Table(
        title="Test accuracy at the end",
        columns=(parameter, "paper (ResNet-18)", "ours (MLP)", "rounds", "smallest test loss"),
        rows=tuple(
            (
                f"{value:g}",
                f"{published[value]:.2f}",
                number(interval(accuracy[value]), 3),
                f"{np.mean([run.rounds for run in of_value]):,.0f}",
                f"{np.mean([np.nanmin(run.columns['loss']) for run in of_value]):.3f}",
            )
            for value, of_value in zip(published, runs.values(), strict=True)
        ),
        footnotes=(INTERVALS,),
    )


ALPHA = Claim(
    name="bsfl-table-1",
    source="BSFL, Table 1, reduced",
    statement="With alpha from 0.1 to 10 the accuracy rises from 0.58 to 0.67 (alpha = 2) and "
    "falls to 0.62 again.",
    gather=partial(_gather, parameter="alpha", published=_ALPHAS, seconds=400.0),
)
BETA = Claim(
    name="bsfl-table-2",
    source="BSFL, Table 2, reduced",
    statement="With beta from 0.1 to 5 the accuracy rises from 0.60 to 0.67 (beta = 1) and falls "
    "to 0.61 again.",
    gather=partial(_gather, parameter="beta", published=_BETAS, seconds=100.0),
)
