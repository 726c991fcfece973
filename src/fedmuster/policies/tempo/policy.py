"""Tempo: clients by value per slot-second, in rounds and without."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.utility import reported_loss, signal
from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.explaining import Rule
from fedmuster.core.policy import POLICIES, PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection, of_rows
from fedmuster.core.staleness import Discard, PolynomialWorth, Staleness
from fedmuster.core.state import derived, given, shared
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.tempo import latencies
from fedmuster.policies.tempo.explain import ByTempo
from fedmuster.policies.tempo.latencies import LatencyState, expected_seconds
from fedmuster.solvers.bottleneck import Exact
from fedmuster.solvers.bottleneck_problem import BottleneckProblem
from fedmuster.solvers.top_k import nobody, top_k

_MEMORY: Final = 0.5
"""Of a client's old need, the share that is kept when a new one comes."""
_TYPICAL: Final = 30
"""About as many of the last answers make up the typical loss and the typical norm."""
_LARGEST_LOSS, _LARGEST_NORM = 1.0, 2.0
"""In logarithms, how far a loss and a norm count as away from the typical one.

A client reports its own loss, so a lie must gain little. The server measures the norm itself.
"""
_PATIENCE: Final = 3.0
"""A late client is awaited for this number of its expected times, or as long as a slow client of
the fleet takes."""
_FORGETTING: Final = 0.95
"""What each decision leaves of the older value and slot-seconds in the price of a slot-second."""


_MANY: Final = 1 << 16
"""With more clients than this, free slots are filled from a shortlist."""
_SHORTLIST: Final = 2048
"""Clients on each half of the shortlist."""
_LIST_EVERY: Final = 256
"""Answers after which the shortlist is made anew."""


