"""COCS, Fig. 2, 4c and 4e: accuracy with other numbers of participants, budgets and deadlines."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from claims.claim import Claim, Evidence, Finding, RunCells
from claims.cocs.accuracy_findings import (
    SIMILAR,
    Accuracies,
    accuracy_over_rounds,
    gap,
    participants,
    side_by_side,
    table,
)
from claims.cocs.edge_training import CIFAR, EQUAL_PRICES, LOGISTIC, EdgeTask
from claims.cocs.network import OURS, RANDOM, five
from claims.measures import each, number
from fedmuster.core.records import FloatArray
from fedmuster.report.runs import Comparison
from fedmuster.report.statistics import interval, paired

_BUDGETS: Final = (3.5, 5.0, 10.0)
_DEADLINES: Final = (2.0, 4.0, 8.0)
_TIMES: Final = (1.0, 2.0, 4.0)
_TARGET = 0.7


def _sweep(
    task: EdgeTask,
    policy: str,
    field: str,
    values: Sequence[float],
    folder: Path,
    run: RunCells,
    **network: Any,
) -> Comparison:
    """One policy with each of these values of a field of the network."""
    own = {policy: five()[policy]}
    return side_by_side(
        {
            f"{_NAMES[field]} = {value:g}{_UNITS[field]}": (
                task.play(folder / f"{value:g}", run, policies=own, **{field: value}, **network),
                policy,
            )
            for value in values
        }
    )


_NAMES = {"budget": "B", "deadline_seconds": "deadline"}
_UNITS = {"budget": "", "deadline_seconds": " s"}


def _budget(folder: Path, *, quick: bool, run: RunCells) -> Evidence:
    task = LOGISTIC.quick() if quick else replace(LOGISTIC, seeds=4)
    budgets, deadlines = (
        Accuracies.of(_sweep(task, OURS, field, values, folder / field, run), _TARGET, base=OURS)
        for field, values in (("budget", _BUDGETS), ("deadline_seconds", _DEADLINES))
    )
    return Evidence(
        setting="COCS, with B = 3.5, 5 and 10, and with deadlines of 2, 4 and 8 s; "
        + task.describe(),
        findings=(
            improves(budgets, "COCS has better performance when the budget increases"),
            _sooner(budgets),
            stops_improving(budgets, "From B = 5 to 10 training does not improve significantly"),
            improves(deadlines, "The longer the deadline, the better", last=2),
            stops_improving(deadlines, "8 s performs similarly to 4 s"),
            budget_dominates(budgets, deadlines),
        ),
        tables=(
            table(budgets, "COCS with other budgets"),
            table(deadlines, "COCS with other deadlines"),
        ),
        figures={
            "budget": accuracy_over_rounds(budgets),
            "deadline": accuracy_over_rounds(deadlines),
        },
        notes=(
            f'"Similarly" and "not significantly" were put at {SIMILAR:g} points of accuracy before'
            " the first run, tested one-sided at 5 %.",
            "The paper says that with B = 5 COCS needs 77 rounds for 70 %, and 121 with 3.5.",
            "A larger budget does not only pay for more clients, it also pays for dearer ones, "
            "whose labels nobody else may have: see cocs-participants.",
        ),
    )


def improves(accuracies: Accuracies, words: str, *, last: int = 3) -> Finding:
    """Accuracy at each step among the first so many values."""
    steps = list(pairwise(accuracies.labels[:last]))
    risen = [
        accuracies.better(high, low, "accuracy", comparisons=len(steps)) for low, high in steps
    ]
    which = "at each step" if len(steps) > 1 else f"from {steps[0][0]} to {steps[0][1]}"
    return Finding(
        sentence=f"{words} (significantly more accuracy {which})",
        measured=accuracies.text("accuracy"),
        holds=all(risen),
    )


def _sooner(accuracies: Accuracies) -> Finding:
    low, middle, _ = accuracies.labels
    return Finding(
        sentence=f"With B = 5 {accuracies.target.text} is reached much faster than with B = 3.5 "
        "(significantly)",
        measured=accuracies.text("rounds") + " rounds",
        holds=accuracies.better(middle, low, "rounds"),
    )


def stops_improving(accuracies: Accuracies, words: str) -> Finding:
    """From the second value to the third."""
    _, middle, high = accuracies.labels
    rise = gap(accuracies, high, middle)
    return Finding(
        sentence=f"{words} (tested as: accuracy rises by at most {SIMILAR:g} points)",
        measured=f"by between {rise.low:.2f} and {rise.high:.2f} points",
        holds=rise.high <= SIMILAR,
    )


def budget_dominates(budgets: Accuracies, deadlines: Accuracies) -> Finding:
    """From the first value to the last of either."""
    by_budget, by_deadline = (
        own.accuracy(own.labels[-1]) - own.accuracy(own.labels[0]) for own in (budgets, deadlines)
    )
    return Finding(
        sentence="The increase by the deadline is less than that by the budget (significantly: 2 "
        "to 8 s against B = 3.5 to 10)",
        measured=f"{number(interval(by_deadline), 2)} against {number(interval(by_budget), 2)} "
        "points of accuracy",
        holds=paired(by_deadline, by_budget).verdict == "lower",
    )


def _participants(folder: Path, *, quick: bool, run: RunCells) -> Evidence:
    found: list[Finding] = []
    tables, drawn, settings = [], {}, []
    for name, whole, exponent in (
        ("convex", replace(LOGISTIC, seeds=4), 1.0),
        ("non-convex", CIFAR, 0.5),
    ):
        task = whole.quick() if quick else whole
        comparison = _sweep(
            task,
            RANDOM,
            "budget",
            [times * task.world.budget for times in _TIMES],
            folder / name,
            run,
            price_per_mhz=EQUAL_PRICES,
        )
        accuracies = Accuracies.of(comparison, base=comparison.labels[0])
        found += [speeds_up(accuracies, name), _law(accuracies, name, exponent)]
        tables.append(table(accuracies, f"Random with other budgets, {name}"))
        drawn[name] = accuracy_over_rounds(accuracies)
        settings.append(task.describe())
    return Evidence(
        setting="Random, with 1, 2 and 4 times the budget and one price for all, so that "
        "nobody is dearer than others: " + "; and ".join(settings),
        findings=tuple(found),
        tables=tuple(tables),
        figures=drawn,
        notes=(
            "The paper does not say how the numbers of participants in its Fig. 2 came about. With "
            f"the prices of Table I a small budget always buys the same few clients; here all cost "
            f"{EQUAL_PRICES[0]:g} per MHz, so that only their number changes.",
            "The target is what the smallest budget comes to in every seed, in whole per cent.",
            "The square root in (19) means that speed grows as the root of the number of "
            "participants. The paper calls this quadratic.",
        ),
    )


def speeds_up(accuracies: Accuracies, name: str) -> Finding:
    """Fig. 2."""
    steps = list(pairwise(accuracies.labels))
    faster = [accuracies.better(high, low, "rounds", comparisons=len(steps)) for low, high in steps]
    count = each(accuracies.comparison, participants)
    return Finding(
        sentence=f"More participating clients improve training in the {name} setting (significantly"
        f" fewer rounds to {accuracies.target.text} with each doubling of the budget)",
        measured=", ".join(
            f"{count[label].mean():.1f} participants: {accuracies.rounds_text(label)} rounds"
            for label in accuracies.labels
        ),
        holds=all(faster),
    )


def speed_exponents(accuracies: Accuracies) -> FloatArray:
    """[seeds], x of ``rounds ∝ participants^-x``, by least squares of logarithms."""
    count = each(accuracies.comparison, participants)
    labels = accuracies.labels
    many = np.log(np.maximum([count[label] for label in labels], 1e-9))
    rounds = np.log([accuracies.rounds(label) for label in labels])
    slopes = [np.polyfit(x, y, 1)[0] for x, y in zip(many.T, rounds.T, strict=True)]
    return -np.array(slopes)


def _law(accuracies: Accuracies, name: str, exponent: float) -> Finding:
    around = interval(speed_exponents(accuracies))
    said = "linearly" if exponent == 1 else "as a square root"
    return Finding(
        sentence=f"In the {name} setting the convergence speed depends {said} on the number of "
        f"participating clients (tested as: rounds to {accuracies.target.text} fall as n^-x with x "
        f"not significantly different from {exponent:g}, and above 0)",
        measured=f"x = {number(around, 2)}",
        holds=0 < around.low <= exponent <= around.high,
    )


BUDGET = Claim(
    name="cocs-learning-budget",
    source="COCS, Fig. 4c, 4e",
    statement="COCS trains better with a larger budget (70 % in 77 rounds with B = 5) and with a "
    "longer deadline; but not significantly from B = 5 to 10, nor from 4 to 8 s.",
    gather=_budget,
)
PARTICIPANTS = Claim(
    name="cocs-participants",
    source="COCS, Fig. 2, section III-D",
    statement="The more clients participate, the faster the convergence: linearly in the strongly "
    "convex setting, as a square root in the non-convex one.",
    gather=_participants,
)
