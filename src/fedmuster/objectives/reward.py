"""The reward of a cohort beyond its speed: generalisation, privacy and diversity."""

import math
from dataclasses import dataclass, fields
from typing import Self

from fedmuster.core.blocks import tabulate
from fedmuster.core.config import require
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.objectives.generalisation import generalisation
from fedmuster.objectives.privacy import remaining_privacy
from fedmuster.privacy.schedule import Geometric, Schedule


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
        """The reward of a policy that has the same hyper-parameters."""
        return cls(**{item.name: getattr(config, item.name) for item in fields(cls)})

    def weights(
        self,
        count: IntArray,
        round_: int,
        target_share: FloatArray,
        privacy_left: FloatArray | None = None,
        out: FloatArray | None = None,
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
        weights = tabulate(count, counted, out) if target_share.ndim == 0 else counted(count)
        if self.gamma > 0 and privacy_left is not None:
            weights += self._spares(privacy_left)
        return weights

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
    def penalty(self) -> float:
        """What each further client of a cluster costs in energy: ``alpha rho`` (PAUSE Eq. 22)."""
        return self.alpha * self.rho
