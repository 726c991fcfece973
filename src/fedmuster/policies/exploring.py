"""Any flat policy, mixed with a stated share of exploration."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.errors import ConfigError, PolicyError
from fedmuster.core.explaining import Moment, Rule
from fedmuster.core.policy import POLICIES, InnerTraits, Policy
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.words import percent, several
from fedmuster.policies.bsfl import BSFL
from fedmuster.policies.explaining.simple_rules import rule_of

_WANTED = "1 if the policy wanted it, before places were drawn for exploration"


@POLICIES.wrapper("explore")
@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Exploring(InnerTraits):
    """Lets another policy choose, and draws a stated share of the places uniformly.

    The policy wants the clients S, s of the n that are available. ``E ~ Binomial(s, explore)``
    places are drawn anew: ``s - E`` clients of S keep their place, a uniform subset of S, and the E
    places go to a uniform subset of the ``n - s + E`` available clients that did not keep one. So
    every available client may be chosen, and ``Selection.inclusion`` is known exactly, whatever the
    policy: given S,

    1. a client of S keeps its place, or else is as likely as others to be drawn:
       ``pi_k(S) = mean over E of (s - E)/s + E/s · E/(n - s + E)``;
    2. any other is chosen if it is drawn: ``pi_k(S) = mean over E of E/(n - s + E)``.

    These probabilities are conditional on S, also if the policy is random or states probabilities
    of its own. The weights ``1/pi_k(S)`` are still unbiased. Proof: for any numbers x, the mean
    given S of ``sum of x_k / pi_k(S)`` over the cohort is ``sum of pi_k(S) x_k / pi_k(S)`` over all
    available clients, which is the sum of their x_k, whatever S is; so it is the mean over S, too.
    The probabilities without S, ``P(k in S) pi_in + (1 - P(k in S)) pi_out`` with those of 1 and 2,
    would make smaller variances, but need P(k in S) of every drawn client, and a policy states it
    for clients of S alone.

    Any policy is written with this setting of its own: ``bsfl:explore=0.05`` on the command line,
    ``explore = 0.05`` beside its ``name`` in TOML. A share of 0 is the policy itself, bit for bit.

    Args:
        policy: which clients are wanted. One that asks every available client is refused: there is
            nobody else to explore.
        explore: the expected share of places that are drawn anew, from 0 to 1.

    State:
        That of the policy. It learns from the cohort that was asked, drawn clients included, also
        where it judges a cohort as a whole (TiFL's tiers, CUCB's arms).

    Deviations:
        1. Uploads in a given order (MAB-CS): the clients that kept their place come first, in the
           order of the policy, and drawn clients after them, in random order.
        2. A cohort with a quota of answers of certain clients (SAFA) is refused: drawn clients have
           no part in it. A quota of any answers (Tempo) stays.
        3. At edge servers the policy is lifted, ``lifted:policy={name="bsfl", explore=0.05}``:
           places of each turn are drawn, and nobody knows the inclusion probabilities.

    References:
        D. G. Horvitz, D. J. Thompson, A Generalization of Sampling Without Replacement From a
        Finite Universe, Journal of the American Statistical Association 47(260), 1952: weights
        1/pi.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> problem = Problem(num_clients=20, cohort_size=4)
        >>> cohort = Selector("bsfl:explore=0.5", problem, seed=2).select()
        >>> cohort.wanted, cohort.clients
        (array([ 4,  7, 14, 15]), array([ 2, 10, 14, 15]))
        >>> cohort.inclusion.round(3)
        array([0.108, 0.108, 0.567, 0.567])
    """

    name: ClassVar[str] = "exploring"
    assigns_edges: ClassVar[bool] = False
    terms: ClassVar[Any] = property(lambda self: {**self.policy.terms, "wanted": _WANTED})

    policy: Policy[Any] = field(default_factory=BSFL)
    explore: float = 0.05

    def __post_init__(self) -> None:
        check_types(self)
        require(0 <= self.explore <= 1, self, "explore", "a number from 0 to 1")
        if self.policy.cohort_rule == "everyone":
            raise ConfigError(
                f"Exploring: {self.policy.name} asks every available client, so nobody is left to "
                "explore: leave explore out, or choose another policy",
                key=("explore",),
            )

    def init(self, problem: Problem) -> Any:
        """The state of the policy."""
        return self.policy.init(problem)

    def select(self, state: Any, view: RoundView, rng: Generator) -> Selection:
        """Let the policy choose, and draw some of the places anew."""
        wanted = self.policy.select(state, view, rng)
        size = len(wanted.clients)
        if self.explore == 0 or size == 0:
            return wanted
        if wanted.preferred is not None:
            raise PolicyError(
                f"policy {self.policy.name} closes its rounds by a quota of answers of certain "
                "clients, which drawn clients have no part in: write explore = 0, or leave it out"
            )
        drawn = int(rng.binomial(size, self.explore))
        kept = np.sort(rng.choice(size, size - drawn, replace=False, shuffle=False))
        new = _others(view, wanted.clients[kept], drawn, rng)
        cohort = Selection.of(view, slice(None), np.concatenate([wanted.clients[kept], new]))
        chance = inclusion(size, view.num_available, self.explore)
        of_wanted = np.isin(cohort.clients, wanted.clients, assume_unique=True)
        return replace(
            wanted,
            clients=cohort.clients,
            features=cohort.features,
            inclusion=np.where(of_wanted, chance.wanted, chance.other),
            order=upload_order(wanted, kept, new, rng),
            wanted=wanted.clients,
        )

    def observe(self, state: Any, selection: Selection, feedback: Feedback) -> None:
        """Let the policy learn."""
        self.policy.observe(state, selection, feedback)

    def rule(self) -> Rule | None:
        """The policy's rule, for explanations."""
        if self.explore == 0:
            return self.policy.rule()
        return Explored(rule=rule_of(self.policy), explore=self.explore)

    def scores(self, state: Any, view: RoundView) -> Mapping[str, FloatArray]:
        """What the policy thinks of each client."""
        return self.policy.scores(state, view)


