"""Policies that draw, with chances that nothing observed changes."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.records import FloatArray
from fedmuster.policies.random import Random
from fedmuster.report.explain.moment import Moment
from fedmuster.report.explain.words import percent


@dataclass(frozen=True, kw_only=True, slots=True)
class ByChance:
    """Drawn with chances that do not depend on what was observed.

    Args:
        formula: the rule in words.
        term: what the chances follow from; None if they are equal.
        exact: whether the term is the chance itself.
    """

    formula: str
    term: str | None = None
    exact: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        """What the chances follow from."""
        return () if self.term is None else (self.term,)

    def about(self, moment: Moment) -> str:
        """The rule."""
        return self.formula

    def merit(self, moment: Moment) -> FloatArray:
        """The chances, or nothing."""
        if self.term is None:
            return np.zeros(moment.num_clients)
        return np.nan_to_num(moment.column(self.term), nan=0.0)

    def worth(self, moment: Moment) -> str | None:
        """Luck is worth nothing."""
        return None

    def chosen(self, moment: Moment, client: int) -> str:
        """By luck."""
        return f"luck decided; {self._chance(moment, client)}"

    def passed_over(self, moment: Moment, client: int) -> str:
        """By bad luck."""
        return f"luck decided; {self._chance(moment, client)}"

    def _chance(self, moment: Moment, client: int) -> str:
        size, there = len(moment.cohort), moment.num_available
        if self.term is None:
            if moment.num_edges:
                return (
                    f"clients are drawn one after the other while budgets last, and "
                    f"{size:,} of the {there:,} available were placed"
                )
            return f"{size:,} of {there:,} are drawn, a chance of {percent(size / max(there, 1))}"
        value = float(moment.column(self.term)[client])
        if self.exact:
            return f"its chance was {percent(value)}"
        return (
            f"it has {percent(value)} of the data of the {there:,} available, of whom {size:,} are "
            "drawn in proportion to that"
        )


def random_rule(policy: Random) -> ByChance:
    """Uniform, or by data."""
    if policy.by_data:
        return ByChance(formula="clients are drawn in proportion to their data", term="data_share")
    return ByChance(formula="clients are drawn uniformly from all who are available")
