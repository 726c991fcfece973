"""The numbers of a network's runs: utility, participants, regret."""

from collections.abc import Sequence

import numpy as np

from fedmuster.claims.cocs_findings import exponents
from fedmuster.claims.cocs_network import INTERVALS, RANDOM, Utilities, number, percent
from fedmuster.claims.cocs_theorem import RegretBound
from fedmuster.report.statistics import interval
from fedmuster.report.tables import Table


def totals(utilities: Utilities) -> Table:
    """Utilities, participants, and how they change over a run."""
    first, last = utilities.quarter(0), utilities.quarter(3)
    return Table(
        title="Cumulative utility",
        columns=(
            "policy",
            "utility",
            "participants",
            "of Oracle's",
            "a round, first quarter",
            "a round, last quarter",
            f"times {RANDOM}'s",
        ),
        rows=tuple(
            (
                label,
                number(interval(utilities.total(label)), 0),
                f"{utilities.participants(label).sum(axis=1).mean():,.0f}",
                percent(utilities.share(label)),
                f"{utilities.per_round(label, first).mean():.2f}",
                f"{utilities.per_round(label, last).mean():.2f}",
                f"{utilities.times(label, RANDOM).mean:.2f}",
            )
            for label in utilities.comparison.labels
        ),
        footnotes=(INTERVALS,),
    )


def regrets(utilities: Utilities, bound: RegretBound, *, without: Sequence[str] = ()) -> Table:
    """Regret as rounds go by, and how it grows; those who have no regret are left out."""
    rounds = utilities.comparison.rounds
    marks = [n for n in (50, 200, 500) if n < rounds] + [rounds]
    return Table(
        title="Regret after T rounds",
        columns=("policy", *(f"{n:,}" for n in marks), "last exponent"),
        rows=tuple(
            (
                label,
                *(number(interval(utilities.regret(label)[:, n - 1])) for n in marks),
                _exponent(utilities, label),
            )
            for label in utilities.comparison.labels
            if label not in without
        ),
        footnotes=(
            INTERVALS,
            f"T^{bound.exponent:g} ln T grows with the exponent "
            f"{bound.exponent + 1 / np.log(rounds):.2f} at T = {rounds:,}.",
        ),
    )


def _exponent(utilities: Utilities, label: str) -> str:
    return number(interval(exponents(utilities, label)), 2) if utilities.has_regret(label) else "–"
