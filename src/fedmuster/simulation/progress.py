"""How far a run is, and when it is over."""

from dataclasses import dataclass
from typing import NamedTuple


class Checkpoint(NamedTuple):
    """All that a simulation needs to continue after ``round``, bit for bit."""

    round: int
    elapsed_seconds: float
    selector: bytes
    judge: bytes | None
    trainer: bytes | None
    budget: bytes | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Horizon:
    """When a run is over: after so many rounds, or with the round that reaches so many seconds."""

    rounds: int
    seconds: float | None = None

    def __str__(self) -> str:
        if self.seconds is None:
            return f"{self.rounds:,} rounds"
        return f"{self.seconds:g} simulated seconds (at most {self.rounds:,} rounds)"

    def reached(self, rounds: int, elapsed_seconds: float) -> bool:
        """Whether a run that has come so far is over."""
        over_time = self.seconds is not None and elapsed_seconds >= self.seconds
        return over_time or rounds >= self.rounds
