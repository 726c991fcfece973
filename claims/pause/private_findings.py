"""Findings on what PAUSE's section V says of accuracy, latency and leakage."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from claims.claim import Finding
from claims.measures import Values, beaten, each, names, points, reached_text, settled
from claims.pause.networks import Network
from claims.pause.theorem_3 import bound_use
from fedmuster.core.records import FloatArray
from fedmuster.report.runs import Comparison, Run
from fedmuster.report.statistics import interval, paired
from fedmuster.report.summary import Summary

NO_PRIVACY = "fedavg-no-privacy"
"""The one policy whose clients neither pay nor add noise."""
_NEAR_POINTS = 5.0
_SAME_POINTS = 1.0
_SAME_LEAKAGE = 0.05
_SAME_SECONDS = 0.1
_MILD = 0.10
_LEARNED = 0.2
"""An accuracy that ten classes do not give by chance."""
_PAUSE = "pause"


def ends_higher(comparison: Comparison) -> Finding:
    """Fig. 2, 3, 6, 8, 10, 11, 14, at their right end."""
    ends = _ends(comparison)
    rivals = _rivals(comparison)
    return Finding(
        sentence="PAUSE ends with a higher accuracy than the others with privacy (significantly, "
        "against each)",
        measured=_listed(ends, "%") + _verdict(ends, rivals, "higher"),
        holds=beaten(ends, _PAUSE, rivals, "higher") == rivals,
    )


def best_on_the_way(comparison: Comparison) -> Finding:
    """Who stops in time is not hurt by the noise that comes later."""
    tops = each(comparison, lambda run: 100 * float(np.nanmax(run.columns["accuracy"])))
    rivals = _rivals(comparison)
    return Finding(
        sentence="Also the best accuracy on the way is PAUSE's",
        measured=_listed(tops, "%") + _verdict(tops, rivals, "higher"),
        holds=beaten(tops, _PAUSE, rivals, "higher") == rivals,
        ours=True,
    )


def is_sooner(summary: Summary) -> Finding:
    """A rapid convergence: the same figures, read from the left."""
    times = {policy.label: policy.values["seconds_to_target"] for policy in summary.policies}
    rivals = _rivals(summary.comparison)
    late = [label for label in rivals if np.isnan(times[label]).any()]
    reached = not np.isnan(times["pause"]).any()
    in_time = [label for label in rivals if label not in late]
    slower = beaten(times, _PAUSE, in_time, "lower") if reached else []
    target = "" if summary.target is None else summary.target.text
    shown = ("pause", "sa-pause", *rivals, NO_PRIVACY)
    return Finding(
        sentence=f"PAUSE reaches what {summary.baseline} comes to in every seed ({target}) sooner "
        "than the others with privacy (significantly, or they do not in every seed)",
        measured=", ".join(f"{label} {reached_text(times[label], '{:.1f} s')}" for label in shown)
        + f"; significantly sooner than {names(slower)}",
        holds=reached and slower == in_time,
    )


def nears_no_privacy(comparison: Comparison) -> Finding:
    """The upper curve of the figures."""
    ends = _ends(comparison)
    lack = float(np.mean(ends[NO_PRIVACY] - ends["pause"]))
    return Finding(
        sentence="PAUSE comes near FedAvg without privacy (tested as: it ends within "
        f"{_NEAR_POINTS:g} points)",
        measured=f"{lack:.2f} points are lacking",
        holds=lack <= _NEAR_POINTS,
        ours=True,
    )


def approximated(comparison: Comparison) -> Finding:
    """SA-PAUSE against PAUSE."""
    ends = _ends(comparison)
    leakage = leaked_by_round(comparison)
    seconds = each(comparison, lambda run: float(run.columns["seconds"].mean()))
    points = float(np.mean(ends["sa-pause"] - ends["pause"]))
    leaked, slower = (
        float(np.mean(values["sa-pause"]) / np.mean(values["pause"])) - 1
        for values in (leakage, seconds)
    )
    return Finding(
        sentence="SA-PAUSE approaches PAUSE in accuracy, leakage and latency (tested as: it ends at"
        f" most {_SAME_POINTS:g} point below, has leaked at most {_SAME_LEAKAGE:.0%} more on "
        f"average over epochs, and its rounds take at most {_SAME_SECONDS:.0%} longer)",
        measured=f"it ends {points:+.1f} points from PAUSE and has leaked {leaked:+.1%}; its rounds"
        f" take {np.mean(seconds['sa-pause']):.2f} s, PAUSE's {np.mean(seconds['pause']):.2f} s "
        f"({slower:+.0%})",
        holds=points >= -_SAME_POINTS and leaked <= _SAME_LEAKAGE and slower <= _SAME_SECONDS,
    )


def leaks_less(comparison: Comparison, against: Literal["epochs", "time"]) -> Finding:
    """Fig. 4 and 5 (epochs); 7, 9, 12, 13 and 15 (time)."""
    by_time = against == "time"
    leakage = leaked_by_time(comparison) if by_time else leaked_by_round(comparison)
    rivals = [label for label in _rivals(comparison) if label in leakage]
    return Finding(
        sentence=f"The largest leakage of a client at equal {against} is lower with PAUSE than with"
        f" the others (significantly, on average over {against})",
        measured=_listed(leakage, "") + _verdict(leakage, rivals, "lower"),
        holds=beaten(leakage, _PAUSE, rivals, "lower") == rivals,
    )


def below_theorem_3(comparison: Comparison, network: Network) -> Finding:
    """Eq. 17 on the runs that train: pause-regret has the long ones."""
    zeta = network.policy.zeta
    used = max(bound_use(run, network) for run in comparison.runs["pause"])
    return Finding(
        sentence="PAUSE's regret stays below Theorem 3's bound (Eq. 17), in every run, at every "
        "round",
        measured=f"at most {used:.1e} of it used"
        + ("" if zeta == 1 else f" (the theorem has zeta = 1, not {zeta:g})"),
        holds=used <= 1.0,
    )


def coincide(comparison: Comparison) -> Finding:
    """Section V.B: both ask the same clients in every round."""
    one, two = (comparison.column(label, "spent_max") for label in ("fedavg", "fastest"))
    return Finding(
        sentence="FedAvg with privacy and fastest leak the same, epoch by epoch",
        measured=f"the largest difference in {comparison.rounds} rounds is "
        f"{np.abs(one - two).max():.2g}",
        holds=bool(np.array_equal(one, two)),
    )


def below_the_cap(comparison: Comparison) -> Finding:
    """What the ledger is for (PAUSE Theorem 2)."""
    assert comparison.privacy is not None
    cap = comparison.privacy.cap
    highest = max(
        float(run.columns["spent_max"][-1])
        for label in comparison.protected
        for run in comparison.runs[label]
    )
    return Finding(
        sentence="No client ever spends more than eps_bar, in any run",
        measured=f"at most {highest:.6g} of {cap:g}",
        holds=highest <= cap,
    )


def clusters_cost(comparison: Comparison, plain: Comparison) -> tuple[Finding, Finding]:
    """R2 against R1 (sections V.B and V.D); ``plain`` is PAUSE under R1, without clusters."""
    pairs = [one.runs["pause"] for one in (comparison, plain)]
    rounds = min(run.rounds for runs in pairs for run in runs)
    with_clusters, without = (float(np.mean(_leaked(runs, rounds))) for runs in pairs)
    more = with_clusters / without - 1
    early = [np.array([_halfway(run) for run in runs]) for runs in pairs]
    difference = paired(*early)
    return (
        Finding(
            sentence="R2 costs PAUSE mildly in leakage against R1 (tested as: more, by at most "
            f"{_MILD:.0%}, on average over epochs)",
            measured=f"{more:+.2%}",
            holds=0 < more <= _MILD,
        ),
        Finding(
            sentence="R2's constraints affect convergence in its early stages (tested as: a lower "
            "accuracy, on average over the first half of the time, significantly)",
            measured=f"{points(difference, 2)} against R1",
            holds=difference.verdict == "lower",
        ),
    )


def whole_update(comparison: Comparison) -> Finding:
    """What the authors' mechanism promises for all that a client sends."""
    privacy, size = comparison.privacy, comparison.num_parameters
    assert privacy is not None
    assert size is not None
    epsilon = privacy.mechanism.whole_vector_epsilon(privacy.cap, size)
    return Finding(
        sentence=f"eps_bar = {privacy.epsilon:g} is the ε of all that a client sends (Theorems 1 "
        "and 2)",
        measured=f"it is that of each coordinate; the {size:,} of an update have ε = {epsilon:,.0f}"
        ", which is no protection",
        holds=bool(epsilon <= privacy.epsilon),
        ours=True,
    )


