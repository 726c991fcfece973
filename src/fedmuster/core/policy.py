"""The protocol that every selection policy follows."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from numpy.random import Generator

from fedmuster.core.late_answers import Discard, LateAnswers
from fedmuster.core.records import Feedback, FloatArray, Problem, RoundView, Selection

S = TypeVar("S")

CohortRule = Literal["exact", "at most", "everyone"]
"""How many clients a policy chooses: ``min(m, available)``, at most that, or all available."""


class Policy(Protocol[S]):
    """A frozen, keyword-only dataclass of hyper-parameters with three methods.

    Its state ``S`` is a dataclass of numpy arrays, see :mod:`fedmuster.core.state`. A policy
    that wants nothing unusual subclasses :class:`PolicyTraits` for its traits.
    """

    name: ClassVar[str]
    assigns_edges: ClassVar[bool]

    @property
    def cohort_rule(self) -> CohortRule:
        """How many clients it chooses."""
        ...

    @property
    def oracle(self) -> bool:
        """Whether it must be told the true expectations."""
        ...

    @property
    def learns(self) -> bool:
        """Whether what it observes changes what it selects."""
        ...

    @property
    def wants_gain(self) -> bool:
        """Whether clients are to measure their accuracy before and after training."""
        ...

    @property
    def wanted_sketch_size(self) -> int:
        """How many numbers of each update's direction it wants to hear; 0 for none."""
        ...

    @property
    def late_answers(self) -> LateAnswers:
        """What is to become of answers that come when their round is over."""
        ...

    def init(self, problem: Problem) -> S:
        """The state before the first round."""
        ...

    def select(self, state: S, view: RoundView, rng: Generator) -> Selection:
        """Choose a cohort. Pure: changes nothing, repeats for the same arguments."""
        ...

    def observe(self, state: S, selection: Selection, feedback: Feedback) -> None:
        """Learn from a round. The only place that changes the state, in place."""
        ...

    def scores(self, state: S, view: RoundView) -> Mapping[str, FloatArray]:
        """What it thinks of each client now, for reports: [K] by name, NaN for no opinion. Pure."""
        ...


class PolicyTraits:
    """The usual traits; a policy overrides those in which it differs."""

    __slots__ = ()

    cohort_rule: ClassVar[CohortRule] = "exact"
    oracle: ClassVar[bool] = False
    """Whether it must be told the true expectations (``RoundView.truth``)."""
    learns: ClassVar[bool] = True
    """Whether what it observes changes what it selects."""
    wants_gain: ClassVar[bool] = False
    """Whether clients are to measure their accuracy before and after training, for the signals
    "accuracy_gain" and "accuracy_before", which costs them two more passes over their data."""
    assigns_edges: ClassVar[bool] = False
    """Whether it says at which edge server each client trains, where there are edge servers."""

    @property
    def wanted_sketch_size(self) -> int:
        """How many numbers of each update's direction it wants (``Feedback.sketches``)."""
        return 0

    @property
    def late_answers(self) -> LateAnswers:
        """What is to become of answers that come when their round is over."""
        return Discard()

    def scores(self, state: Any, view: RoundView) -> Mapping[str, FloatArray]:
        """What it thinks of each client now: nothing that could be told in numbers."""
        return {}
