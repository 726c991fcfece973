"""Random choice in rounds that close as early as Tempo's: what closing early gains by itself.

``fedmuster league claims.league.early_random:EarlyRandom:federation=rounds``
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from numpy.random import Generator

from fedmuster.core.explaining import Rule
from fedmuster.core.policy import Stateless
from fedmuster.core.records import RoundView, Selection
from fedmuster.core.staleness import PolynomialWorth, Staleness
from fedmuster.core.state import NoState
from fedmuster.policies.explaining.simple_rules import ByChance
from fedmuster.policies.tempo import Tempo


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlyRandom(Stateless):
    """A uniform draw; a round closes with the same quota as Tempo's, and late answers count."""

    name: ClassVar[str] = "early-random"
    late_hold_slots: ClassVar[bool] = True
    stale_answers: ClassVar[Staleness] = PolynomialWorth()

    def select(self, state: NoState, view: RoundView, rng: Generator) -> Selection:
        """Draw a cohort."""
        count = view.num_to_choose
        drawn = rng.choice(view.num_available, count, replace=False, shuffle=False)
        return replace(Selection.of(view, view.candidates(), drawn), quota=Tempo().quota(count))

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return ByChance(formula="clients are drawn uniformly from all that are available")
