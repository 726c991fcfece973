"""What edge servers spent of their budgets."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedmuster.core.records import FloatArray
from fedmuster.report.runs import Comparison, Run

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
