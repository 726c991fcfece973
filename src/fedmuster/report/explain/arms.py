"""CUCB: which of its fixed decisions was played."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.records import FloatArray
from fedmuster.report.explain.moment import Moment
from fedmuster.report.explain.words import number, ordinal


@dataclass(frozen=True, kw_only=True, slots=True)
class PlayedArm:
    """CUCB: one of a few fixed orders of pairs, as far as budgets go."""

    needs = ("turn",)

    def about(self, moment: Moment) -> str:
        """The rule, and which order is played."""
        told = (
            "one of a few fixed orders of all pairs of client and edge is played, by UCB1: who "
            "comes first and fits is placed"
        )
        arm = moment.column("arm")
        if np.isnan(arm).all():
            return f"{told}; in the first round the order is drawn"
        played, mean, bonus = (
            number(float(moment.column(name)[0]))
            for name in ("arm_played", "arm_mean", "arm_bonus")
        )
        return (
            f"{told}. Order {arm[0]:.0f} was played {played} times before, with arm_mean {mean} + "
            f"arm_bonus {bonus.replace('–', '∞')}, the highest of all"
        )

    def merit(self, moment: Moment) -> FloatArray:
        """Whose turn comes first."""
        return -np.nan_to_num(moment.column("turn"), nan=np.inf)

    def worth(self, moment: Moment) -> str | None:
        """What the edges have left."""
        if moment.budget is None:
            return None
        return f"The edges have {', '.join(map(number, moment.left().tolist()))} left"

    def chosen(self, moment: Moment, client: int) -> str:
        """Its turn came."""
        return f"{self._turn(moment, client)}, and there was room for it"

    def passed_over(self, moment: Moment, client: int) -> str:
        """Its turn came too late."""
        return f"{self._turn(moment, client)}, and by then nothing was left that it fits into"

    def _turn(self, moment: Moment, client: int) -> str:
        turn = float(moment.column("turn")[client])
        if np.isnan(turn):
            return "its turn came in the order that was drawn"
        return f"the first turn of a pair of it is the {ordinal(int(turn))} in that order"
