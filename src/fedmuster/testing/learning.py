"""Points 13 and 14: newcomers are explored, and what is learned pays."""

from collections.abc import Callable
from dataclasses import replace
from math import comb
from typing import Any

import numpy as np

from fedmuster.core.policy import Policy
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.core.selector import Selector
from fedmuster.core.streams import POLICY, stream
from fedmuster.testing.federation import Draw, Federation, Knowledge, lively, varied_seconds
from fedmuster.testing.playing import continue_in, finish, play_round, select_in, trained

RESIDENTS, NEWCOMERS = 12, 2
_SETTLED_AFTER = 30
PATIENCE = 60
"""Uniform choice of 3 out of 14 overlooks a client for so long with probability 5e-7."""

SEEDS = 20
_ROUNDS = 100
LEVEL = 1e-3
"""So many policies that learn nothing pass for ones that do."""
STUDENT_QUANTILE = 4.0609
"""Of 1 - LEVEL / 3 with 19 degrees of freedom; a third, because there are three ways to pass."""

Advantage = Callable[[Draw, IntArray], float]
"""How much better a cohort is than what uniform choice could expect in the same round."""

_SLOW = [3, 7]
_NEEDY = [4, 5]
"""Neither among the four fastest nor the four slowest: nobody finds them who looks at time."""


def newcomer_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 13: whether clients that join mid-run, the fastest of all, are ever tried."""
    seconds = np.append(varied_seconds(RESIDENTS), [0.03, 0.02])
    federation = Federation(mean_seconds=seconds, knowledge=knowledge)
    problem = federation.problem()
    before = Federation(mean_seconds=seconds[:RESIDENTS], knowledge=knowledge)
    selector = Selector(policy, before.problem(), seed=13)
    for t in range(1, _SETTLED_AFTER + 1):
        draw = federation.draw(t).of_first(RESIDENTS)
        select_in(selector, draw)
        finish(selector, draw)
    joined = selector.join(
        NEWCOMERS,
        num_samples=None if problem.num_samples is None else problem.num_samples[RESIDENTS:],
        quality=None if problem.quality is None else problem.quality[RESIDENTS:],
        clusters=None if problem.clusters is None else problem.clusters[RESIDENTS:],
        attributes=None if problem.attributes is None else problem.attributes[RESIDENTS:],
        expected_seconds=(
            None if problem.expected_seconds is None else problem.expected_seconds[RESIDENTS:]
        ),
    )
    newcomers = set(joined.tolist())
    for cohort in continue_in(selector, federation, PATIENCE):
        newcomers.difference_update(cohort)
    if newcomers:
        return (
            f"clients {sorted(newcomers)} joined after round {_SETTLED_AFTER}, are the fastest of "
            f"all, and were not chosen once in {PATIENCE} rounds; treat the unseen as promising"
        )
    return None


def learning_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 14: whether it beats uniform choice, if it learns or knows the truth.

    A policy may be after short rounds, after clients that the model serves badly and so learns
    most from, or after clients that will be gone soon. There is an easy instance of each, and it
    must do well in one.

    A policy that declares that it learns nothing must not depend on what it observed.
    """
    if not policy.learns:
        fault = _dependence(policy, knowledge)
        if fault is not None:
            return fault
    return _idleness(policy, knowledge) if policy.learns or policy.oracle else None


def _dependence(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    federation = lively(knowledge)
    fresh = policy.init(federation.problem())
    state = trained(policy, federation, _SETTLED_AFTER)
    for t in range(_SETTLED_AFTER + 1, _SETTLED_AFTER + 21):
        view = federation.draw(t).view(policy)
        one, other = (policy.select(s, view, stream(0, POLICY, t)).clients for s in (fresh, state))
        if not np.array_equal(one, other):
            return (
                f"it declares learns = False, but in round {t} it chose {other.tolist()} where it "
                f"would have chosen {one.tolist()} had it observed nothing; declare learns = True"
            )
    return None


def _idleness(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    seconds, loss = np.linspace(0.10, 0.12, 10), np.ones(10)
    with_slow, with_needy = seconds.copy(), loss.copy()
    with_slow[_SLOW] = 1.1
    with_needy[_NEEDY] = 3.0
    found = []
    for mean_seconds, mean_loss, advantage in (
        (with_slow, loss, _seconds_saved),
        (seconds, with_needy, _loss_found),
        (seconds, loss, _leaving_found),
    ):
        federation = Federation(
            mean_seconds=mean_seconds,
            mean_loss=mean_loss,
            cohort_size=4,
            knowledge=knowledge,
            equal_data=True,
            num_clusters=5,
        )
        gains = np.array([_gain(policy, federation, advantage, seed) for seed in range(SEEDS)])
        error = gains.std(ddof=1) / np.sqrt(SEEDS)
        if gains.mean() > STUDENT_QUANTILE * error:
            return None
        found.append(f"{gains.mean():.4f} ± {error:.4f}")
    return (
        f"with {len(_SLOW)} of 10 clients ten times slower than the rest, its rounds were shorter "
        f"than those of uniform choice by {found[0]} s (mean and standard error of {SEEDS} seeds), "
        f"and with {len(_NEEDY)} of 10 clients of three times the loss of the rest, the loss of "
        f"its cohorts was higher by {found[1]}; of those who said that they would leave it chose "
        f"a share higher by {found[2]}; one-sided paired t-tests take none of it for real "
        f"(p > {LEVEL / 3:g}); if what it observes does not change what it selects, declare "
        "learns = False"
    )


def _gain(policy: Policy[Any], federation: Federation, advantage: Advantage, seed: int) -> float:
    """The mean advantage over uniform choice.

    Easy means: a client differs by more than any usual confidence radius after the 40 answers
    that an equal share of 100 rounds is.
    """
    federation = replace(federation, seed=seed)
    state = policy.init(federation.problem())
    gain = 0.0
    for t in range(1, _ROUNDS + 1):
        draw = federation.draw(t)
        gain += advantage(draw, play_round(policy, state, draw, seed=seed).selection.clients)
    return gain / _ROUNDS


def _seconds_saved(draw: Draw, clients: IntArray) -> float:
    """How much longer uniform choice of as many takes."""
    slowest = draw.latency_seconds[clients].max(initial=0.0)
    return expected_maximum(draw.latency_seconds, len(clients)) - float(slowest)


def _loss_found(draw: Draw, clients: IntArray) -> float:
    """How much higher the mean loss of the cohort is than everybody's."""
    return float(np.sum(draw.loss[clients] - draw.loss.mean())) / max(len(clients), 1)


def _leaving_found(draw: Draw, clients: IntArray) -> float:
    """How much larger the share of the cohort is that will leave than everybody's."""
    share = np.count_nonzero(draw.leaving[clients]) / max(len(clients), 1)
    return share - float(draw.leaving[draw.available].mean())


def expected_maximum(values: FloatArray, size: int) -> float:
    """The expected maximum of a uniformly random ``size``-subset of ``values`` (0 of none).

    What uniform choice takes in the same round, without the noise of drawing a cohort for it.

    Example:
        >>> expected_maximum(np.array([3.0, 1.0, 2.0]), 2)  # (2 + 3 + 3) / 3
        2.6666666666666665
    """
    if size == 0:
        return 0.0
    # The i-th smallest is the maximum of as many subsets as choose the others below it.
    weights = [comb(below, size - 1) for below in range(len(values))]
    return float(np.sort(values) @ weights) / comb(len(values), size)
