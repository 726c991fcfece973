"""The protocol that every selection policy follows, and its registry."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, ClassVar, Final, Literal, Protocol, TypeVar

from numpy.random import Generator

from fedmuster.core.arrays import FloatArray
from fedmuster.core.config import configured
from fedmuster.core.explaining import Rule
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.registry import Registry
from fedmuster.core.staleness import Discard, Staleness
from fedmuster.core.state import NoState

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
    def wants_output_bias(self) -> bool:
        """Whether it wants each update's change of the output layer's biases
        (``Feedback.output_bias``), and so to know ``Problem.num_classes``."""

    @property
    def stale_answers(self) -> Staleness:
        """In rounds, what happens to answers after the end of their round.

        Without rounds ``[federation]`` decides.
        """

    @property
    def hears_late(self) -> bool:
        """Whether it is told what became of clients that missed the end of their round
        (``Feedback.late``)."""

    @property
    def late_hold_slots(self) -> bool:
        """Whether clients hold their slots in rounds until their late answers are there, or until
        the deadline if they never answer.

        ``[federation]`` can say otherwise.
        """

    @property
    def rounds_only(self) -> str | None:
        """Why it cannot choose while others are out; None where it can."""

    @property
    def published_federation(self) -> Mapping[str, Any]:
        """The ``[federation]`` that it was published with, as a table; empty for rounds."""

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
    methods=("init", "select", "observe", "scores", "rule"),
    advice="; subclass fedmuster.core.policy.PolicyTraits, which has the usual traits",
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
    wants_output_bias: ClassVar[bool] = False
    assigns_edges: ClassVar[bool] = False
    hears_late: ClassVar[bool] = False
    late_hold_slots: ClassVar[bool] = False
    rounds_only: ClassVar[str | None] = None
    published_federation: ClassVar[Mapping[str, Any]] = {}
    terms: ClassVar[Mapping[str, str]] = {}

    @property
    def wanted_sketch_size(self) -> int:
        """No numbers of each update's direction."""
        return 0

    @property
    def stale_answers(self) -> Staleness:
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


class InnerTraits:
    """The traits of a policy around another one, its field ``policy``: those of that one."""

    __slots__ = ()

    cohort_rule: ClassVar[Any] = property(attrgetter("policy.cohort_rule"))
    oracle: ClassVar[Any] = property(attrgetter("policy.oracle"))
    learns: ClassVar[Any] = property(attrgetter("policy.learns"))
    wants_gain: ClassVar[Any] = property(attrgetter("policy.wants_gain"))
    wanted_sketch_size: ClassVar[Any] = property(attrgetter("policy.wanted_sketch_size"))
    wants_output_bias: ClassVar[Any] = property(attrgetter("policy.wants_output_bias"))
    stale_answers: ClassVar[Any] = property(attrgetter("policy.stale_answers"))
    hears_late: ClassVar[Any] = property(attrgetter("policy.hears_late"))
    late_hold_slots: ClassVar[Any] = property(attrgetter("policy.late_hold_slots"))
    rounds_only: ClassVar[Any] = property(attrgetter("policy.rounds_only"))
    published_federation: ClassVar[Any] = property(attrgetter("policy.published_federation"))
    terms: ClassVar[Any] = property(attrgetter("policy.terms"))
