"""Findings, tables and figures on what COCS's section VI says of cumulative utility and regret."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from claims.claim import Finding
from claims.cocs.network import (
    CUCB_,
    FIVE,
    LINUCB,
    ORACLE,
    OURS,
    RANDOM,
    RIVALS,
    RegretBound,
    Utilities,
    order,
)
from claims.growth import growth
from claims.measures import INTERVALS, number, percent, points
from fedmuster.core.records import FloatArray
from fedmuster.report.curves import Curve, moving_means, plotted_rounds, window
from fedmuster.report.statistics import interval, mean_and_half_width, paired
from fedmuster.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLOSE: Final = 0.9
"""Of Oracle's cumulative utility: what is taken for close to it."""
SIMILAR: Final = 0.05
"""How far apart two cumulative utilities may be that are called similar, as a share."""


def oracle_highest(utilities: Utilities) -> Finding:
    """Fig. 3a, 5."""
    others = [label for label in FIVE if label != ORACLE]
    tests = [utilities.against(ORACLE, other, comparisons=len(others)) for other in others]
    return Finding(
        sentence="Oracle achieves the highest cumulative utilities (significantly, against each of "
        "the other four)",
        measured=totals_text(utilities, FIVE),
        holds=all(test.verdict == "higher" for test in tests),
    )


def outperforms(utilities: Utilities, words: str) -> Finding:
    """Fig. 3a, 5: COCS against CUCB, LinUCB and Random."""
    tests = {
        other: utilities.against(OURS, other, comparisons=len(RIVALS)).verdict for other in RIVALS
    }
    return Finding(
        sentence=f"{words} (in each of the three comparisons)",
        measured=", ".join(
            f"{utilities.times(OURS, other).mean:.3f} times {other}'s ({_word(verdict)})"
            for other, verdict in tests.items()
        ),
        holds=all(verdict == "higher" for verdict in tests.values()),
    )


def close_to_oracle(utilities: Utilities) -> Finding:
    """Fig. 3a."""
    share = utilities.share(OURS)
    return Finding(
        sentence="COCS has a cumulative utility close to Oracle's (tested as: at least "
        f"{CLOSE:.0%} of it)",
        measured=f"{percent(share)} of it",
        holds=share.low >= CLOSE,
    )


def contexts_pay(utilities: Utilities) -> Finding:
    """Fig. 3a: LinUCB against CUCB and Random."""
    unaware = (CUCB_, RANDOM)
    tests = [utilities.against(LINUCB, other, comparisons=len(unaware)) for other in unaware]
    return Finding(
        sentence="The profit of the context: LinUCB has more than the context-unaware CUCB and "
        "Random (significantly)",
        measured=", ".join(
            f"{utilities.times(LINUCB, other).mean:.3f} times {other}'s" for other in unaware
        ),
        holds=all(test.verdict == "higher" for test in tests),
    )


def cucb_like_random(utilities: Utilities) -> Finding:
    """Fig. 3a."""
    share = utilities.times(CUCB_, RANDOM)
    return Finding(
        sentence="The cumulative utilities of CUCB are similar to Random's (tested as: within "
        f"{SIMILAR:.0%})",
        measured=f"{percent(share)} of Random's",
        holds=share.low >= 1 - SIMILAR and share.high <= 1 + SIMILAR,
    )


def sublinear(utilities: Utilities, label: str = OURS, *, ours: bool = False) -> Finding:
    """Fig. 3b, 6: the exponent of regret over the last factor of four, against Random's.

    Rounds differ by luck, which all share. Random learns nothing, so its regret is linear.
    """
    own, reference = exponents(utilities, label), exponents(utilities, RANDOM)
    return Finding(
        sentence=f"The regret of {label} is sublinear (tested as: it grows as T^x over the last "
        "factor of four, with x significantly below that of Random's linear regret)",
        measured=f"x = {number(interval(own), 3)}, Random's {number(interval(reference), 3)}, "
        f"the difference {number(paired(own, reference).interval, 3)}",
        holds=paired(own, reference).verdict == "lower",
        ours=ours,
    )