def still_learns(comparisons: Mapping[str, Comparison]) -> Finding:
    """PAUSE with noise that does protect whole updates."""
    tops = {
        label: np.array([float(np.nanmax(run.columns["accuracy"])) for run in one.runs["pause"]])
        for label, one in comparisons.items()
    }
    ends = {
        label: np.array([settled(run, "accuracy") for run in one.runs["pause"]])
        for label, one in comparisons.items()
    }
    return Finding(
        sentence="PAUSE still learns where eps_bar is the ε of whole updates (tested as: it ends "
        f"above {_LEARNED:.0%})",
        measured="; ".join(
            f"{label}: {ends[label].mean():.1%} at the end, {tops[label].mean():.1%} at best"
            for label in ends
        ),
        holds=all(values.mean() > _LEARNED for values in ends.values()),
        ours=True,
    )


def leaked_by_round(comparison: Comparison) -> Values:
    """The mean, over the epochs that all runs have, of what the client who spent most has spent.

    FedAvg is left out: it leaks as fastest does, and its few long rounds would cut the rest short.
    """
    labels = [label for label in comparison.protected if label != "fedavg"]
    rounds = min(run.rounds for label in labels for run in comparison.runs[label])
    return {label: _leaked(comparison.runs[label], rounds) for label in labels}


