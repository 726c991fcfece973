"""The rule of policies that maximise the slowest member of a cohort plus a mean over it."""

from dataclasses import dataclass

import numpy as np

from fedmuster.bandits.rewards import repeats
from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.explaining import Moment, Parts, Rule, parts_in_words, rank
from fedmuster.core.words import number
from fedmuster.solvers.bottleneck_problem import BottleneckProblem

_ALIKE = 1e-9
_HUGE = 1e12
"""Stands for infinity, where the rest of two infinite values is compared."""
_MOST_SWAPS = 10**8


@dataclass(frozen=True, kw_only=True, slots=True)
class BestSet(Rule):
    """The largest ``min u + mean w``, less a penalty for clients of one cluster.

    Args:
        formula: the rule in words.
        slowest: the term that is u; without it a client was never tried, and counts as infinite.
        scale: the factor from the term to u; negative where the term is to be small.
        weights: the terms that add up to w.
        parts: what adds up to the term.
        times_size: whether w counts as a sum over the cohort, not as a mean.
        penalty: of each further client of a cluster.
        exact: whether the best set is found for certain.
    """

    formula: str
    slowest: str
    weights: tuple[str, ...]
    parts: Parts = ()
    scale: float = 1.0
    times_size: bool = False
    penalty: float = 0.0
    exact: bool = True

    @property
    def needs(self) -> tuple[str, ...]:
        """All terms that enter."""
        return (self.slowest, *(name for name, _ in self.parts), *self.weights)

    @property
    def unlimited(self) -> tuple[str, ...]:
        """The term that is u, unless it is to be small."""
        return (self.slowest,) if self.scale > 0 else ()

    def merit(self, moment: Moment) -> FloatArray:
        """The value of the cohort if each client came in place of the weakest member."""
        swaps = Swaps(self, moment)
        if len(moment.cohort) == 0:
            return np.nan_to_num(swaps.instance.bottleneck, nan=0.0)
        out = swaps.weakest()
        value = np.full(moment.num_clients, -np.inf)
        value[moment.passed_over] = swaps.values(out, moment.passed_over)
        # Of the cohort, what each brings itself: the bottleneck is last.
        value[moment.cohort] = swaps.instance.bottleneck[moment.cohort]
        return value

    def worth(self, moment: Moment) -> str | None:
        """Both parts of the value, and the client that is the bottleneck."""
        if len(moment.cohort) == 0:
            return None
        swaps = Swaps(self, moment)
        slowest = int(moment.cohort[np.argmin(swaps.instance.bottleneck[moment.cohort])])
        extreme = (
            "its lowest" if self.scale > 0 else f"minus {number(-self.scale)} times its longest"
        )
        kind = "sum" if self.times_size else "mean"
        told = (
            f"The cohort is worth {_told(*swaps.parts(moment.cohort))}: {extreme} {self.slowest} "
            f"(of {moment.name(slowest)}), and the {kind} of {' + '.join(self.weights)}"
        )
        return told if self.penalty == 0 else f"{told} less {number(self.penalty)} for each repeat"

    def chosen(self, moment: Moment, client: int) -> str:
        """What the cohort would be worth with the best other client in its place."""
        swaps = Swaps(self, moment)
        told = self._terms(moment, client)
        others = moment.passed_over
        if len(others) == 0:
            return f"{told}; everybody who was available is taken"
        values = swaps.values(client, others)
        best = int(others[np.argmax(values)])
        change = self._change(swaps, moment, out=client, into=best)
        return f"{told}. With {moment.name(best)}, the best other, in its place {change}"

    def passed_over(self, moment: Moment, client: int) -> str:
        """What the cohort would be worth with it, in the place where that costs least."""
        if len(moment.cohort) == 0:
            return "nobody was"
        swaps = Swaps(self, moment)
        into = np.array([client])
        values = [float(swaps.values(out, into)[0]) for out in moment.cohort.tolist()]
        out = int(moment.cohort[int(np.argmax(values))])
        change = self._change(swaps, moment, out=out, into=client)
        return (
            f"{self._terms(moment, client)}. In place of {moment.name(out)}, where it would cost "
            f"least, {change}"
        )

    def _change(self, swaps: "Swaps", moment: Moment, *, out: int, into: int) -> str:
        before = swaps.parts(moment.cohort)
        after = swaps.parts(np.append(moment.cohort[moment.cohort != out], into))
        told = f"the cohort would be worth {_told(*after)} instead of {_told(*before)}"
        gain = _compare(after, before)
        if abs(gain) <= _ALIKE:
            return f"{told}, the same: chance decided"
        if gain > 0:
            why = "is not exact" if not self.exact else "chose in turns, within budgets"
            return f"{told}, which is more: the solver {why}"
        return told

    def _terms(self, moment: Moment, client: int) -> str:
        value = float(moment.column(self.slowest)[client])
        everyone = np.flatnonzero(moment.available)
        if np.isnan(value):
            told = f"it was never tried, so that its {self.slowest} has no limit"
        else:
            u = Swaps(self, moment).instance.bottleneck
            made_of = parts_in_words(moment, client, self.parts)
            told = (
                f"its {self.slowest} {number(value)}{made_of} is rank "
                f"{rank(u, everyone, client):,} of {len(everyone):,}"
            )
        for name in self.weights:
            column = moment.column(name)
            place = rank(column, everyone, client)
            told += f", its {name} {number(float(column[client]))} rank {place:,}"
        return told


