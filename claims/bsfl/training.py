"""BSFL, Fig. 7 and 10 (right), 8, 9, 11, 12: test loss and accuracy against simulated time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from claims.claim import Claim, Evidence, Finding, RunCells, play, seeds
from claims.measures import beaten, each, names, reached_text, settled, work_text
from fedmuster import BSFL, CSUCB, CSUCBQ, RBCSF, PowerOfChoice, Random
from fedmuster.core.policy import Policy
from fedmuster.core.records import FloatArray
from fedmuster.experiments.spec import Experiment
from fedmuster.report.runs import Comparison
from fedmuster.report.statistics import interval
from fedmuster.report.summary import Summary, summarise
from fedmuster.report.tables import tables
from fedmuster.training.data import CIFAR10, Data, Digits, FashionMNIST, LinearRegression
from fedmuster.training.local_sgd import LocalSGD, StepDecay
from fedmuster.training.models import MLP, Linear, Model
from fedmuster.training.networks import BSFLCNN, ResNet18, SmallCNN
from fedmuster.training.partition import IID, ExponentialQuality, Partition
from fedmuster.training.training import Training
from fedmuster.worlds import BSFLRates

_MOST_ROUNDS = 1_000_000  # runs end by simulated time
_LABEL_ALPHA = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedTask:
    """One row of BSFL's Table 3.

    Args:
        data: what is learned.
        model: which model.
        iid: whether all clients have alike data.
        local: how clients train.
        alpha: of BSFL.
        beta: of BSFL.
        seconds: of simulated time.
        num_clients: K.
        cohort_size: m.
        rest: how fast most clients are, see :class:`~fedmuster.worlds.BSFLRates`.
        evaluate_every: rounds.
        seeds: how many.
        also_slow: whether to look at the population of mostly slow clients too.
    """

    data: Data
    model: Model
    iid: bool
    local: LocalSGD
    alpha: float
    beta: float
    seconds: float
    num_clients: int = 500
    cohort_size: int = 25
    rest: Literal["slow", "fast"] = "fast"
    evaluate_every: int = 20
    seeds: int = 3
    also_slow: bool = False

    def experiment(self, policies: Mapping[str, Policy[Any]]) -> Experiment:
        """The experiment that runs these policies on the task."""
        partition: Partition = IID()
        if not self.iid:
            skewed = not isinstance(self.data, LinearRegression)
            partition = ExponentialQuality(label_alpha=_LABEL_ALPHA if skewed else None)
        return Experiment(
            policies=policies,
            world=BSFLRates(
                num_clients=self.num_clients, cohort_size=self.cohort_size, rest=self.rest
            ),
            rounds=_MOST_ROUNDS,
            seconds=self.seconds,
            seeds=seeds(self.seeds),
            regret=False,
            training=Training(
                data=self.data,
                partition=partition,
                model=self.model,
                local=self.local,
                evaluate_every=self.evaluate_every,
            ),
        )

    def quick(self) -> "SpeedTask":
        """A small one of the same kind that needs no download: images become digits."""
        short = replace(self, seconds=2.0, seeds=2, evaluate_every=2)
        if isinstance(self.data, LinearRegression):
            return short
        small = self.model if isinstance(self.model, MLP) else SmallCNN()
        return replace(short, data=Digits(), model=small, num_clients=100, cohort_size=10)

    def rivals(self) -> dict[str, Policy[Any]]:
        """BSFL and the policies that the paper compares it with."""
        return {
            "bsfl": BSFL(alpha=self.alpha, beta=self.beta),
            "cs-ucb": CSUCB(),
            "cs-ucb-q": CSUCBQ(),
            "rbcs-f": RBCSF(),
            "power-of-choice": PowerOfChoice(),
            "random": Random(by_data=not self.iid),
        }

    def describe(self) -> str:
        """The setting of the task, for the page."""
        size = f"{self.local.batch_size}" if self.local.batch_size else "all samples"
        return (
            f"{self.data.name}, {'' if self.iid else 'non-'}i.i.d., {self.model.name}, "
            f"K = {self.num_clients}, m = {self.cohort_size}, alpha = {self.alpha:g}, "
            f"beta = {self.beta:g}, SGD with {work_text(self.local.steps)} in batches of {size} "
            f"a round, learning rate {self.local.learning_rate:g}, {self.seconds:g} s of simulated "
            f"time, {self.seeds} seeds; the rate groups of the authors' code, most "
            f"clients {self.rest}"
        )


def _gather(folder: Path, *, quick: bool, run: RunCells, task: SpeedTask) -> Evidence:
    from fedmuster.report import figures

    if quick:
        task = task.quick()
    comparison = play(task.experiment(task.rivals()), folder, run)
    summary = summarise(comparison, "random")
    findings = [_ends_best(comparison, "loss")]
    drawn = {"loss": figures.loss(comparison, summary.target)}
    if comparison.classifies:
        findings.append(_ends_best(comparison, "accuracy"))
        drawn["accuracy"] = figures.accuracy(comparison, summary.target)
    findings += [_is_first(summary), _beats_random(summary)]
    if task.also_slow:
        findings.append(_among_slow_clients(play(_slow(task), folder / "slow", run)))
    return Evidence(
        setting=task.describe(),
        findings=tuple(findings),
        tables=tables(summary),
        figures=drawn,
        notes=(
            f"Rounds that fit into the time: {_rounds(comparison)}.",
            "Every policy starts without knowing anything of its clients; the authors' runs fill "
            "in counts from the true rates.",
        ),
    )


def _slow(task: SpeedTask) -> Experiment:
    return replace(task, rest="slow").experiment(task.rivals())


def _among_slow_clients(comparison: Comparison) -> Finding:
    found = _ends_best(comparison, "loss")
    return found._replace(
        sentence="The same in the other population of the authors' code, in which nearly all "
        "clients are slow",
        ours=True,
    )


def _ends_best(comparison: Comparison, column: Literal["loss", "accuracy"]) -> Finding:
    sign: Literal["lower", "higher"] = "lower" if column == "loss" else "higher"
    best = "lowest" if column == "loss" else "highest"
    ends = each(comparison, lambda run: settled(run, column))
    others = [label for label in ends if label != "bsfl"]
    worse = beaten(ends, "bsfl", others, sign)
    return Finding(
        sentence=f"BSFL ends with the {best} test {column} (significantly, against each other)",
        measured=", ".join(_with_error(label, values) for label, values in ends.items())
        + f"; significantly {sign} than {names(worse)}",
        holds=worse == others,
    )


def _is_first(summary: Summary) -> Finding:
    times = {policy.label: policy.values["seconds_to_target"] for policy in summary.policies}
    means = {label: float(np.mean(values)) for label, values in times.items()}  # NaN: not reached
    reached = {label: mean for label, mean in means.items() if np.isfinite(mean)}
    target = "" if summary.target is None else summary.target.text
    return Finding(
        sentence=f"BSFL is the first to reach what random comes to in every seed ({target})",
        measured=", ".join(
            f"{label} {reached_text(times[label], '{:.1f} s')}"
            for label in sorted(means, key=_missing_last(means))
        ),
        holds=bool(reached) and min(reached, key=lambda label: reached[label]) == "bsfl",
    )


def _beats_random(summary: Summary) -> Finding:
    (bsfl,) = (policy for policy in summary.policies if policy.label == "bsfl")
    difference = bsfl.differences.get("seconds_to_target")
    times = {policy.label: policy.values["seconds_to_target"] for policy in summary.policies}
    return Finding(
        sentence="BSFL gets there significantly faster than random",
        measured=" against ".join(
            reached_text(times[label], "{:.1f} s") for label in ("bsfl", "random")
        ),
        holds=difference is not None and difference.verdict == "lower",
        ours=True,
    )


def _missing_last(means: Mapping[str, float]) -> Callable[[str], tuple[bool, float]]:
    return lambda label: (bool(np.isnan(means[label])), means[label])


def _with_error(label: str, values: FloatArray) -> str:
    around = interval(values)
    return f"{label} {around.mean:.3g} ± {around.half_width:.2g}"


def _rounds(comparison: Comparison) -> str:
    return ", ".join(
        f"{label} {np.mean([run.rounds for run in runs]):,.0f}"
        for label, runs in comparison.runs.items()
    )


_DECAY = StepDecay(every=500, gamma=0.7)
_LINEAR = SpeedTask(
    data=LinearRegression(),
    model=Linear(),
    iid=True,
    local=LocalSGD(learning_rate=5e-3, batch_size=0, steps=1, schedule=_DECAY),
    alpha=3.0,
    beta=1.2,
    seconds=200.0,
    num_clients=20,
    cohort_size=5,
    evaluate_every=1,
    seeds=5,
    also_slow=True,
)
_LINEAR_NON_IID = replace(
    _LINEAR, iid=False, local=replace(_LINEAR.local, learning_rate=3e-3), seconds=130.0
)
_FASHION = SpeedTask(
    data=FashionMNIST(),
    model=MLP(),
    iid=True,
    local=LocalSGD(learning_rate=0.05, batch_size=20, steps=1, schedule=_DECAY),
    alpha=2.0,
    beta=1.0,
    seconds=400.0,
    seeds=5,
)
CIFAR = replace(
    _FASHION,
    data=CIFAR10(),
    model=MLP(hidden=(128,)),
    local=replace(_FASHION.local, batch_size=10),
    seconds=100.0,
    seeds=3,
)
_FULL_LOCAL = LocalSGD(learning_rate=0.05, batch_size=20, epochs=1, schedule=_DECAY)
_FASHION_FULL = replace(_FASHION, model=BSFLCNN(), local=_FULL_LOCAL)
_CIFAR_FULL = replace(CIFAR, model=ResNet18(), local=_FULL_LOCAL, seconds=400.0, seeds=5)


def _non_iid(task: SpeedTask) -> SpeedTask:
    """BSFL Table 3: other parameters, and half the time."""
    return replace(task, iid=False, alpha=3.0, beta=1.2, seconds=task.seconds / 2)


def _claim(
    name: str, source: str, statement: str, task: SpeedTask, *, heavy: bool = False
) -> Claim:
    return Claim(
        name=name,
        source=f"BSFL, {source}",
        statement=statement,
        gather=partial(_gather, task=task),
        heavy=heavy,
    )


_OUTPERFORMS = "BSFL significantly outperforms the others in both loss and accuracy on test data."
_CONVERGES = "BSFL leads to faster convergence in both loss and accuracy on test data."

TRAINING = (
    _claim(
        "bsfl-linear-iid",
        "Fig. 7 (right)",
        "BSFL achieves the smallest loss values among the algorithms.",
        _LINEAR,
    ),
    _claim(
        "bsfl-linear-non-iid",
        "Fig. 10 (right)",
        "BSFL's loss on test data converges faster.",
        _LINEAR_NON_IID,
    ),
    _claim("bsfl-fashion-iid", "Fig. 8, with an MLP", _OUTPERFORMS, _FASHION),
    _claim("bsfl-fashion-non-iid", "Fig. 11, with an MLP", _CONVERGES, _non_iid(_FASHION)),
    _claim("bsfl-cifar-iid", "Fig. 9, reduced", _OUTPERFORMS, CIFAR),
    _claim("bsfl-cifar-non-iid", "Fig. 12, reduced", _CONVERGES, _non_iid(CIFAR)),
    _claim("bsfl-fashion-iid-full", "Fig. 8", _OUTPERFORMS, _FASHION_FULL, heavy=True),
    _claim("bsfl-fashion-non-iid-full", "Fig. 11", _CONVERGES, _non_iid(_FASHION_FULL), heavy=True),
    _claim("bsfl-cifar-iid-full", "Fig. 9", _OUTPERFORMS, _CIFAR_FULL, heavy=True),
    _claim("bsfl-cifar-non-iid-full", "Fig. 12", _CONVERGES, _non_iid(_CIFAR_FULL), heavy=True),
)
