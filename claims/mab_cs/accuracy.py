"""MAB-CS, Fig. 3: whether the choice of clients affects the accuracy of the model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np

from claims.claim import Claim, Evidence, Finding, RunCells, play, seeds
from claims.mab_cs.lte_cell import ELEMENT_WISE, FEDCS, NAIVE, SETTING, cell, policies
from claims.measures import (
    LAST_ROUNDS,
    ONE_SIDED,
    each,
    equivalence,
    number,
    percent,
    settled_accuracy,
)
from claims.published import PUBLISHED_RULES
from fedmuster.core.records import FloatArray
from fedmuster.experiments.spec import Experiment
from fedmuster.report.runs import Comparison
from fedmuster.report.statistics import interval
from fedmuster.report.summary import Summary, summarise
from fedmuster.report.tables import tables
from fedmuster.training.data import CIFAR10, Data, Digits
from fedmuster.training.local_sgd import LocalSGD, StepDecay
from fedmuster.training.models import MLP, Model
from fedmuster.training.networks import MABCSCNN, SmallCNN
from fedmuster.training.partition import Sampled
from fedmuster.training.training import Training

_ETA = 1.5
_SIMILAR = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class CellTask:
    """A training task in the cell.

    Args:
        data: of which every client draws 100 … 1000 samples of its own.
        model: which model.
        local: how clients train.
        rounds: how many.
        seeds: how many.
    """

    data: Data
    model: Model
    local: LocalSGD
    rounds: int
    seeds: int

    def experiment(self) -> Experiment:
        """The experiment with all four policies."""
        return Experiment(
            federation=PUBLISHED_RULES,
            policies=policies(),
            world=cell(_ETA),
            rounds=self.rounds,
            seeds=seeds(self.seeds),
            regret=False,
            training=Training(
                data=self.data,
                partition=Sampled(),
                model=self.model,
                local=self.local,
                evaluate_every=5,
            ),
        )

    def quick(self) -> "CellTask":
        """Digits and an MLP, which need no download."""
        local = replace(self.local, learning_rate=0.1, epochs=1)
        return replace(
            self, data=Digits(), model=MLP(hidden=(32,)), local=local, rounds=10, seeds=2
        )

    def describe(self) -> str:
        """The setting of the task, for the page."""
        epochs = self.local.epochs or 1
        return (
            f"{SETTING}; eta = {_ETA}; {self.data.name}, of which every client draws 100 … 1000 "
            f"samples at random, {self.model.name}, SGD with {epochs} epoch{'s' * (epochs > 1)} in "
            f"batches of {self.local.batch_size} a round, learning rate "
            f"{self.local.learning_rate:g} falling by 1 % a round, {self.rounds:,} rounds, "
            f"{self.seeds} seeds"
        )


def _gather(folder: Path, *, quick: bool, run: RunCells, task: CellTask) -> Evidence:
    from fedmuster.report import figures

    if quick:
        task = task.quick()
    comparison = play(task.experiment(), folder, run)
    summary = summarise(comparison, FEDCS)
    return Evidence(
        setting=task.describe(),
        findings=(similar(comparison), *_sooner(summary)),
        tables=tables(summary),
        figures={"accuracy": figures.accuracy(comparison, summary.target)},
        notes=(
            f"Similar means: for every two of the four the difference lies within ± "
            f"{100 * _SIMILAR:g} points, shown by two one-sided tests at {100 * ONE_SIDED:g} % on "
            "the paired differences (so that a few noisy seeds do not pass for agreement). All "
            "pairs have to pass, which needs no correction for their number.",
            f"What a policy ends with is the mean of the evaluations in the last "
            f"{100 * (1 - LAST_ROUNDS):.0f} % of the rounds; the tables have the last evaluation.",
            "How much time each saves the more resources fluctuate: see mab-cs-elapsed.",
            *_REDUCED[task.model.name],
        ),
    )


_REDUCED: Mapping[str, tuple[str, ...]] = {
    SmallCNN.name: (
        "The paper trains a CNN of 4.6 million parameters for five epochs a round at a learning "
        "rate of 0.25, over as many rounds as it does not say. This is a small CNN with one epoch, "
        "at a learning rate that fits it. The simulated seconds are those of the paper's model: "
        "18.3 MB to upload.",
    ),
    MLP.name: ("A quick look on small data: it decides nothing.",),
    MABCSCNN.name: (),
}


def similar(comparison: Comparison) -> Finding:
    """Two one-sided tests for every two policies."""
    ends = each(comparison, settled_accuracy)
    gaps = {pair: equivalence(ends[pair[0]], ends[pair[1]]) for pair in combinations(ends, 2)}
    widest = max(gaps, key=lambda pair: max(gaps[pair].high, -gaps[pair].low))
    around = gaps[widest]
    return Finding(
        sentence="All algorithms yield similar prediction accuracy (tested as: within "
        f"± {100 * _SIMILAR:g} points of each other)",
        measured=", ".join(f"{label} {percent(interval(own), 2)}" for label, own in ends.items())
        + f"; the two furthest apart are {widest[0]} and {widest[1]}: between "
        f"{100 * around.low:.2f} and {100 * around.high:.2f} points",
        holds=all(gap.low > -_SIMILAR and gap.high < _SIMILAR for gap in gaps.values()),
    )


def _sooner(summary: Summary) -> list[Finding]:
    by_label = {policy.label: policy for policy in summary.policies}
    base = by_label[FEDCS].values["seconds_to_target"]
    target = "" if summary.target is None else summary.target.text
    found = []
    for label in (NAIVE, ELEMENT_WISE):
        difference = by_label[label].differences.get("seconds_to_target")
        took = by_label[label].values["seconds_to_target"]
        found.append(
            Finding(
                sentence=f"{label} reaches {target} significantly sooner than FedCS, in simulated "
                "time",
                measured=f"{_hours(took)} against {_hours(base)}",
                holds=difference is not None and difference.verdict == "lower",
                ours=True,
            )
        )
    return found


def _hours(seconds: FloatArray) -> str:
    """The mean over the seeds, if all of them got there."""
    if np.isnan(seconds).any():
        return f"only {np.count_nonzero(np.isfinite(seconds))} of {len(seconds)} seeds"
    return f"{number(interval(seconds / 3600), 2)} h"


_DECAY = StepDecay(every=1, gamma=0.99)
_FULL = CellTask(
    data=CIFAR10(),
    model=MABCSCNN(),
    local=LocalSGD(learning_rate=0.25, batch_size=50, epochs=5, schedule=_DECAY),
    rounds=500,
    seeds=3,
)
_REDUCED_TASK = replace(
    _FULL,
    model=SmallCNN(),
    local=replace(_FULL.local, learning_rate=0.1, epochs=1),
    rounds=60,
    seeds=4,
)
_STATEMENT = f"All algorithms yield similar prediction accuracy (eta = {_ETA})."

TRAINING = (
    Claim(
        name="mab-cs-accuracy",
        source="MAB-CS, Fig. 3, reduced",
        statement=_STATEMENT,
        gather=partial(_gather, task=_REDUCED_TASK),
    ),
    Claim(
        name="mab-cs-accuracy-full",
        source="MAB-CS, Fig. 3",
        statement=_STATEMENT,
        gather=partial(_gather, task=_FULL),
        heavy=True,
    ),
)
