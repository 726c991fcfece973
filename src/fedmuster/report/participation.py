"""How often clients take part: by speed group, and by client over time."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedmuster.core.records import FloatArray
from fedmuster.report.runs import Comparison, Run
from fedmuster.report.statistics import quotients

_MOST_ROWS, _MOST_BINS = 100, 200
_FEWEST_ROWS, _FEWEST_BINS = 20, 25
_EXPECTED_CHOICES = 4


class GroupShares(NamedTuple):
    """How often clients of each of G speed groups were chosen; empty groups are left out."""

    latencies: FloatArray
    """[G], mean latency of the clients of a group over seeds."""
    shares: FloatArray
    """[policies, G], in which share of the rounds a client of the group was chosen; where a
    contestant has no rounds, which share of all client updates a client of the group made."""
    equal: float
    """The share of a client if all are chosen alike."""


class ChoiceDensity(NamedTuple):
    """Of one policy: how often clients were chosen over time, and the number of rounds."""

    density: FloatArray
    rounds: int


def group_shares(comparison: Comparison) -> GroupShares:
    """Of all policies, by speed group, over seeds."""
    first, *_ = comparison.runs.values()  # all policies met the same clients
    latencies = _group_means(first, [run.typical_latency_seconds for run in first])
    shares = np.stack(
        [
            _group_means(runs, [run.selection_counts() / _times(run, comparison) for run in runs])
            for runs in comparison.runs.values()
        ]
    )
    present = ~np.isnan(latencies)
    equal = 1 if comparison.round_less else comparison.usual_cohort_size
    return GroupShares(latencies[present], shares[:, present], equal / comparison.num_clients)


def _times(run: Run, comparison: Comparison) -> int:
    """Of how many a share is: aggregations of different contestants use different numbers."""
    return max(len(run.chosen), 1) if comparison.round_less else run.rounds


def tells_groups_apart(comparison: Comparison) -> bool:
    """Whether to show speed groups: not where edge servers have clients of one group alone."""
    return comparison.network is None or any(run.groups.any() for run in comparison.every_run)


def common_rounds(runs: Sequence[Run]) -> int:
    """How many rounds all of these runs have."""
    return min(run.rounds for run in runs)


def choice_densities(comparison: Comparison) -> list[ChoiceDensity]:
    """Of each policy, all with the same numbers of rows and bins."""
    rows, bins = resolution(comparison)
    return [
        ChoiceDensity(choice_density(runs, rows=rows, bins=bins), common_rounds(runs))
        for runs in comparison.runs.values()
    ]


def choice_density(runs: Sequence[Run], *, rows: int, bins: int) -> FloatArray:
    """[rows, bins]: how often clients were chosen, relative to an equal share of all choices.

    Rows hold clients in order (:attr:`Run.ranking`), bins hold the rounds that all runs have. 1 is
    what each entry would be if all clients were chosen alike, however large the cohorts.
    """
    num_rounds = common_rounds(runs)
    if num_rounds < bins:  # a run that ended soon: fewer bins, each as wide as several
        wide = choice_density(runs, rows=rows, bins=num_rounds)
        return wide[:, np.arange(bins) * num_rounds // bins]
    counts, places, choices = np.zeros(rows * bins), np.zeros((rows, bins)), 0
    for run in runs:
        num_clients, rounds = run.num_clients, run.chosen_rounds()
        rank = np.empty(num_clients, dtype=np.int64)
        rank[np.argsort(run.ranking, kind="stable")] = np.arange(num_clients)
        row = rank * rows // num_clients
        bin_of = np.arange(num_rounds) * bins // num_rounds
        common = rounds < num_rounds
        cell = row[run.chosen[common]] * bins + bin_of[rounds[common]]
        counts += np.bincount(cell, minlength=rows * bins)
        places += np.outer(np.bincount(row, minlength=rows), np.bincount(bin_of, minlength=bins))
        choices += len(cell)
    equal_share = max(choices, 1) / places.sum()
    return np.asarray(counts.reshape(rows, bins) / places / equal_share)


def resolution(comparison: Comparison) -> tuple[int, int]:
    """Rows and bins for :func:`choice_density`: fine, but coarse enough to show more than luck.

    A bin should last until every client could have had its turn twice, for many policies go round
    in turns, and shorter bins would show the beat between the two.
    """
    rounds = max(common_rounds(runs) for runs in comparison.runs.values())
    turns = rounds * comparison.usual_cohort_size / comparison.num_clients
    bins = min(_MOST_BINS, rounds, max(_FEWEST_BINS, int(turns / 2)))
    choices = int(rounds * comparison.usual_cohort_size * len(comparison.seeds))
    rows = min(_MOST_ROWS, max(_FEWEST_ROWS, choices // (_EXPECTED_CHOICES * bins)))
    return min(rows, comparison.num_clients), bins


def _group_means(runs: Sequence[Run], values: Sequence[FloatArray]) -> FloatArray:
    groups = np.concatenate([run.groups for run in runs])
    return quotients(np.bincount(groups, weights=np.concatenate(values)), np.bincount(groups))
