"""The protocol that every selection policy follows, its registry, and what late answers do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Protocol, TypeVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.config import check_types, configured, require
from fedmuster.core.explaining import Rule
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.registry import Registry
from fedmuster.core.state import NoState


@dataclass(frozen=True, kw_only=True, slots=True)
class Discard:
    """Late answers are lost."""

    name: ClassVar[str] = "discard"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stale:
    """Late answers enter the model of the round in which they arrive, weighted by age (REFL).

    Args:
        beta: how much the novelty of a late update weighs against its age. REFL: 0.35.
        max_rounds: older answers are lost; None for any age.
    """

    name: ClassVar[str] = "stale"

    beta: float = 0.35
    max_rounds: int | None = None

    def __post_init__(self) -> None:
        check_types(self)
        require(0 <= self.beta <= 1, self, "beta", "a number in [0, 1]")
        oldest = self.max_rounds
        require(oldest is None or oldest >= 1, self, "max_rounds", "an integer >= 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cached:
    """The server keeps the last model of every client and averages them all (SAFA).

    Args:
        lag_tolerance: a client that is more rounds behind starts anew from the global model.
            SAFA: 5.
    """

    name: ClassVar[str] = "cached"

    lag_tolerance: int = 5

    def __post_init__(self) -> None:
        check_types(self)
        require(self.lag_tolerance >= 1, self, "lag_tolerance", "an integer >= 1")


LateAnswers = Discard | Stale | Cached


def fill_quota(arrivals: IntArray, preferred: BoolArray, quota: int) -> BoolArray:
    """bool[m]: the first ``quota`` preferred answers; if they are fewer, then others by arrival.

    Args:
        arrivals: positions in the cohort of the clients that answered, in order of arrival.
        preferred: bool[m], the clients whose answers count first (SAFA).
        quota: how many answers enter the round's model.

    Example:
        >>> arrivals = np.array([3, 0, 2, 1])
        >>> fill_quota(arrivals, np.array([True, False, True, False]), 3)
        array([ True, False,  True,  True])
    """
    used = np.zeros(len(preferred), dtype=np.bool_)
    first = arrivals[preferred[arrivals]][:quota]
    used[first] = True
    others = arrivals[~preferred[arrivals]]
    used[others[: quota - len(first)]] = True
    return used


S = TypeVar("S")

CohortRule = Literal["exact", "at most", "everyone"]
"""How many clients a policy chooses: ``min(m, available)``, at most that, or all available."""


class Policy(Protocol[S]):
    """A frozen, keyword-only dataclass of hyper-parameters that chooses cohorts and learns.

    Its state ``S`` is a dataclass of numpy arrays, see :mod:`fedmuster.core.state`. A policy
    that wants nothing unusual subclasses :class:`PolicyTraits` for its traits.
    """

    name: ClassVar[str]
    assigns_edges: ClassVar[bool]
    """Whether it says at which edge server each client trains, where there are edge servers."""

    @property
    def cohort_rule(self) -> CohortRule:
        """How many clients it chooses."""

    @property
    def oracle(self) -> bool:
        """Whether it must be told the true expectations (``RoundView.truth``)."""

    @property
    def learns(self) -> bool:
        """Whether what it observes changes what it selects."""

    @property
    def wants_gain(self) -> bool:
        """Whether clients measure their accuracy before and after training.

        That is for the signals "accuracy_gain" and "accuracy_before". It costs each client two more
        passes over its data.
        """

    @property
    def wanted_sketch_size(self) -> int:
        """How many numbers of each update's direction it wants (``Feedback.sketches``); 0: none."""

    @property
    def late_answers(self) -> LateAnswers:
        """What happens to answers that arrive after the end of their round."""

    def init(self, problem: Problem) -> S:
        """The state before the first round."""

    def select(self, state: S, view: RoundView, rng: Generator) -> Selection:
        """Choose a cohort. Pure: changes nothing, repeats for the same arguments."""

    def observe(self, state: S, selection: Selection, feedback: Feedback) -> None:
        """Learn from a round. The only place that changes the state, in place."""

    def scores(self, state: S, view: RoundView) -> Mapping[str, FloatArray]:
        """What it thinks of each client now, for reports: [K] by name, NaN for no opinion. Pure."""

    @property
    def terms(self) -> Mapping[str, str]:
        """What the columns of ``scores`` mean, in words."""

    def rule(self) -> Rule | None:
        """How it chooses, for explanations; None for "the highest score"."""


POLICIES: Final[Registry[Policy[Any]]] = Registry(
    "policy",
    Policy,
    modules=("fedmuster.policies",),
    methods=("init", "select", "observe"),
    group="fedmuster.policies",
)


def as_policy(policy: Policy[S] | str, *, owner: str) -> Policy[S]:
    """A policy from an object or from text such as ``bsfl:alpha=3``; classes are refused."""
    return configured(POLICIES, policy, owner=owner)


class PolicyTraits:
    """The usual traits; a policy overrides those in which it differs."""

    __slots__ = ()

    cohort_rule: ClassVar[CohortRule] = "exact"
    oracle: ClassVar[bool] = False
    learns: ClassVar[bool] = True
    wants_gain: ClassVar[bool] = False
    assigns_edges: ClassVar[bool] = False
    terms: ClassVar[Mapping[str, str]] = {}

    @property
    def wanted_sketch_size(self) -> int:
        """No numbers of each update's direction."""
        return 0

    @property
    def late_answers(self) -> LateAnswers:
        """Late answers are lost."""
        return Discard()

    def scores(self, state: Any, view: RoundView) -> Mapping[str, FloatArray]:
        """No opinion about any client."""
        return {}

    def rule(self) -> Rule | None:
        """The highest ``score``."""
        return None


class Stateless(PolicyTraits):
    """The traits of a policy that learns nothing."""

    __slots__ = ()

    learns: ClassVar[bool] = False

    def init(self, problem: Problem) -> NoState:
        """No state."""
        return NoState()

    def observe(self, state: NoState, selection: Selection, feedback: Feedback) -> None:
        """Nothing is learned."""