class Inclusion(NamedTuple):
    """P(chosen) of a client that the policy wanted, and of any other that is available."""

    wanted: float
    other: float


def inclusion(size: int, available: int, explore: float) -> Inclusion:
    """P(chosen) given the ``size`` >= 1 clients that a policy wants, see :class:`Exploring`.

    Example:
        >>> inclusion(1, 5, 0.5)  # stays with 1/2, and is drawn with 1/2 · 1/5
        Inclusion(wanted=0.6, other=0.1)
    """
    chance, drawn = _binomial(size, explore), np.arange(size + 1)
    pool = available - size + drawn  # of which the places are drawn
    share = np.divide(drawn, pool, out=np.zeros(size + 1), where=drawn > 0)
    stays = (size - drawn + drawn * share) / size
    return Inclusion(min(float(chance @ stays), 1.0), float(chance @ share))


def _binomial(trials: int, share: float) -> FloatArray:
    """[trials + 1], the probabilities of Binomial(trials, share)."""
    if share == 1.0:
        return np.append(np.zeros(trials), 1.0)
    hits = np.arange(1, trials + 1)
    # P(e) / P(e - 1) = (trials - e + 1) / e · share / (1 - share); by logarithms, for large trials.
    ratios = np.log((trials - hits + 1) / hits) + np.log(share) - np.log1p(-share)
    logs = np.append(0.0, np.cumsum(ratios))
    chances = np.exp(logs - logs.max())
    return np.asarray(chances / chances.sum())


def _others(view: RoundView, kept: IntArray, count: int, rng: Generator) -> IntArray:
    """``count`` of the available clients without ``kept`` (increasing), uniformly."""
    candidates = view.candidates()
    places = kept if isinstance(candidates, slice) else np.searchsorted(candidates, kept)
    free = view.num_available - len(kept)
    drawn = rng.choice(free, count, replace=False, shuffle=False)
    # The i-th free place comes after as many kept ones as have at most i free places before them.
    drawn = drawn + np.searchsorted(places - np.arange(len(places)), drawn, side="right")
    return drawn if isinstance(candidates, slice) else candidates[drawn]


def upload_order(
    wanted: Selection, kept: IntArray, new: IntArray, rng: Generator
) -> IntArray | None:
    """Of the clients at positions ``kept`` of ``wanted``, in its order, then of ``new``, at random.

    As positions in the cohort of both; None where the policy has no order.
    """
    if wanted.order is None:
        return None
    first = wanted.clients[wanted.order[np.isin(wanted.order, kept)]]
    uploads = np.concatenate([first, rng.permutation(new)])
    return np.searchsorted(np.sort(uploads), uploads)


@dataclass(frozen=True, kw_only=True, slots=True)
class Explored(Rule):
    """The ``rule`` of a policy; then the share ``explore`` of its places is drawn anew."""

    rule: Rule
    explore: float

    @property
    def needs(self) -> tuple[str, ...]:
        """The terms of the policy's own rule, and which clients the policy wanted."""
        return (*self.rule.needs, "wanted")

    @property
    def unlimited(self) -> tuple[str, ...]:
        """The unlimited terms of the policy."""
        return self.rule.unlimited

    def about(self, moment: Moment) -> str:
        """The policy's rule, and how many clients were drawn in this round."""
        drawn = int(np.count_nonzero(moment.column("wanted")[moment.cohort] == 0))
        return (
            f"{self.rule.about(self._wanted(moment))}; {percent(self.explore)} of the places are "
            f"drawn from all that are available, which brought {several(drawn, 'client')} here "
            "that the policy did not want"
        )

    def merit(self, moment: Moment) -> FloatArray:
        """The policy's."""
        return self.rule.merit(moment)

    def worth(self, moment: Moment) -> str | None:
        """What the clients that the policy wanted are worth, where the policy says it."""
        told = self.rule.worth(self._wanted(moment))
        return None if told is None else f"{told}, for the clients that were wanted"

    def chosen(self, moment: Moment, client: int) -> str:
        """It was wanted, or it was explored."""
        if moment.column("wanted")[client] == 1:
            return self.rule.chosen(self._wanted(moment), client)
        return "it was explored: the policy did not want it, and it was drawn for a free place"

    def passed_over(self, moment: Moment, client: int) -> str:
        """It was not wanted, or it lost its place."""
        if moment.column("wanted")[client] == 1:
            told = self.rule.chosen(self._wanted(moment), client)
            return f"the policy wanted it, but its place went to exploration ({told})"
        return self.rule.passed_over(self._wanted(moment), client)

    def _wanted(self, moment: Moment) -> Moment:
        """The moment with the cohort that the policy wanted; at edge servers as it is."""
        if moment.edges is not None:
            return moment
        return replace(moment, cohort=np.flatnonzero(moment.column("wanted") == 1))