def exponents(utilities: Utilities, label: str) -> FloatArray:
    """[seeds], the last exponent of a policy's regret."""
    first = max(2, utilities.comparison.rounds // 100)
    return growth(utilities.regret(label), first_round=first).exponents


def bounded_by(utilities: Utilities) -> Finding:
    """Fig. 4b."""
    inner = [label for label in FIVE if label not in (ORACLE, RANDOM)]
    bounds = [(ORACLE, label) for label in inner] + [(label, RANDOM) for label in inner]
    tests = [utilities.against(*pair, comparisons=len(bounds)) for pair in bounds]
    return Finding(
        sentence="The upper and lower bound of participants in a round are Oracle and Random: the "
        "other three lie between them (significantly, on average over rounds)",
        measured=", ".join(f"{label} {utilities.per_round(label).mean():.2f}" for label in FIVE)
        + " participants a round",
        holds=all(test.verdict == "higher" for test in tests),
    )


def increasing(utilities: Utilities) -> Finding:
    """Fig. 4b."""
    learning = (OURS, LINUCB, CUCB_)
    tests = {
        label: paired(
            *(utilities.shares(label, utilities.quarter(number)) for number in (3, 0)),
            comparisons=len(learning),
        )
        for label in learning
    }
    return Finding(
        sentence="COCS, LinUCB and CUCB all have more participants as they learn (significantly "
        "more in the last quarter of the rounds than in the first, as shares of Oracle's)",
        measured=", ".join(f"{label} {points(test)}" for label, test in tests.items()),
        holds=all(test.verdict == "higher" for test in tests.values()),
    )


def totals_text(utilities: Utilities, labels: Sequence[str]) -> str:
    """Cumulative utilities, and beside them the participants whom the paper seems to add up."""
    return ", ".join(
        f"{label} {utilities.total(label).mean():,.0f} "
        f"({utilities.participants(label).sum(axis=1).mean():,.0f} participants)"
        for label in labels
    )


def _word(verdict: str) -> str:
    known = {"higher": "significantly more", "lower": "significantly less"}
    return known.get(verdict, verdict)


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


_MARGIN = 0.06


def utility_over_rounds(utilities: Utilities) -> "Figure":
    """Fig. 3a, 5: cumulative utility, and as a share of Oracle's, where one can see it."""
    import matplotlib
    from matplotlib.ticker import PercentFormatter

    from fedmuster.report.figures import style

    comparison = utilities.comparison
    with matplotlib.rc_context(style.STYLE):
        figure = style.new_figure(comparison, "Cumulative utility", height=3.8)
        totals, shares = figure.subplots(1, 2)
        _draw(totals, utilities, comparison.labels, utilities.running, bands=False)
        totals.set(title="up to each round")
        totals.yaxis.set_major_formatter(style.PLAIN)
        others = [label for label in comparison.labels if label != ORACLE]

        def share(label: str) -> FloatArray:
            # In the first rounds nobody may have taken part yet.
            return utilities.running(label) / np.maximum(utilities.running(ORACLE), 1e-9)

        first = max(1, comparison.rounds // 20)
        _draw(shares, utilities, others, share, first=first, from_zero=False)
        style.mark_height(shares, 1.0, "Oracle")
        shares.set(title="as a share of Oracle's")
        shares.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
        style.add_legend(figure, comparison, comparison.labels, below=True)
        return figure


def regret_and_participants(
    utilities: Utilities, *, exponent: float, without: Sequence[str] = ()
) -> "Figure":
    """Fig. 3b, 6 and 4b; regret by rounds so far, where linear growth is level.

    Args:
        utilities: the runs.
        exponent: of T in the theorems' law.
        without: whose regret means nothing, for they know the round's luck.
    """
    import matplotlib
    from matplotlib.ticker import NullFormatter

    from fedmuster.report.figures import style

    comparison = utilities.comparison
    losers = [
        label for label in comparison.labels if label not in without and utilities.has_regret(label)
    ]
    rounds = np.arange(1.0, comparison.rounds + 1)
    with matplotlib.rc_context(style.STYLE):
        figure = style.new_figure(comparison, "Regret and participants", height=3.8)
        regret, participants = figure.subplots(1, 2)
        first = max(2, comparison.rounds // 100)
        _draw(
            regret, utilities, losers, lambda label: utilities.regret(label) / rounds, first=first
        )
        # Theorem 2's law is drawn to end where COCS does: what matters is how it bends.
        law = order(rounds, exponent) / rounds
        law *= utilities.regret(OURS)[:, -1].mean() / comparison.rounds / law[-1]
        regret.plot(rounds[first - 1 :], law[first - 1 :], color="0.4", linewidth=1.2, ls=":")
        regret.annotate(
            f"$T^{{{exponent:g}}}\\,\\ln\\,T$",
            (first, law[first - 1]),
            (4, -3),
            textcoords="offset points",
            color="0.35",
            fontsize=7,
            va="top",
        )
        regret.set(xscale="log", title="regret so far, a round: level is linear")
        regret.xaxis.set_major_formatter(style.PLAIN)
        regret.xaxis.set_minor_formatter(NullFormatter())

        style.draw_curves(participants, comparison, moving_means(comparison, "participants"))
        participants.xaxis.set_major_formatter(style.PLAIN)
        participants.set(
            title=f"participants a round, mean over {window(comparison)} rounds",
            xlabel="round",
            xlim=(1, comparison.rounds),
        )
        style.add_legend(figure, comparison, comparison.labels, below=True)
        return figure


def _draw(
    axes: "Axes",
    utilities: Utilities,
    labels: Sequence[str],
    values: Callable[[str], FloatArray],
    *,
    first: int = 1,
    from_zero: bool = True,
    bands: bool = True,
) -> None:
    """Means and bands of [seeds, rounds] of each policy, from round ``first`` on.

    The means decide how high the axes are: the bands of two seeds would dwarf them.
    """
    from fedmuster.report.figures import style

    comparison = utilities.comparison
    rounds = plotted_rounds(comparison.rounds)
    rounds = rounds[rounds >= first]
    curves = []
    for label in labels:
        mean, half_width = mean_and_half_width(values(label)[:, rounds - 1])
        half_width = half_width if bands else np.full(len(mean), np.nan)
        x = rounds.astype(np.float64)
        curves.append(Curve(label=label, x=x, mean=mean, half_width=half_width))
    style.draw_curves(axes, comparison, curves)
    low = 0.0 if from_zero else min(float(curve.mean.min()) for curve in curves)
    high = max(float(curve.mean.max()) for curve in curves)
    margin = _MARGIN * (high - low)
    axes.set(
        xlabel="round",
        xlim=(first, comparison.rounds),
        ylim=(low - (not from_zero) * margin, high + margin),
    )
    axes.xaxis.set_major_formatter(style.PLAIN)
