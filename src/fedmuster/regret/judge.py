"""Whoever can say what a cohort was worth."""

from typing import NamedTuple, Protocol

from fedmuster.core.records import Feedback, RoundView, Selection


class Verdict(NamedTuple):
    """What a cohort was worth before it was played.

    ``regret`` is what the best cohort expects more than this one, never negative; ``additive`` the
    part of the reward that does not depend on what happens.
    """

    regret: float
    additive: float


class Judge(Protocol):
    """Compares each cohort with the best one that the truth can buy in the same round."""

    def assess(self, view: RoundView, selection: Selection) -> Verdict:
        """The verdict on a cohort; ``view`` must hold the truth."""
        ...

    def reward(self, verdict: Verdict, feedback: Feedback, *, tau_min_seconds: float) -> float:
        """What the cohort has earned, now that it was played."""
        ...

    def record(self, selection: Selection, feedback: Feedback) -> None:
        """Learn what the policy did."""
        ...

    def to_bytes(self) -> bytes:
        """An image of the history."""
        ...

    def load(self, image: bytes, *, source: str) -> None:
        """Take over the history of :meth:`to_bytes`."""
        ...