class Swaps:
    """The set problem of a round, over all clients, and its value after a swap."""

    def __init__(self, rule: BestSet, moment: Moment) -> None:
        self.moment = moment
        size = max(len(moment.cohort), 1)
        bottleneck = np.nan_to_num(rule.scale * moment.column(rule.slowest), nan=np.inf)
        weight = np.zeros(moment.num_clients)
        for name in rule.weights:
            weight += np.nan_to_num(moment.column(name))
        clusters = None
        if rule.penalty > 0:
            clusters = np.nan_to_num(moment.column("cluster"), nan=0.0).astype(np.int64)
        self.instance = BottleneckProblem(
            bottleneck=bottleneck,
            weight=size * weight if rule.times_size else weight,
            size=size,
            clusters=clusters,
            penalty=rule.penalty if clusters is not None else 0.0,
        )

    def parts(self, cohort: IntArray) -> tuple[float, float]:
        """The lowest u of a cohort, and its mean w less penalties."""
        return self.instance.parts(cohort)

    def values(self, out: int, into: IntArray) -> FloatArray:
        """The value of the cohort with each of ``into`` in the place of ``out``."""
        rest = self.moment.cohort[self.moment.cohort != out]
        u, w = self.instance.bottleneck, self.instance.weight
        slowest = np.minimum(u[rest].min(initial=np.inf), u[into])
        mean = (w[rest].sum() + w[into]) / len(self.moment.cohort)
        labels = self.instance.clusters
        if labels is not None:
            again = np.isin(labels[into], labels[rest])
            mean = mean - self.instance.penalty * (repeats(labels[rest]) + again)
        # Infinite values tie; then the rest decides.
        return np.asarray(np.where(np.isinf(slowest), _HUGE, slowest) + mean)

    def weakest(self) -> int:
        """The member for whom the best other client would cost least."""
        others, cohort = self.moment.passed_over, self.moment.cohort
        if len(others) * len(cohort) > _MOST_SWAPS or len(others) == 0:
            return int(cohort[np.argmin(self.instance.bottleneck[cohort])])
        best = [self.values(out, others).max() for out in cohort.tolist()]
        return int(cohort[int(np.argmax(best))])


def _compare(one: tuple[float, float], other: tuple[float, float]) -> float:
    """By how much the first value is better, relative to the largest part of both."""
    unlimited = np.isinf(one[0]) and np.isinf(other[0])
    gain = one[1] - other[1] if unlimited else sum(one) - sum(other)
    scale = max(abs(value) for value in (*one, *other, 1e-300) if np.isfinite(value))
    return gain / scale


def _told(slowest: float, rest: float) -> str:
    sign = "-" if rest < 0 else "+"
    return f"{number(slowest)} {sign} {number(abs(rest))} = {number(slowest + rest)}"
