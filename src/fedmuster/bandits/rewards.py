"""Rewards beyond speed: generalisation, privacy, diversity of clusters, and fairness queues."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedmuster.core.arrays import FloatArray, IntArray, tabulate
from fedmuster.core.config import require, shared_settings
from fedmuster.privacy.schedules import Geometric, Schedule


def repeats(labels: IntArray) -> int:
    """``sum_r max(0, |S ∩ C_r| - 1)``: clients beyond the first of their cluster (PAUSE Eq. 22).

    Example:
        >>> repeats(np.array([4, 1, 4, 4, 2, 1]))
        3
    """
    return len(labels) - len(np.unique(labels))


def remaining_privacy(count: IntArray, rule: Schedule) -> FloatArray:
    """``p = 1 - spent / eps_bar`` after ``count`` participations (PAUSE Eq. 7).

    Under the geometric schedule (PAUSE Eq. 6) that is ``e^(-eta c)`` whatever the budget: 1
    before the first round (Algorithm 1's initial 0 contradicts Eq. 7).
    """
    return 1.0 - rule.spent_share(count)  # PAUSE Eq. 7


def generalisation(
    count: IntArray, round_: int, target_share: FloatArray, *, beta: float
) -> FloatArray:
    """``g = |x|^beta sgn(x)`` with ``x = target share - count / t`` (BSFL Eq. 3, 4).

    Positive for clients that took part less often than their share of the data deserves.

    Args:
        count: rounds each client took part in before this one, ``c_k``.
        round_: t, this round.
        target_share: ``m d_k / sum d``, 0-d where all clients count alike.
        beta: > 0; the larger, the less small differences matter.

    Example:
        >>> generalisation(np.array([0, 2, 4]), 8, np.array(0.25), beta=2.0)
        array([ 0.0625,  0.    , -0.0625])
    """
    x = target_share - count / round_
    if beta == 1.0:
        return x
    return np.copysign(np.abs(x) ** beta, x)  # BSFL Eq. 3, 4; PAUSE Eq. 8


@dataclass(slots=True)
class QueueState:
    """Length of each client's queue when it was last served, and that round."""

    length: FloatArray
    served: IntArray


def empty_queues(num_clients: int, first_round: int = 1) -> QueueState:
    """All queues empty before ``first_round``: nobody is owed for rounds before it joined."""
    return QueueState(
        length=np.zeros(num_clients), served=np.full(num_clients, first_round - 1, dtype=np.int64)
    )


def queue_length(state: QueueState, rows: IntArray | slice, round_: int, rate: float) -> FloatArray:
    """Queue lengths at the start of ``round_``, after ``round_ - 1`` arrivals of ``rate``.

    A queue that was served in ``round_``, as happens without rounds, has had its arrival.

    Example:
        >>> queues = empty_queues(2)
        >>> serve(queues, np.array([0]), round_=1, rate=0.25)
        >>> queue_length(queues, slice(None), 3, 0.25)
        array([0.25, 0.5 ])
    """
    return state.length[rows] + rate * np.maximum(round_ - 1 - state.served[rows], 0)


def serve(state: QueueState, clients: IntArray, *, round_: int, rate: float) -> None:
    """``clients`` were chosen in ``round_``: ``Z <- max(0, Z + rate - 1)``."""
    length = queue_length(state, clients, round_ + 1, rate) - 1.0
    state.length[clients] = np.maximum(length, 0.0)
    state.served[clients] = round_


def check_reward(config: object) -> None:
    """Check those hyper-parameters of a :class:`CohortReward` that ``config`` has."""
    for name in ("alpha", "gamma", "rho"):
        require(0 <= getattr(config, name, 0) < math.inf, config, name, "a number >= 0")
    require(0 < getattr(config, "beta", 1) < math.inf, config, "beta", "a number > 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class CohortReward:
    """``alpha Phi_g + gamma Phi_p`` (PAUSE Eq. 9, 18, 22); ``gamma = rho = 0`` is BSFL's Eq. 5.

    Args:
        alpha: weight of generalisation, >= 0.
        beta: exponent of the generalisation term, > 0.
        gamma: weight of the privacy that is left, >= 0.
        schedule: how participations spend privacy, where no ledger says what is left.
        rho: what each further client of a cluster costs in ``Phi_g``, >= 0.
    """

    alpha: float = 2.0
    beta: float = 1.0
    gamma: float = 0.0
    schedule: Schedule = Geometric()
    rho: float = 0.0

    def __post_init__(self) -> None:
        check_reward(self)

    @classmethod
    def of(cls, config: object) -> Self:
        """The reward with the hyper-parameters of a policy, where the policy has them."""
        return cls(**shared_settings(cls, config))

    def weights(
        self,
        count: IntArray,
        round_: int,
        target_share: FloatArray,
        privacy_left: FloatArray | None = None,
    ) -> FloatArray:
        """What each client adds, before the division by m (BSFL Eq. 5; PAUSE Eq. 9, 18).

        ``privacy_left`` is what a ledger says; without one it follows from counts and schedule.
        """
        scheduled = self.gamma > 0 and privacy_left is None

        def counted(count: IntArray) -> FloatArray:
            weights = self._generalises(count, round_, target_share)
            if scheduled:
                weights += self._spares(remaining_privacy(count, self.schedule))
            return weights

        # Where all clients count alike, the weight is a function of the count alone, and powers
        # and exponentials of a million numbers are spared.
        weights = tabulate(count, counted) if target_share.ndim == 0 else counted(count)
        if self.gamma > 0 and privacy_left is not None:
            weights += self._spares(privacy_left)
        return weights

    def counts_alone(self, target_share: FloatArray, privacy_left: FloatArray | None) -> bool:
        """Whether :meth:`weights` are a function of the count alone."""
        return target_share.ndim == 0 and (self.gamma == 0 or privacy_left is None)

    def terms(
        self,
        count: IntArray,
        round_: int,
        target_share: FloatArray,
        privacy_left: FloatArray | None = None,
    ) -> dict[str, FloatArray]:
        """What :meth:`weights` adds up, by name: "generalisation", and "privacy" if it counts."""
        terms = {"generalisation": self._generalises(count, round_, target_share)}
        if self.gamma > 0:
            if privacy_left is None:
                privacy_left = remaining_privacy(count, self.schedule)
            terms["privacy"] = self._spares(privacy_left)
        return terms

    def _generalises(self, count: IntArray, round_: int, target_share: FloatArray) -> FloatArray:
        return self.alpha * generalisation(count, round_, target_share, beta=self.beta)

    def _spares(self, privacy_left: FloatArray) -> FloatArray:
        return self.gamma * privacy_left  # PAUSE Eq. 9, 18

    @property
    def rounds_only(self) -> str | None:
        """Why a policy with this reward needs rounds; None where it does not."""
        if self.rho == 0:
            return None
        return (
            f"rho = {self.rho:g} charges for clients of one cluster in a cohort, and clients that "
            "are asked one by one are in no cohort together; rho = 0 works without rounds"
        )

    @property
    def penalty(self) -> float:
        """What each further client of a cluster costs in energy: ``alpha rho`` (PAUSE Eq. 22)."""
        return self.alpha * self.rho
