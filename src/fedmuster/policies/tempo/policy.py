"""Tempo: clients by value per slot-second, in rounds and without."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp
from operator import attrgetter
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.utility import reported_loss, signal
from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.explaining import Rule
from fedmuster.core.policy import POLICIES, PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection, of_rows
from fedmuster.core.staleness import Discard, PolynomialWorth, Staleness
from fedmuster.core.state import given, shared
from fedmuster.policies.tempo import answering, costs, latencies, needs, price, shortlist
from fedmuster.policies.tempo.answering import AnsweringState
from fedmuster.policies.tempo.costs import CostState
from fedmuster.policies.tempo.explain import ByTempo
from fedmuster.policies.tempo.latencies import LatencyState, expected_seconds
from fedmuster.policies.tempo.needs import NeedState
from fedmuster.policies.tempo.price import PriceState
from fedmuster.policies.tempo.shortlist import Shortlist
from fedmuster.solvers.bottleneck import Exact
from fedmuster.solvers.bottleneck_problem import BottleneckProblem
from fedmuster.solvers.top_k import nobody, top_k

_FEWEST_ANSWERS: Final = 2
"""A round waits for at least this many answers, or for all if it asks fewer clients: one update
alone swings the model."""
_YOUNGEST: Final = 0.5
"""The least age, in answers: it is above 0, so that a fast client may be asked again at once."""
_MOST_DATA: Final = exp(2.0)
"""The largest number of samples, over the typical one, that counts: a client may lie about it."""


@dataclass(slots=True)
class TempoState:
    """What Tempo knows.

    Attributes:
        latency: how long clients take.
        answering: which clients answer, and which are late.
        need: how much clients need training.
        price: of a slot-second.
        costs: of clients, beside their seconds.
        last_end: [K], how many answers had come when the last job of each client ended.
        num_answers: how many have come.
        works_in_slots: whether the last answers were to tickets; the first decision of all is taken
            for a round.
        shortlist: of very many clients, those that the next slots may go to.
        samples: [K], data over the typical amount, up to e²; 0-d where all have equally much.
    """

    latency: LatencyState
    answering: AnsweringState
    need: NeedState
    price: PriceState
    costs: CostState
    last_end: FloatArray
    shortlist: Shortlist
    num_answers: FloatArray = shared()
    works_in_slots: BoolArray = shared()
    samples: FloatArray = given()


class _Terms(NamedTuple):
    """[n] each, of some clients."""

    value: FloatArray
    unvisited: FloatArray
    """Age times the chance of an answer."""
    seconds: FloatArray
    """Until an answer."""
    slot_seconds: FloatArray
    """How long a job holds a slot, failures included, and its cost in seconds."""


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Tempo(PolicyTraits):
    """Clients by value per slot-second, in rounds and without; it needs no tuning.

    Slots are scarce, so Tempo asks the clients with the largest value per slot-second,
    ``u_k / d_k``.

    ``u_k = sqrt(n_k l_k a_k p_k)`` is the value of an update. n_k: the client's samples over the
    median number, at most e². l_k: its need of training, its last loss over the typical loss times
    the norm of its last update over the typical norm. These two factors are within e^±1 and e^±2
    and smoothed over the client's reports; a factor that is not reported counts as 1. a_k: its age,
    the answers that came since its last job ended, at least half an answer, over K. A job ends with
    an answer, a failure, or the close of a round that the client missed. p_k: the probability that
    it answers.

    ``d_k = p_k tau_k + (1 - p_k) tau_max``, plus its costs in seconds, is the time for which a job
    of it holds a slot. tau_k: its mean latency, by a log-normal law that is shrunk towards the
    fleet's and starts anew after a change of speed. A client that was never seen counts as the
    first quartile of the fleet, and one that missed a close as at least the time waited for it.
    tau_max: about the longest latency of any answer.

    Clients below ``min_share`` take places first. If there are none, each place goes with
    probability ``coverage`` to the largest ``a_k p_k``. All other places go to the largest ``u_k /
    d_k``.

    A round closes when ``quota_share`` of its clients have answered. A late answer enters a later
    model with a weight of (1 + age)^-0.5, and its client holds its slot until then. With
    ``close_early = false`` a round waits for all clients. Its cohort S, together with the clients
    that coverage chose, then has the largest ``sum u_k - price · |S| · max tau_k``, exactly;
    failures and costs lower u_k by ``price · (d_k - tau_k)`` first. The price is the value per
    slot-second of the last jobs.

    **What is proved.** Let an answer of client k that comes s seconds after its last one be worth
    ``v_k sqrt(s)``, with known constants v_k and tau_k, and let y_k be its answers a second in the
    long run. By Jensen's inequality it is worth at most ``v_k sqrt(y_k)`` a second, which evenly
    spaced answers reach. C slots give ``sum tau_k y_k <= C``, and a client holds one slot at a
    time, so ``tau_k y_k <= 1``. Hence no schedule earns more than F, the largest ``sum v_k
    sqrt(y_k)`` under both. This is strictly concave; for C < K its only optimum is ``y_k = min(1 /
    tau_k, (v_k / (2 lambda tau_k))²)``, with lambda > 0 such that all slots are used. So a client
    that ever rests answers whenever ``v_k sqrt(s) / tau_k`` reaches ``2 lambda``, one level for
    all, and is visited in proportion to ``(v_k / tau_k)²``; one that stays above that level always
    works. A client alone that pays lambda a slot-second is best asked at the age x at which ``v_k
    sqrt(x + tau_k) / (2 tau_k)`` reaches lambda: this is its Whittle index, and the largest index
    first is Whittle's rule. Tempo ranks by ``v_k sqrt(x) / tau_k``, with the age at which it asks
    in place of that of the answer, which gives the same order where tau_k is short beside x. In
    this model, with values and times spread log-normally, its rule earned 92 % of F and more
    (``tests/policies/test_tempo_in_its_model.py``). Ages in answers give the same order as ages in
    seconds while answers come at a steady rate. *Rounds that
    wait:* for constant values, N(S) their sum and D(S) = |S| max tau, a price below the best ratio
    N/D never falls and never passes it (one above it falls), because the cohort that is best at a
    price has a ratio at least as high; so it converges to the best ratio, and from some round on
    every cohort has it (Dinkelbach).

    **What is not proved.** That the rule attains F: for Whittle's rule this is known only as K and
    C grow together, under a condition of stability. Anything for random times, failures, estimated
    values, places by coverage, or rounds that close early. The losses of a model depend on each
    other, and what is loud or old need not be useful, so there is no bound for training. In
    simulation it has been slower than random choice where clients have wrong labels (they are loud
    and old), and where the labels of clients follow from their speed.

    **Liars.** Tempo bounds what clients say of their losses, norms and data, and does not check it:
    the Selector does (``check_reports``). Without that, a fifth of the clients that claims ten
    times its loss gets about 40 % of the places, and one that inflates its losses and the norms of
    its updates 70 %.

    Args:
        close_early: whether rounds close early, as above; else they wait for everybody. Set it to
            false with edge servers that train models and where the server needs fresh answers.
        quota_share: the share of the cohort that must answer before the round closes, and at least
            two clients.
        coverage: the share of places for the clients with the largest age times chance.
        privacy: values are multiplied by (privacy budget left)^privacy; 0 for no price of privacy.
        cost: how many seconds in a slot a unit of cost is worth; 0 for no price of cost. A client
            reports its costs (energy, money, megabytes) as the signal "cost" of its answers; one
            that never has counts as a typical one.
        min_share: each client is asked about this often at least, as a share of the mean; at most
            1. A client is owed whole jobs, and is not asked while it is not there.

    State:
        Of each client the law of its times, how often it was asked, answered and is late, its need,
        its cost, and when its last job ended; of all the last losses and norms, the price, and
        the law of the fleet's times.

    Deviations:
        1. Where nobody tells of late answers (``Feedback.late`` is None), a client that misses the
           end of a round that closes early counts as failed.
        2. With more than 65,536 clients free slots are filled from a shortlist of 4,096 that is
           made anew every 256 answers, unless there is a price of privacy or a minimum share.

    References:
        P. Whittle, Restless Bandits, Journal of Applied Probability 25A, 1988: the index.
        R. R. Weber, G. Weiss, On an Index Policy for Restless Bandits, Journal of Applied
        Probability 27(3), 1990: when it is asymptotically optimal.
        W. Dinkelbach, On Nonlinear Fractional Programming, Management Science 13(7), 1967: ratios.
        E. S. Page, Continuous Inspection Schemes, Biometrika 41, 1954: changes of speed.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> selector = Selector(Tempo(), Problem(num_clients=50, cohort_size=5))
        >>> cohort = selector.select()
        >>> len(cohort.clients), cohort.quota
        (5, 2)
    """

    name: ClassVar[str] = "tempo"
    hears_late: ClassVar[Any] = property(attrgetter("close_early"))
    late_hold_slots: ClassVar[Any] = property(attrgetter("close_early"))
    terms: ClassVar[Mapping[str, str]] = {
        "value": "sqrt(data · need · age · chance of an answer)",
        "slot_seconds": "how long a job of it holds a slot, failures and costs included",
        "expected_seconds": "how long it takes to answer, by its times so far",
        "need": "its losses and update norms over the typical ones at the time, smoothed",
        "age": "answers since its last job ended, over the number of clients",
        "chance": "the chance that it answers",
        "price": "value per slot-second of the last jobs that were answered",
    }

    close_early: bool = True
    quota_share: float = 0.4
    coverage: float = 0.25
    privacy: float = 0.0
    cost: float = 0.0
    min_share: float = 0.0

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("coverage", "min_share"):
            require(0 <= getattr(self, name) <= 1, self, name, "a number from 0 to 1")
        require(0 < self.quota_share <= 1, self, "quota_share", "a number in (0, 1]")
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
            answering=answering.init(clients),
            need=needs.init(clients),
            price=price.init(),
            costs=costs.init(clients),
            last_end=np.zeros(clients),
            num_answers=np.array(0.0),
            works_in_slots=np.array(False),
            shortlist=shortlist.init(clients),
            samples=np.array(1.0) if weights is None else _relative_data(weights),
        )

    def select(self, state: TempoState, view: RoundView, rng: Generator) -> Selection:
        """Some places by coverage, the others by value per slot-second."""
        count = view.num_to_choose
        if count == 0:
            return nobody(view)
        rows = self._candidates(state, view, count)
        terms = self._terms(state, rows, view)
        first = self._covered(state, rows, terms, count, rng)
        if self.close_early or state.works_in_slots:
            score = terms.value / terms.slot_seconds
            score[first] = -np.inf
            best = top_k(score, count - len(first), rng)
        else:
            best = self._best_cohort(state, terms, first, count, rng)
        chosen = Selection.of(view, rows, np.concatenate([first, best]))
        if not self.close_early or state.works_in_slots:
            return chosen
        return replace(chosen, quota=self.quota(count))

    def quota(self, count: int) -> int:
        """How many of ``count`` clients must answer before a round closes early."""
        return max(min(count, _FEWEST_ANSWERS), round(self.quota_share * count))

    def _candidates(self, state: TempoState, view: RoundView, count: int) -> IntArray | slice:
        """The available clients; of very many, those of the shortlist."""
        listed = None
        if self.privacy == 0 and self.min_share == 0:  # which the shortlist knows nothing of
            listed = shortlist.candidates(state.shortlist, view.available, count)
        return view.candidates() if listed is None else listed

    def _covered(
        self, state: TempoState, rows: IntArray | slice, terms: _Terms, count: int, rng: Generator
    ) -> IntArray:
        """Positions of clients that are owed their share, or else of some by coverage."""
        if self.min_share > 0:
            asked = state.answering.asked
            owed = self.min_share * asked.sum() / len(asked) - asked[rows]
            creditors = np.flatnonzero(owed >= 1.0)
            if len(creditors) > 0:
                return creditors[top_k(owed[creditors], min(count, len(creditors)), rng)]
        places = int(rng.binomial(count, self.coverage))
        return top_k(terms.unvisited, places, rng)

    def _best_cohort(
        self, state: TempoState, terms: _Terms, first: IntArray, size: int, rng: Generator
    ) -> IntArray:
        """Positions of the clients that make the best cohort with those at ``first``.

        It has the largest ``sum value - price · size · max seconds``. Failures and costs lower a
        client's value by the price of the seconds that they take beside.
        """
        rest = size - len(first)
        if rest == 0:
            return np.empty(0, dtype=np.int64)
        worth, longest = price.current(state.price), terms.seconds[first].max(initial=0.0)
        bottleneck = np.maximum(terms.seconds, longest)
        bottleneck *= -worth * (size / rest)
        weight = terms.slot_seconds - terms.seconds
        weight *= -worth
        weight += terms.value
        if len(first) > 0:  # lower than any cohort of others: nobody is taken twice
            bottleneck[first] = bottleneck.min() - 2.0 * (np.ptp(weight) + 1.0)
        return Exact().solve(
            BottleneckProblem(bottleneck=bottleneck, weight=weight, size=rest), rng
        )

    def observe(self, state: TempoState, selection: Selection, feedback: Feedback) -> None:
        """Learn times, needs, and which clients do not answer."""
        rows = np.argsort(feedback.clients)
        clients, answered = feedback.clients[rows], feedback.answered[rows]
        late, lasted = feedback.late, feedback.lasted_seconds
        state.works_in_slots[...] = selection.tickets is not None
        if late is not None and len(late.clients) > 0:
            answering.learn_late(state.answering, late.clients, late.answered)
            self._learn_answers(state, late, held_seconds=None)
        if len(clients) == 0:
            return
        answering.learn(state.answering, clients, answered, may_be_late=late is not None)
        if self.close_early and not state.works_in_slots:
            latencies.learn_at_least(state.latency, clients[~answered], lasted)
        waits_for_all = not (self.close_early or state.works_in_slots)
        held = lasted * len(clients) if waits_for_all else None
        self._learn_answers(state, feedback, held_seconds=held)
        state.last_end[clients] = state.num_answers
        if state.works_in_slots and shortlist.outdated(state.shortlist, int(state.num_answers)):
            self._make_shortlist(state)

    def _learn_answers(
        self, state: TempoState, feedback: Feedback, *, held_seconds: float | None
    ) -> None:
        """Learn from the rows that are answers; ``held_seconds`` is None for their own times."""
        rows = np.argsort(feedback.clients)
        rows = rows[feedback.answered[rows]]
        clients, seconds = feedback.clients[rows], feedback.latency_seconds[rows]
        loss, norm, cost = (
            column[rows]
            for column in (
                signal(feedback, "loss_before", reported_loss(feedback)),
                signal(feedback, "update_norm"),
                signal(feedback, "cost"),
            )
        )
        value = np.sort(self._terms(state, clients).value).sum()
        held = np.sort(seconds).sum() if held_seconds is None else held_seconds
        price.learn(state.price, float(value), float(held))
        answering.learn_seconds(state.answering, seconds)
        latencies.learn(state.latency, clients, seconds)
        needs.learn(state.need, clients, loss, norm)
        costs.learn(state.costs, clients, cost)
        state.num_answers += len(clients)
        state.last_end[clients] = state.num_answers

    def _make_shortlist(self, state: TempoState) -> None:
        terms = self._terms(state, slice(None))
        shortlist.make(
            state.shortlist,
            score=terms.value / terms.slot_seconds,
            coverage=terms.unvisited,
            answers=int(state.num_answers),
        )

    def _age(self, state: TempoState, rows: IntArray | slice) -> FloatArray:
        answers = np.maximum(state.num_answers - state.last_end[rows], _YOUNGEST)
        return np.asarray(answers / len(state.last_end))

    def _terms(
        self, state: TempoState, rows: IntArray | slice, view: RoundView | None = None
    ) -> _Terms:
        chance = answering.chance(state.answering, rows)
        seconds = expected_seconds(state.latency, rows)
        unvisited = self._age(state, rows) * chance
        value = np.exp(state.need.log[rows])
        value *= of_rows(state.samples, rows)
        value *= unvisited
        np.sqrt(value, out=value)
        if view is not None and self.privacy > 0 and view.privacy_left is not None:
            value *= np.maximum(view.privacy_left[rows], 0.0) ** self.privacy
        held = answering.slot_seconds(state.answering, chance, seconds)
        if self.cost > 0:
            held += costs.in_seconds(state.costs, rows, self.cost)
        return _Terms(value, unvisited, seconds, held)

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return ByTempo(coverage=self.coverage, waits_for_all=not self.close_early)

    def scores(self, state: TempoState, view: RoundView) -> Mapping[str, FloatArray]:
        """Value per slot-second of each client, with its terms."""
        everybody = slice(None)
        terms = self._terms(state, everybody, view)
        return {
            "score": terms.value / terms.slot_seconds,
            "value": terms.value,
            "slot_seconds": terms.slot_seconds,
            "expected_seconds": terms.seconds,
            "need": np.where(state.need.reports > 0, np.exp(state.need.log), np.nan),
            "age": self._age(state, everybody),
            "chance": answering.chance(state.answering, everybody),
            "price": np.full(len(terms.value), price.current(state.price)),
            "times_asked": state.answering.asked.astype(np.float64),
        }


def _relative_data(weights: FloatArray) -> FloatArray:
    """[K], over the median of those that have data: a few false numbers do not move it."""
    typical = np.median(weights[weights > 0])
    return np.asarray(np.minimum(weights / typical, _MOST_DATA))
