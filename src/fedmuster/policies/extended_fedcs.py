"""Extended FedCS: a short schedule, by what clients took the last few times."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from numpy.random import Generator

from fedmuster.core.config import check_types, require
from fedmuster.core.policy import PolicyTraits
from fedmuster.core.records import Feedback, FloatArray, Problem, RoundView, Selection
from fedmuster.estimators.mean import WindowedMean
from fedmuster.estimators.resources import Resources, ResourceState
from fedmuster.policies.fedcs import first_scores, shortest_schedule


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtendedFedCS(PolicyTraits):
    """FedCS by the means of the last few times, with which MAB-CS compares.

    As :class:`~fedmuster.policies.fedcs.FedCS`: Algorithm 1 with ``f = -T_inc`` (1), (2), but
    ``t_UD`` and ``t_UL`` are the moving averages of what each client took, still without any
    exploration but for the unseen.

    Args:
        request_fraction: C, which share of the clients is asked for its times. Paper: 0.1.
        window: how many of a client's own times are averaged. Paper: 5.

    State:
        Of each client its last times and their means; the longest times of all.

    Deviations:
        1. A client that was asked and did not complete counts as having taken the longest times
           seen so far.
        2. Where answers say nothing of update and upload, their latency counts as update, with an
           upload of 0 s.
        3. Candidates that prolong the round alike: the shorter upload goes first, then the shorter
           update, then chance decides.
        4. C is 1 by default, where the paper has 0.1; never fewer than m clients are asked for
           their times.

    References:
        N. Yoshida, T. Nishio, M. Morikura, K. Yamamoto, MAB-based Client Selection for Federated
        Learning with Uncertain Resources in Mobile Networks, IEEE Globecom Workshops 2020.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> problem = Problem(num_clients=100, cohort_size=5)
        >>> Selector(ExtendedFedCS(request_fraction=0.1), problem).select().clients.shape
        (5,)
    """

    name: ClassVar[str] = "extended-fedcs"

    request_fraction: float = 1.0
    window: int = 5

    def __post_init__(self) -> None:
        check_types(self)
        require(0 < self.request_fraction <= 1, self, "request_fraction", "a number in (0, 1]")
        require(self.window >= 1, self, "window", "an integer >= 1")

    @property
    def _resources(self) -> Resources:
        return Resources(mean=WindowedMean(window=self.window))

    def init(self, problem: Problem) -> ResourceState:
        """Nobody observed yet."""
        return self._resources.init(problem.num_clients)

    def select(self, state: ResourceState, view: RoundView, rng: Generator) -> Selection:
        """Algorithm 1 on the moving averages."""
        return shortest_schedule(state, view, self.request_fraction, rng)

    def observe(self, state: ResourceState, selection: Selection, feedback: Feedback) -> None:
        """Average the times of the cohort."""
        self._resources.observe(state, feedback)

    def scores(self, state: ResourceState, view: RoundView) -> Mapping[str, FloatArray]:
        """``f(S, k)`` of the first choice, and the times."""
        return first_scores(state)
