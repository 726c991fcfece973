"""What FedSUV's section 6.2 says of rounds to accuracy and of final accuracy, and why."""

import math
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from fedmuster.claims.bsfl_training import settled
from fedmuster.claims.claim import Finding
from fedmuster.claims.fedsuv_tasks import FEDAVG, FEDSUV
from fedmuster.core.records import FloatArray
from fedmuster.report.runs import Comparison, Run
from fedmuster.report.statistics import interval, paired
from fedmuster.report.target import Target

Values = Mapping[str, FloatArray]
"""A number of each seed, by policy."""
_MOST_CHOSEN = 20


def rounds_to(target: Target, run: Run) -> float:
    """The first round after which the model is as good as the target; NaN if none."""
    good = np.flatnonzero(run.columns["accuracy"] >= target.value)
    return float(good[0]) + 1 if len(good) else math.nan


def each(comparison: Comparison, of: Callable[[Run], float]) -> dict[str, FloatArray]:
    """A number of every run."""
    return {label: np.array([of(run) for run in runs]) for label, runs in comparison.runs.items()}


def final_percents(comparison: Comparison) -> dict[str, FloatArray]:
    """Accuracy in the last tenth of the time."""
    return {
        label: 100 * values
        for label, values in each(comparison, lambda run: settled(run, "accuracy")).items()
    }


def fewest_rounds(comparison: Comparison, target: Target, server: str) -> Finding:
    """Table 2."""
    rounds = each(comparison, lambda run: rounds_to(target, run))
    rivals = [label for label in rounds if label != FEDSUV]
    in_time = [label for label in rivals if not np.isnan(rounds[label]).any()]
    reached = not np.isnan(rounds[FEDSUV]).any()
    beaten = _better(rounds, in_time, "lower") if reached else []
    return Finding(
        sentence=f"With {server}, FedSUV significantly improves round-to-accuracy: it is at what "
        f"FedAvg comes to in every seed ({target.text}) in fewer rounds than each of the others "
        "(significantly, or they are not in every seed)",
        measured=", ".join(f"{label} {rounds_text(own)}" for label, own in rounds.items())
        + f"; significantly fewer than {', '.join(beaten) or 'none'}",
        holds=reached and beaten == in_time,
    )


def highest_accuracy(comparison: Comparison, server: str) -> Finding:
    """Table 3."""
    ends = final_percents(comparison)
    rivals = [label for label in ends if label != FEDSUV]
    higher, lower = (_better(ends, rivals, word) for word in ("higher", "lower"))
    return Finding(
        sentence=f"With {server}, FedSUV enhances final accuracy (tested as: it has the highest, on"
        " average over seeds)",
        measured=", ".join(f"{label} {percent_text(own)} %" for label, own in ends.items())
        + f"; significantly higher than {', '.join(higher) or 'none'}, significantly lower than "
        + (", ".join(lower) or "none"),
        holds=all(bool(ends[FEDSUV].mean() > ends[label].mean()) for label in rivals),
    )


def more_answers(comparison: Comparison) -> Finding:
    """What eliminating for validity is there for."""
    shares = each(comparison, answered_share)
    difference = paired(shares[FEDSUV], shares[FEDAVG])
    return Finding(
        sentence="FedSUV's clients answer in time more often than FedAvg's (significantly)",
        measured=", ".join(f"{label} {own.mean():.0%}" for label, own in shares.items())
        + " of the asked",
        holds=difference.verdict == "higher",
        ours=True,
    )


def less_data(comparison: Comparison) -> Finding:
    """What choosing the same clients again and again costs."""
    shares = each(comparison, data_share)
    difference = paired(shares[FEDSUV], shares[FEDAVG])
    counts = each(comparison, different_clients)
    return Finding(
        sentence="FedSUV chooses the owners of less data than FedAvg (significantly)",
        measured=", ".join(
            f"{label} {own.mean():.0%} ({counts[label].mean():,.0f} clients)"
            for label, own in shares.items()
        ),
        holds=difference.verdict == "lower",
        ours=True,
    )


def answered_share(run: Run) -> float:
    """Of the asked."""
    return float(run.columns["num_completed"].sum() / run.cohort_sizes.sum())


def data_share(run: Run) -> float:
    """How much of all data belongs to clients that were chosen at least once."""
    ever = run.selection_counts() > 0
    if run.num_samples is None:
        return float(ever.mean())
    return float(run.num_samples[ever].sum() / run.num_samples.sum())


def different_clients(run: Run) -> float:
    """How many were chosen at least once."""
    return float(np.count_nonzero(run.selection_counts()))


def most_chosen_share(run: Run) -> float:
    """How many of the choices went to the 20 clients who were chosen most often."""
    counts = run.selection_counts()
    return float(np.sort(counts)[-_MOST_CHOSEN:].sum() / counts.sum())


def chosen_validity(run: Run) -> float:
    """The mean probability of being in time of whoever was chosen."""
    assert run.validity is not None
    return float(np.average(run.validity, weights=run.selection_counts()))


def rounds_text(values: FloatArray) -> str:
    """The mean over the seeds that got there, and how many did if not all."""
    known = values[np.isfinite(values)]
    if len(known) == 0:
        return "never"
    text = f"{known.mean():.0f}"
    return text if len(known) == len(values) else f"{text} ({len(known)} of {len(values)} seeds)"


def percent_text(values: FloatArray) -> str:
    """With its interval."""
    around = interval(values)
    return f"{around.mean:.2f} ± {around.half_width:.2f}"


def _better(values: Values, rivals: list[str], wanted: Literal["lower", "higher"]) -> list[str]:
    """Those from whom FedSUV differs significantly in the wanted direction."""
    return [
        label
        for label in rivals
        if paired(values[FEDSUV], values[label], comparisons=len(rivals)).verdict == wanted
    ]