@dataclass(slots=True)
class TempoState:
    """What Tempo knows.

    Attributes:
        latency: how long clients take.
        asked: int64[K], how often each client was asked, but for late answers.
        answered: int64[K], how often it answered.
        last: [K], how many answers had come when it was last heard of.
        need: [K], smoothed logarithm of its loss and update norm relative to the typical ones.
        told: int64[K], how many answers with a loss or a norm that is made of.
        cost: [K], mean of the costs that it has reported.
        charged: int64[K], how many those are.
        due: [K], until when its late answer is awaited, by :attr:`clock`; 0 for none.
        typical: [2, 2], for losses and for norms the logarithm of the typical one, and the answers
            that it is made of.
        clock: answers so far, and seconds of rounds so far.
        price: value and slot-seconds of the last jobs.
        slots: whether clients are asked while others are out.
        shortlist: int64, of very many clients the best by score, and the best by coverage.
        listed: how many answers had come when the shortlist was made; -1 if there is none.
        samples: [K], data relative to the mean; 0-d where all have alike.
    """

    latency: LatencyState
    asked: IntArray
    answered: IntArray
    last: FloatArray
    need: FloatArray
    told: IntArray
    cost: FloatArray
    charged: IntArray
    due: FloatArray
    typical: FloatArray = shared()
    clock: FloatArray = shared()
    price: FloatArray = shared()
    slots: BoolArray = shared()
    shortlist: IntArray = derived()
    listed: IntArray = derived()
    samples: FloatArray = given()


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Tempo(PolicyTraits):
    """Clients by value per slot-second: one policy for rounds and no rounds, without settings.

    What is scarce is slot-seconds. An update of client k is worth ``u_k = n_k l_k sqrt(a_k) p_k``:
    n_k is its data relative to the mean; l_k its need of training: the loss that it last reported
    relative to the typical loss then, times the norm of its last update relative to the typical
    norm then (smoothed, within e^±1 and e^±2; 1 for what is not known); a_k its age, the answers
    since it was last heard of over K; p_k the chance that it answers. It holds a slot for tau_k
    seconds: the median of a log-normal law, shrunk towards the fleet's and forgotten after a
    change; a client that was never seen counts as fast as the fastest quarter. A free slot goes to
    the largest ``u_k / tau_k``, and with a chance of ``coverage`` to the largest ``a_k / tau_k``.

    A round closes with the first ``quota_share`` of its answers. Late answers enter a later model
    with a weight of (1 + age)^-0.5, and their clients hold places until then: about m clients work
    at a time. With ``close_early = false`` a round waits for all, and its cohort S has the largest
    ``sum u_k - price · |S| · max tau_k``, exactly; the price is the value per slot-second of the
    last jobs.

    Why the ratio: let client k have the value ``v_k sqrt(a_k)`` and be visited ``x_k`` times a unit
    of age. It brings ``v_k sqrt(x_k)`` and holds ``tau_k x_k`` slots. To maximise the sum of the
    first with the sum of the second at most C is a concave problem; at its only optimum
    ``v_k / (2 tau_k sqrt(x_k))`` is the same for all: each client is visited whenever
    ``u_k / tau_k`` reaches one common level. The largest ratio first keeps to that level. So the
    rule is the optimal schedule of this problem, and visits are in proportion to (v_k / tau_k)².
    It supposes known, constant values that do not depend on each other. The losses of a model do,
    so there is no regret bound for training.

    Args:
        close_early: whether rounds close early, as above; else they wait for everybody. Write false
            at edge servers that train models, and for servers that need fresh answers.
        quota_share: with which share of the cohort's answers.
        coverage: the share of places for clients that were not heard of for longest a second.
        privacy: values are multiplied by (privacy budget left)^privacy; 0 for no price of privacy.
        cost: how many seconds in a slot a unit of cost is worth; 0 for no price of cost. A client
            reports its costs (energy, money, megabytes) as the signal "cost" of its answers; one
            that never has counts as the mean of the others.
        min_share: each client is asked at least this often, as a share of the mean; at most 1.
        recharge: the exponent of the age, in (0, 1].

    State:
        Of each client the law of its times, how often it was asked and answered, its need of
        training, when it was last heard of, and how long a late answer is awaited; of all the
        typical loss and norm, the price, and the laws of the fleet.

    Deviations:
        1. This is the published description of the policy: there is none to deviate from.
        2. In rounds that close early a missing client is taken for late: it is believed to take
           half more than the round. Only if the round lasted three times its expected time it
           counts as failed.

    References:
        W. Dinkelbach, On Nonlinear Fractional Programming, Management Science 13(7), 1967: ratios.
        M. J. Neely, Stochastic Network Optimization, 2010, chapter 7: prices in renewal systems.
        E. S. Page, Continuous Inspection Schemes, Biometrika 41, 1954: changes of speed.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> selector = Selector(Tempo(), Problem(num_clients=50, cohort_size=5))
        >>> cohort = selector.select()
        >>> len(cohort.clients), cohort.quota
        (5, 2)
    """

    name: ClassVar[str] = "tempo"
    # While late answers are out, fewer than m clients are asked.
    cohort_rule: ClassVar[Any] = property(lambda self: "at most" if self.close_early else "exact")
    terms: ClassVar[Mapping[str, str]] = {
        "value": "data · need · sqrt(age) · chance of an answer",
        "expected_seconds": "how long it holds a slot, by its times so far",
        "need": "its loss and update norm when it last trained over the typical ones then",
        "age": "answers since it was last heard of, over the number of clients",
        "chance": "the chance that it answers",
        "price": "value per slot-second of the last jobs",
        "cost_seconds": "what its costs so far count as, in seconds in a slot",
    }

    close_early: bool = True
    quota_share: float = 0.4
    coverage: float = 0.2
    privacy: float = 0.0
    cost: float = 0.0
    min_share: float = 0.0
    recharge: float = 0.5

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("coverage", "min_share"):
            require(0 <= getattr(self, name) <= 1, self, name, "a number from 0 to 1")
        require(0 < self.quota_share <= 1, self, "quota_share", "a number in (0, 1]")
        require(0 < self.recharge <= 1, self, "recharge", "a number in (0, 1]")
        for name in ("privacy", "cost"):
            require(0 <= getattr(self, name) < np.inf, self, name, "a number >= 0")

    @property
    def stale_answers(self) -> Staleness:
        """In rounds that close early, late answers weigh ``(1 + age)^-0.5``."""
        return PolynomialWorth() if self.close_early else Discard()

    def init(self, problem: Problem) -> TempoState:
        """No client seen yet."""
        clients, weights = problem.num_clients, problem.data_weights()
        return TempoState(
            latency=latencies.init(clients),
            asked=np.zeros(clients, dtype=np.int64),
            answered=np.zeros(clients, dtype=np.int64),
            last=np.zeros(clients),
            need=np.zeros(clients),
            told=np.zeros(clients, dtype=np.int64),
            cost=np.zeros(clients),
            charged=np.zeros(clients, dtype=np.int64),
            due=np.zeros(clients),
            typical=np.zeros((2, 2)),
            clock=np.zeros(2),
            price=np.zeros(2),
            slots=np.array(False),
            shortlist=np.zeros(2 * _SHORTLIST if clients > _MANY else 0, dtype=np.int64),
            listed=np.array(-1),
            samples=np.array(1.0) if weights is None else weights / weights.mean(),
        )

    def select(self, state: TempoState, view: RoundView, rng: Generator) -> Selection:
        """Some places by coverage, the others by value per slot-second."""
        waits = self.close_early and not state.slots
        count = view.num_to_choose
        if waits:
            count = min(count, max(1, view.cohort_size - self._num_out(state, view)))
        if count == 0:
            return nobody(view)
        rows = self._candidates(state, view, count)
        value, seconds = self._value(state, rows, view), expected_seconds(state.latency, rows)
        dues = self._dues(state, rows, seconds)
        first = self._covered(state, rows, dues, count, rng)
        left = np.setdiff1d(np.arange(len(rows)), first, assume_unique=True)
        if self.close_early or state.slots:
            best = top_k(value[left] / dues[left], count - len(first), rng)
        else:
            value -= self._price(state) * (dues - seconds)
            best = self._best_cohort(state, value[left], seconds[left], count - len(first), rng)
        chosen = Selection.of(view, rows, np.concatenate([first, left[best]]))
        quota = max(1, round(self.quota_share * count))
        return replace(chosen, quota=quota) if waits else chosen

    def _candidates(self, state: TempoState, view: RoundView, count: int) -> IntArray:
        """The available clients; of very many, those of the shortlist, if enough of them are."""
        if state.listed >= 0 and self.privacy == 0 and self.min_share == 0:
            listed = state.shortlist[view.available[state.shortlist]]
            if len(listed) >= _SHORTLIST // 2 + count:
                return listed
        return np.flatnonzero(view.available)

    def _make_shortlist(self, state: TempoState) -> None:
        """Of very many clients, the best by score and the best by coverage, in increasing order.

        The ages of all clients grow alike until the next list, so its best stay the best, but for
        clients that are heard of meanwhile.
        """
        due = state.listed < 0 or state.clock[0] >= state.listed + _LIST_EVERY
        if len(state.shortlist) == 0 or not state.slots or not due:
            return
        rng, everybody = stream(0, POLICY, int(state.clock[0])), slice(None)
        dues = self._dues(state, everybody, expected_seconds(state.latency, everybody))
        best = top_k(self._value(state, everybody) / dues, _SHORTLIST, rng)
        covered = self._age(state, everybody) / dues
        covered[best] = -np.inf
        state.shortlist[:] = np.sort(np.concatenate([best, top_k(covered, _SHORTLIST, rng)]))
        state.listed[...] = int(state.clock[0])

    def _num_out(self, state: TempoState, view: RoundView) -> int:
        """How many clients still work for an earlier round."""
        return int(np.count_nonzero((state.due > state.clock[1]) & ~view.available))

    def _covered(
        self, state: TempoState, rows: IntArray, dues: FloatArray, count: int, rng: Generator
    ) -> IntArray:
        """Positions of clients that are owed their share, or not heard of for longest a second."""
        if self.min_share > 0:
            owed = self.min_share * state.asked.sum() / len(state.asked) - state.asked[rows]
            due = np.flatnonzero(owed >= 1.0)
            if len(due) > 0:
                return due[top_k(owed[due], min(count, len(due)), rng)]
        places = int(rng.binomial(count, self.coverage))
        return top_k(self._age(state, rows) / dues, places, rng)

    def _best_cohort(
        self, state: TempoState, value: FloatArray, seconds: FloatArray, count: int, rng: Generator
    ) -> IntArray:
        """The cohort with the largest ``sum value - price · count · max seconds``."""
        if count == 0:
            return np.empty(0, dtype=np.int64)
        problem = BottleneckProblem(
            bottleneck=-self._price(state) * seconds, weight=value, size=count
        )
        return Exact().solve(problem, rng)

    def observe(self, state: TempoState, selection: Selection, feedback: Feedback) -> None:
        """Learn times, needs, and which clients do not answer."""
        rows = np.argsort(feedback.clients)
        clients, answered = feedback.clients[rows], feedback.answered[rows]
        if len(clients) == 0:
            return
        state.slots[...] = selection.tickets is not None
        here, seconds = clients[answered], feedback.latency_seconds[rows][answered]
        longest = float(seconds.max(initial=0.0))
        self._learn_price(state, here, seconds, len(clients))
        if not state.slots:
            state.clock[1] += longest
        self._learn_missing(state, clients[~answered], longest)
        latencies.learn(state.latency, here, seconds)
        state.asked[here] += 1
        state.answered[here] += 1
        state.due[here] = 0.0
        loss, norm, cost = (
            column[rows][answered]
            for column in (
                reported_loss(feedback),
                signal(feedback, "update_norm"),
                signal(feedback, "cost"),
            )
        )
        self._learn_needs(state, here, loss, norm)
        self._learn_costs(state, here, cost)
        state.clock[0] += len(here)
        state.last[clients] = state.clock[0]
        self._make_shortlist(state)

    def _learn_missing(self, state: TempoState, missing: IntArray, longest: float) -> None:
        """Clients without an answer have failed, or in rounds that close early may be late."""
        late = np.zeros(len(missing), dtype=np.bool_)
        if self.close_early and not state.slots and longest > 0:
            expected = expected_seconds(state.latency, missing)
            late = longest < _PATIENCE * expected
            latencies.learn_longer(state.latency, missing, longest)
            wait = _PATIENCE * expected_seconds(state.latency, missing)
            slowest = latencies.slow_seconds(state.latency)
            state.due[missing] = state.clock[1] + np.maximum(wait, slowest)
        state.asked[missing[~late]] += 1

    def _learn_needs(
        self, state: TempoState, clients: IntArray, loss: FloatArray, norm: FloatArray
    ) -> None:
        need, told = _relative(state.typical[0], loss, _LARGEST_LOSS)
        by_norm, normed = _relative(state.typical[1], norm, _LARGEST_NORM)
        told |= normed
        clients, need = clients[told], (need + by_norm)[told]
        memory = np.where(state.told[clients] > 0, _MEMORY, 0.0)
        state.need[clients] = memory * state.need[clients] + (1.0 - memory) * need
        state.told[clients] += 1

    def _learn_costs(self, state: TempoState, clients: IntArray, cost: FloatArray) -> None:
        told = np.isfinite(cost) & (cost >= 0)
        clients, cost = clients[told], cost[told]
        state.charged[clients] += 1
        state.cost[clients] += (cost - state.cost[clients]) / state.charged[clients]

    def _learn_price(
        self, state: TempoState, clients: IntArray, seconds: FloatArray, asked: int
    ) -> None:
        held = seconds.sum() if self.close_early or state.slots else asked * seconds.max(initial=0)
        gained = np.array([np.sort(self._value(state, clients)).sum(), held])
        state.price[:] = _FORGETTING * state.price + gained

    def _price(self, state: TempoState) -> float:
        value, seconds = state.price
        return float(value / seconds) if seconds > 0 else 0.0

    def _age(self, state: TempoState, rows: IntArray | slice) -> FloatArray:
        age: FloatArray = np.maximum(state.clock[0] - state.last[rows], 0.5) / len(state.last)
        return age

    def _chance(self, state: TempoState, rows: IntArray | slice) -> FloatArray:
        chance: FloatArray = (state.answered[rows] + 1.0) / (state.asked[rows] + 1.0)
        return chance

    def _dues(self, state: TempoState, rows: IntArray | slice, seconds: FloatArray) -> FloatArray:
        """Seconds in a slot, and the cost in seconds."""
        if self.cost == 0:
            return seconds
        known = state.charged > 0
        typical = state.cost[known].mean() if known.any() else 0.0
        return seconds + self.cost * np.where(known[rows], state.cost[rows], typical)

    def _value(
        self, state: TempoState, rows: IntArray | slice, view: RoundView | None = None
    ) -> FloatArray:
        value = of_rows(state.samples, rows) * np.exp(state.need[rows])
        value = value * self._age(state, rows) ** self.recharge * self._chance(state, rows)
        if view is not None and self.privacy > 0 and view.privacy_left is not None:
            value = value * view.privacy_left[rows] ** self.privacy
        return np.asarray(value)

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return ByTempo(coverage=self.coverage, waits=not self.close_early)

    def scores(self, state: TempoState, view: RoundView) -> Mapping[str, FloatArray]:
        """Value per slot-second of each client, with its terms."""
        everybody = np.arange(len(state.asked))
        value, seconds = (
            self._value(state, everybody, view),
            expected_seconds(state.latency, everybody),
        )
        dues = self._dues(state, everybody, seconds)
        columns = {
            "score": value / dues,
            "value": value,
            "expected_seconds": seconds,
            "need": np.where(state.told > 0, np.exp(state.need), np.nan),
            "age": self._age(state, everybody),
            "chance": self._chance(state, everybody),
            "price": np.full(len(everybody), self._price(state)),
            "times_asked": state.asked.astype(np.float64),
        }
        return {**columns, "cost_seconds": dues - seconds} if self.cost > 0 else columns


def _relative(
    typical: FloatArray, values: FloatArray, largest: float
) -> tuple[FloatArray, BoolArray]:
    """[n], logarithms of values over the typical one, which learns them; and which were told.

    What was not told counts as typical.
    """
    told = np.isfinite(values) & (values > 0)
    relative = np.zeros(len(values))
    if told.any():
        logs, (centre, number) = np.log(values[told]), typical
        if number == 0:
            centre = np.sort(logs).mean()
        relative[told] = np.clip(logs - centre, -largest, largest)
        number = min(number + len(logs), float(max(_TYPICAL, len(logs))))
        # Values far from the typical one move it no further than others, be they lies.
        typical[:] = centre + np.sort(relative[told]).sum() / number, number
    return relative, told
