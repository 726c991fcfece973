"""What edge servers spent of their budgets."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedmuster.bandits.utility import EdgeUtility
from fedmuster.core.arrays import FloatArray
from fedmuster.report.runs import Comparison, Run
from fedmuster.report.statistics import Metric

LOW, HIGH = 5, 95
"""Per cent of the rounds."""


class BudgetUse(NamedTuple):
    """The part of its budget that each edge spent, over rounds and seeds: [M] each.

    NaN for an edge that never had a budget to spend.
    """

    mean: FloatArray
    low: FloatArray
    lower_quartile: FloatArray
    median: FloatArray
    upper_quartile: FloatArray
    high: FloatArray
    largest: FloatArray


def spread_of_shares(runs: Sequence[Run]) -> BudgetUse:
    """Of runs of the same policy, each round of each seed counting alike."""
    share = np.concatenate([run.network.share for run in runs if run.network is not None])
    columns = [column[~np.isnan(column)] for column in share.T]
    percents = (LOW, 25, 50, 75, HIGH, 100)
    found = np.full((1 + len(percents), len(columns)), np.nan)
    for edge, column in enumerate(columns):
        if len(column):
            found[:, edge] = column.mean(), *np.percentile(column, percents)
    return BudgetUse(*found)


def budget_check(comparison: Comparison) -> str | None:
    """In words, whether every budget was kept; None where there was none.

    Sums of costs are correctly rounded, so no share is above 1 for want of digits.
    """
    most: tuple[float, str] | None = None
    for run in (run for runs in comparison.runs.values() for run in runs):
        assert run.network is not None
        share = run.network.share
        if np.isnan(share).all():
            continue
        round_, edge = np.unravel_index(np.nanargmax(share), share.shape)
        where = f"{run.label}, seed {run.seed}, round {round_ + 1:,}, edge {edge}"
        if most is None or share[round_, edge] > most[0]:
            most = float(share[round_, edge]), where
    if most is None:
        return None
    largest, where = most
    if largest > 1:
        return f"A budget was overspent: {100 * largest:.6g} % of it ({where})."
    # Cut off, not rounded: 99.999 % is not all of it.
    return (
        "No edge server ever spent more than its budget: the largest share was "
        f"{np.floor(1e4 * largest) / 100:g} % ({where})."
    )


# What edge servers got for their budgets, in numbers.

REGRET_WORDS = (
    "Regret: what the best placement within coverage and budgets has more in expected utility "
    "(COCS Eq. 11)."
)


def network_metrics(comparison: Comparison) -> tuple[Metric, ...]:
    """None where there are no edge servers; nothing of budgets where there are none."""
    if comparison.network is None:
        return ()
    return (
        _utility(a_round=comparison.uneven),
        Metric(
            key="participants_a_round",
            title="Participants a round",
            unit="",
            of=lambda run: float(run.columns["participants"].mean()),
            about="network",
        ),
        Metric(
            key="in_time_percent",
            title="Chosen in time",
            unit="%",
            of=_in_time_percent,
            about="network",
            words=("lower", "higher"),
            better="higher",
        ),
        *(_BUDGET if comparison.network.limited else ()),
    )


def utility_words(comparison: Comparison) -> str:
    """What the utility of a round is."""
    reward = comparison.experiment.reward
    root = isinstance(reward, EdgeUtility) and reward.utility == "square-root"
    what, equation = ("the square root of participants", 19) if root else ("participants", 8)
    return (
        f"Utility of a round: {what} per edge server (COCS Eq. {equation}). Participants are the "
        "clients whose answers came by the deadline."
    )


def regret_title(comparison: Comparison) -> str:
    """Of a picture; it says against what, where that is a placement."""
    return "Cumulative regret" + " against the best placement" * (comparison.network is not None)


def _utility(*, a_round: bool) -> Metric:
    """In all, or a round where runs differ in their number of rounds."""
    return Metric(
        key="utility_a_round" if a_round else "utility",
        title="Utility a round" if a_round else "Utility",
        unit="",
        of=lambda run: float(run.columns["utility"].sum()) / (run.rounds if a_round else 1),
        about="network",
        words=("lower", "higher"),
        better="higher",
    )


def _in_time_percent(run: Run) -> float:
    """NaN where nobody was ever chosen."""
    assert run.network is not None
    in_time = run.network.in_time
    return 100.0 * float(in_time.mean()) if len(in_time) else math.nan


def _budget_percent(run: Run) -> float:
    share = run.columns["budget_share"]
    known = share[~np.isnan(share)]
    return 100.0 * float(known.mean()) if len(known) else math.nan


def _largest_percent(run: Run) -> float:
    assert run.network is not None
    return 100.0 * float(np.fmax.reduce(run.network.share, axis=None))


_BUDGET = (
    Metric(
        key="budget_spent_percent",
        title="Budget spent",
        unit="%",
        of=_budget_percent,
        about="network",
    ),
    Metric(
        key="largest_budget_share_percent",
        title="Largest share",
        unit="%",
        of=_largest_percent,
        about="network",
    ),
)
