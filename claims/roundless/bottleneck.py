"""Rounds are the bottleneck: time to accuracy in rounds and without, each at its best rate."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from claims.claim import Claim, Evidence, Finding, RunCells
from claims.measures import INTERVALS, number
from claims.racing.contestant import CONCURRENCY
from claims.racing.milestone_table import milestone_table, share_text
from claims.roundless.contestants import (
    BSFL_3,
    BSFL_ROUNDS,
    CONTESTANTS,
    FEDBUFF_3,
    FEDBUFF_10,
    OORT_3,
    OORT_ROUNDS,
    RANDOM,
)
from claims.roundless.figures import accuracy_over_time, shares_of_time
from claims.roundless.race import BASE_RATE, BASELINE, Plan, RaceResult, race
from claims.roundless.settings import GROUPS, HALVES, QUICK_SETTINGS, RATES, SETTINGS
from fedmuster.core.records import FloatArray
from fedmuster.report.statistics import interval
from fedmuster.report.tables import Table

_FULL = Plan()
_QUICK = Plan(grid=(BASE_RATE, 0.4), judging=2, tuning=1)
_MOST_TIME = 0.7
_MOST_TUNED_TIME = 0.6
_MOST_WORK = 1.25
_MOST_LOST_POINTS = 1.0
_POLICIES: Final = {
    "random": (FEDBUFF_3, RANDOM),
    "bsfl": (BSFL_3, BSFL_ROUNDS),
    "oort": (OORT_3, OORT_ROUNDS),
}
"""Each policy without rounds, and in rounds."""
_WITHOUT_ROUNDS = [
    contestant.label
    for contestant in CONTESTANTS
    if contestant.label not in (RANDOM, BSFL_ROUNDS, OORT_ROUNDS)
]
_DIGITS = (GROUPS.name, HALVES.name, RATES.name)
_TWO_SPEEDS = (GROUPS.name, HALVES.name)

Results = Sequence[RaceResult]


def fedbuff_in_every_setting(results: Results) -> Finding:
    """The claim in one number."""
    shares = {one.setting.name: one.shares(FEDBUFF_3, RANDOM) for one in results}
    return Finding(
        sentence=f"FedBuff with a buffer of 3 needs at most {_MOST_TIME:g} of the time of random "
        "choice in rounds, in every setting",
        measured=_listed(shares),
        holds=all(own.mean() <= _MOST_TIME for own in shares.values()),
    )


def leaving_rounds_helps(results: Results) -> Finding:
    """Every policy, with a buffer of 3 against its rounds."""
    told, holds = [], True
    for policy, (without, within) in _POLICIES.items():
        shares = {one.setting.name: one.shares(without, within) for one in results}
        told.append(f"{policy}: {_listed(shares)}")
        holds = holds and all(map(_sooner, shares.values()))
    return Finding(
        sentence="Leaving rounds helps every policy: random choice (FedBuff), BSFL and Oort are "
        "sooner at the level with a buffer of 3 than in rounds, in every setting (significantly)",
        measured="of their time in rounds, " + "; ".join(told),
        holds=holds,
    )


def more_than_choosing(results: Results) -> Finding:
    """Random choice without rounds against guided choice in rounds."""
    told, holds = [], True
    for rival in (BSFL_ROUNDS, OORT_ROUNDS):
        shares = {one.setting.name: one.shares(FEDBUFF_3, rival) for one in results}
        told.append(f"of {rival}: {_listed(shares)}")
        holds = holds and all(map(_sooner, shares.values()))
    return Finding(
        sentence="Leaving rounds gains more than choosing within them: FedBuff, which chooses at "
        "random, is sooner than BSFL and Oort in rounds, in every setting (significantly)",
        measured="; ".join(told),
        holds=holds,
    )


def small_buffers(results: Results) -> Finding:
    """A buffer of 3 against one of 10."""
    shares = {one.setting.name: one.shares(FEDBUFF_3, FEDBUFF_10) for one in results}
    return Finding(
        sentence="A small buffer is sooner: FedBuff with a buffer of 3 needs less time than with "
        "one of 10, in every setting (significantly)",
        measured=_listed(shares),
        holds=all(map(_sooner, shares.values())),
    )


def choosing_still_pays(results: Results) -> Finding:
    """Oort without rounds against random choice without rounds, where speeds differ much."""
    here = [one for one in results if one.setting.name in _TWO_SPEEDS]
    shares = {one.setting.name: one.shares(OORT_3, FEDBUFF_3) for one in here}
    return Finding(
        sentence="Choosing still pays without rounds: Oort needs less time than FedBuff on digits "
        "in both worlds of groups (significantly)",
        measured=_listed(shares),
        holds=all(map(_sooner, shares.values())),
    )


def ends_not_lower(results: Results) -> Finding:
    """What is gained in time must not be lost at the end."""
    told, holds = [], True
    for one in results:
        base = one.ends(RANDOM)
        lost = {label: 100 * (base - one.ends(label)) for label in _WITHOUT_ROUNDS}
        worst = max(lost, key=lambda label: float(lost[label].mean()))
        holds = holds and float(lost[worst].mean()) <= _MOST_LOST_POINTS
        told.append(f"{one.setting.name}: {worst} {number(interval(-lost[worst]), 2)} points")
    return Finding(
        sentence=f"The end is not lower: nobody without rounds ends more than {_MOST_LOST_POINTS:g}"
        " point below random choice in rounds at its best learning rate, in any setting",
        measured="the lowest against random in rounds, " + "; ".join(told),
        holds=holds,
    )


def not_bought_with_work(results: Results) -> Finding:
    """Client updates until the level."""
    shares = {one.setting.name: _updates(one, FEDBUFF_3) / _updates(one, RANDOM) for one in results}
    return Finding(
        sentence=f"The time is not bought with clients' work: FedBuff needs at most {_MOST_WORK:g} "
        "times as many client updates until the level as random choice in rounds, in every setting",
        measured=_listed(shares),
        holds=all(own.mean() <= _MOST_WORK for own in shares.values()),
    )


def one_rate_flatters(results: Results) -> Finding:
    """What a learning rate of its own gives the baseline, without leaving rounds."""
    here = [one for one in results if one.setting.name in _DIGITS]
    shares = {one.setting.name: one.shares(RANDOM, BASELINE) for one in here}
    return Finding(
        sentence="Much of what seems to be gained is a matter of the learning rate: on digits, "
        f"random choice in rounds needs at most {_MOST_TUNED_TIME:g} of its time with "
        f"{BASE_RATE:g} when it chooses its own",
        measured=_listed(shares),
        holds=all(own.mean() <= _MOST_TUNED_TIME for own in shares.values()),
    )


FINDINGS: Final[tuple[Callable[[Results], Finding], ...]] = (
    fedbuff_in_every_setting,
    leaving_rounds_helps,
    more_than_choosing,
    small_buffers,
    choosing_still_pays,
    ends_not_lower,
    not_bought_with_work,
    one_rate_flatters,
)


def _sooner(shares: FloatArray) -> bool:
    """Whether the interval of a share is below 1."""
    return bool(np.isfinite(shares).all()) and interval(shares).high < 1.0


def _updates(result: RaceResult, label: str) -> FloatArray:
    return np.array([costs.client_updates for costs in result.costs(label)])


def _listed(shares: Mapping[str, FloatArray]) -> str:
    return ", ".join(f"{name} {share_text(own)}" for name, own in shares.items())


def _gather(folder: Path, *, quick: bool, run: RunCells) -> Evidence:
    plan = _QUICK if quick else _FULL
    settings = QUICK_SETTINGS if quick else SETTINGS
    results = [race(one, plan, folder / one.name, run) for one in settings]
    listed = ", ".join(f"{rate:g}" for rate in plan.grid)
    return Evidence(
        setting=f"{CONCURRENCY} clients train at any time, in cohorts of {CONCURRENCY} or in "
        f"{CONCURRENCY} slots that are refilled one by one. Each contestant has the learning rate "
        f"of {listed} that is soonest at the level on {len(plan.tuning_seeds)} tuning seeds, and "
        f"is judged on {len(plan.judging_seeds)} other seeds. "
        + ". ".join(one.describe() for one in settings),
        findings=tuple(find(results) for find in FINDINGS),
        tables=(_shares_table(results), _one_rate_table(results), *map(_details, results)),
        figures={"shares": shares_of_time(results), "accuracy": accuracy_over_time(results)},
        notes=(*_NOTES, *_ends_of_the_grid(results, plan.grid)),
    )


def _ends_of_the_grid(results: Results, grid: Sequence[float]) -> list[str]:
    """A note on contestants whose best learning rate may lie beyond the grid."""
    found = [
        f"{label} in {one.setting.name} ({rate:g})"
        for one in results
        for label, rate in one.rates.items()
        if rate in (min(grid), max(grid))
    ]
    told = f"The best learning rate may lie beyond the grid for: {', '.join(found)}."
    return [told] if found else []


_NOTES = (
    f"The level is the accuracy at which random choice in rounds ends with a learning rate of "
    f"{BASE_RATE:g}, in each seed its own; a contestant is there when its accuracy, averaged over "
    "the last 3 % of the time, is. What a contestant ends with is the mean of the last tenth.",
    "Shares of time are taken seed by seed: with one seed all contestants have the same clients, "
    "the same data and the same luck.",
    "Old answers weigh (1 + age)^-0.5, as in FedBuff. The sentences were written before the runs, "
    "after a smaller study on digits; the local steps and times of the last three settings were "
    "chosen by runs of random choice in rounds alone, so that the learning rates have its best "
    "between their ends.",
)


def _shares_table(results: Results) -> Table:
    labels = [contestant.label for contestant in CONTESTANTS]
    return Table(
        title=f"Time to the level, as a share of what {RANDOM} needs with {BASE_RATE:g}",
        columns=("contestant", *(one.setting.name for one in results)),
        rows=tuple(
            (
                label,
                *(
                    f"{share_text(one.shares(label, BASELINE))} ({one.rates[label]:g})"
                    for one in results
                ),
            )
            for label in labels
        ),
        footnotes=(INTERVALS, "In brackets the learning rate that was chosen on other seeds."),
    )


def _one_rate_table(results: Results) -> Table:
    """The trap: what the same table would say without tuning."""

    def share(one: RaceResult, label: str) -> str:
        base = one.trials[RANDOM][BASE_RATE].seconds
        mean = float(np.mean(one.trials[label][BASE_RATE].seconds / base))
        return f"{mean:.3f}" if np.isfinite(mean) else "not in every seed"

    return Table(
        title=f"The same with a learning rate of {BASE_RATE:g} for all, on the tuning seeds",
        columns=("contestant", *(one.setting.name for one in results)),
        rows=tuple(
            (contestant.label, *(share(one, contestant.label) for one in results))
            for contestant in CONTESTANTS
        ),
        footnotes=(
            "Too favourable to servers that aggregate often: with a small learning rate more steps "
            "are more progress.",
        ),
    )


def _details(result: RaceResult) -> Table:
    rates = {BASELINE: BASE_RATE, **result.rates}
    return milestone_table(result, f"{result.setting.name}: the end, and the way to it", rates)


CLAIM = Claim(
    name="rounds-are-the-bottleneck",
    source="fedmuster's own",
    statement="At equal concurrency, a server that refills slots one by one and aggregates a few "
    "answers at a time comes to the same accuracy in less time than one that works in rounds, "
    "whatever the policy, also where each has its own best learning rate, and does not end lower.",
    gather=_gather,
)