def leaked_by_time(comparison: Comparison) -> Values:
    """The same over simulated time, to its end; a run that is over earlier leaks no more."""
    end = comparison.experiment.seconds
    assert end is not None
    return {
        label: np.array([_over_time(run, "spent_max", end) for run in comparison.runs[label]])
        for label in comparison.protected
    }


def _leaked(runs: Sequence[Run], rounds: int) -> FloatArray:
    return np.array([run.columns["spent_max"][:rounds].mean() for run in runs])


def _halfway(run: Run) -> float:
    """Accuracy, averaged over the first half of the time."""
    return _over_time(run, "accuracy", float(run.columns["seconds"].sum()) / 2)


def _over_time(run: Run, column: str, end: float) -> float:
    """The mean until ``end`` of a value that stays until the next; 0 before the first."""
    known = ~np.isnan(run.columns[column])
    values, places = run.columns[column][known], np.cumsum(run.columns["seconds"])[known]
    durations = np.diff(np.append(places, np.inf).clip(max=end))
    return float(values @ durations) / end


def _rivals(comparison: Comparison) -> list[str]:
    """The others with privacy."""
    return [label for label in comparison.protected if label not in ("pause", "sa-pause")]


def _ends(comparison: Comparison) -> Values:
    """Accuracy at the end, in per cent."""
    return each(comparison, lambda run: 100 * settled(run, "accuracy"))


def _verdict(values: Values, rivals: Sequence[str], wanted: Literal["lower", "higher"]) -> str:
    found = names(beaten(values, _PAUSE, rivals, wanted))
    return f"; pause is significantly {wanted} than {found}"


def _listed(values: Values, unit: str) -> str:
    parts = []
    for label, own in values.items():
        around = interval(own)
        error = round(around.half_width, 6)  # equal numbers have an error of rounding
        parts.append(f"{label} {around.mean:.3g} ± {error:.2g} {unit}".rstrip())
    return ", ".join(parts)
