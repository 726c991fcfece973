"""FedCS and its extension by means: short upload schedules from the times that clients took."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.means import MeanEstimator, WindowedMean
from fedmuster.core.arrays import FloatArray
from fedmuster.core.config import require
from fedmuster.core.explaining import Rule
from fedmuster.core.policy import POLICIES, PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.policies.mab_cs.explain import ShortSchedule
from fedmuster.policies.mab_cs.resources import (
    PLANS_UPLOADS,
    ResourceState,
    blank_seconds,
    check_request,
    in_order,
    learn_seconds,
    reported_seconds,
    requested,
)
from fedmuster.policies.score_columns import EVERYBODY
from fedmuster.solvers.schedule import added_seconds, greedy_schedule


class ScheduledByTimes(PolicyTraits, ABC):
    """A policy that runs Algorithm 1 with ``f = -T_inc`` on mean times; the unseen count as 0 s."""

    __slots__ = ()
    terms: ClassVar[Mapping[str, str]] = {
        "mean_update_seconds": "how long it takes to train",
        "mean_upload_seconds": "how long it takes to upload",
    }
    rounds_only: ClassVar[str | None] = PLANS_UPLOADS
    request_fraction: float

    @property
    @abstractmethod
    def mean(self) -> MeanEstimator:
        """The estimator of both times."""

    def __post_init__(self) -> None:
        check_request(self)

    def init(self, problem: Problem) -> ResourceState:
        """No client observed yet."""
        update, upload = (blank_seconds(self.mean, problem.num_clients) for _ in range(2))
        return ResourceState(update=update, upload=upload)

    def select(self, state: ResourceState, view: RoundView, rng: Generator) -> Selection:
        """Algorithm 1."""
        rows = requested(view, self.request_fraction, rng)
        return in_order(view, rows, greedy_schedule(*state.of(rows), view.num_to_choose, rng))

    def observe(self, state: ResourceState, selection: Selection, feedback: Feedback) -> None:
        """Learn the times of the cohort."""
        update, upload = reported_seconds(feedback)
        learn_seconds(self.mean, state.update, feedback, update)
        learn_seconds(self.mean, state.upload, feedback, upload)

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return ShortSchedule(
            formula="one after the other the client that prolongs the round least, by "
            "mean_update_seconds and mean_upload_seconds",
            update="mean_update_seconds",
            upload="mean_upload_seconds",
            unseen_first=False,
            unit="s",
            request_fraction=self.request_fraction,
        )

    def scores(self, state: ResourceState, view: RoundView) -> Mapping[str, FloatArray]:
        """``f({}, k) = -T_inc`` of each client that was seen, and both times it is made of."""
        update, upload = state.of(EVERYBODY)
        columns = {
            "score": -added_seconds(update, upload),
            "mean_update_seconds": update,
            "mean_upload_seconds": upload,
        }
        seen = {name: np.where(state.count > 0, of, np.nan) for name, of in columns.items()}
        return {**seen, "times_asked": state.count.astype(np.float64)}


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class FedCS(ScheduledByTimes):
    """Adds the client that prolongs the round least, by the times that each took last.

    Each round a random ``ceil(K C)`` clients say how long they took last for the update
    (``t_UD``) and the upload (``t_UL``), and 0 s before their first time. Of these Algorithm 1
    adds the one with the largest ``f(S, k) = -T_inc(S, k)`` until m are chosen, where

        T_inc(S, k) = (Td(S + k) - Td(S)) + max(t_UD - (t - Td(S)), 0) + t_UL    (1)

    is by how much k prolongs the round, t its length so far and ``Td(S) = max t_UL`` (2). They
    upload one after the other, in this order, which is one of a whole cohort: it needs rounds.

    Args:
        request_fraction: C, which share of the clients is asked for its times. Paper: 0.1.

    State:
        Of each client the last times, and whether it was seen; the longest times of all.

    Deviations:
        1. As first published FedCS adds clients until a deadline is used up; this adds m, as in
           the comparison with MAB-CS.
        2. A client that was asked and did not complete counts as having taken the longest times
           seen so far, or else it would be chosen for ever.
        3. Where answers say nothing of update and upload, their latency counts as update, with an
           upload of 0 s.
        4. Candidates that prolong the round alike: the shorter upload goes first, then the shorter
           update, then chance decides.
        5. C is 1 by default, where the paper has 0.1; never fewer than m clients are asked for
           their times.

    References:
        T. Nishio, R. Yonetani, Client Selection for Federated Learning with Heterogeneous
        Resources in Mobile Edge, IEEE ICC 2019. As described in N. Yoshida et al., MAB-based
        Client Selection for Federated Learning with Uncertain Resources in Mobile Networks, 2020.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> cohort = Selector(FedCS(), Problem(num_clients=20, cohort_size=5)).select()
        >>> cohort.clients.shape, cohort.order.shape
        ((5,), (5,))
    """

    name: ClassVar[str] = "fedcs"

    mean: ClassVar[MeanEstimator] = WindowedMean(window=1)

    request_fraction: float = 1.0


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class ExtendedFedCS(ScheduledByTimes):
    """FedCS by the means of the last few times, with which MAB-CS compares.

    As :class:`FedCS`: Algorithm 1 with ``f = -T_inc`` (1), (2), but
    ``t_UD`` and ``t_UL`` are the moving averages of what each client took, still without any
    exploration but for the unseen. It needs rounds.

    Args:
        request_fraction: C, which share of the clients is asked for its times. Paper: 0.1.
        window: how many of a client's own times are averaged. Paper: 5.

    State:
        Of each client its last times and their means; the longest times of all.

    Deviations:
        1. Deviations 2 to 5 of FedCS.

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
        ScheduledByTimes.__post_init__(self)
        require(self.window >= 1, self, "window", "an integer >= 1")

    @property
    def mean(self) -> MeanEstimator:
        """The mean over the window."""
        return WindowedMean(window=self.window)
