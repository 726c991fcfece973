"""What COCS's section VI says of cumulative utilities and of regret, held against runs."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from fedmuster.claims.claim import Finding
from fedmuster.claims.cocs_network import (
    CUCB_,
    FIVE,
    LINUCB,
    ORACLE,
    OURS,
    RANDOM,
    RIVALS,
    Utilities,
    number,
    percent,
    points,
)
from fedmuster.claims.growth import growth
from fedmuster.core.records import FloatArray
from fedmuster.report.statistics import interval, paired

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
    curves = utilities.regret(label)
    return np.array([growth(curve, first_round=first).exponent for curve in curves])


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
