"""The round loop: a policy in a world, judged against the genie."""

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from fedmuster.core.errors import StateError
from fedmuster.core.policy import Policy
from fedmuster.core.records import Feedback, IntArray, RoundView
from fedmuster.core.selector import Selector
from fedmuster.policies.genie import Genie
from fedmuster.regret import Judge, Verdict
from fedmuster.worlds.world import World, WorldRound

S = TypeVar("S")


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundRow:
    """One round, as the journal keeps it.

    Args:
        round: t.
        seconds: how long the round took in simulated time.
        reward: realised ``min tau_min/tau + alpha Phi_g + gamma Phi_p`` (BSFL Eq. 5; PAUSE Eq. 9);
            NaN where nobody judges.
        regret: expected loss against the genie (BSFL Eq. 7); NaN where nobody judges.
        num_available: how many could have been asked.
        num_completed: how many of the cohort answered.
        num_refused: feedback rows that could not be right.
        clients: the cohort.
    """

    round: int
    seconds: float
    reward: float
    regret: float
    num_available: int
    num_completed: int
    num_refused: int
    clients: IntArray


class Checkpoint(NamedTuple):
    """All that a simulation needs to continue after ``round``, bit for bit."""

    round: int
    selector: bytes
    judge: bytes | None


class Simulation(Generic[S]):
    """A policy in a world, round by round.

    Args:
        policy: who chooses.
        world: who answers, when.
        seed: of world and policy; two policies with the same seed face the same luck.
        genie: whose reward measures regret; None to do without (faster).

    Example:
        >>> from fedmuster.policies import BSFL, Genie
        >>> from fedmuster.worlds import BSFLRates
        >>> simulation = Simulation(BSFL(), BSFLRates(), seed=1, genie=Genie())
        >>> rows = [simulation.step() for _ in range(100)]
        >>> rows[-1].round, rows[0].clients.shape
        (100, (5,))
    """

    def __init__(
        self, policy: Policy[S], world: World, *, seed: int, genie: Genie | None = None
    ) -> None:
        self.world = world.start(seed)
        self.selector = Selector(policy, self.world.problem, seed=seed)
        self.judge = None if genie is None else Judge(genie, self.world.problem, seed=seed)

    def step(self) -> RoundRow:
        """Play one round."""
        selector = self.selector
        drawn = self.world.realise(selector.round)
        # The truth of a contextual world costs as much as a round: only for who may see it.
        truth = drawn.truth if selector.policy.oracle else None
        selection = selector.select(available=drawn.available, features=drawn.features, truth=truth)
        outcome = drawn.play(selection)
        verdict = Verdict(regret=np.nan, additive=np.nan)
        if self.judge is not None:
            verdict = self.judge.assess(self._whole_view(drawn), selection)
            self.judge.record(selection, outcome.feedback)
        report = selector.observe(outcome.feedback)
        return RoundRow(
            round=selection.round,
            seconds=outcome.round_seconds,
            reward=self.world.tau_min_seconds / _slowest_seconds(outcome.feedback)
            + verdict.additive,
            regret=verdict.regret,
            num_available=int(np.count_nonzero(drawn.available)),
            num_completed=len(selection.clients) - len(report.not_completed),
            num_refused=sum(report.refused.values()),
            clients=selection.clients,
        )

    def checkpoint(self) -> Checkpoint:
        """Everything so far."""
        return Checkpoint(
            round=self.selector.round - 1,
            selector=self.selector.to_bytes(),
            judge=None if self.judge is None else self.judge.to_bytes(),
        )

    def load(self, checkpoint: Checkpoint, *, source: str) -> None:
        """Continue from a checkpoint. The world needs none: its rounds follow from the seed."""
        if (self.judge is None) != (checkpoint.judge is None):
            raise StateError(
                f"{source} was written {'with' if self.judge is None else 'without'} a judge"
            )
        self.selector = Selector.from_bytes(
            checkpoint.selector, self.selector.policy, source=source
        )
        if self.judge is not None and checkpoint.judge is not None:
            self.judge.load(checkpoint.judge, source=source)

    def _whole_view(self, drawn: WorldRound) -> RoundView:
        """The round with the truth, for the judge's eyes only."""
        return RoundView(
            round=drawn.round,
            cohort_size=self.selector.problem.cohort_size,
            available=drawn.available,
            truth=drawn.truth,
        )


def _slowest_seconds(feedback: Feedback) -> float:
    """Latency of the slowest of the cohort; infinite if one did not answer or none was asked."""
    answered = feedback.answered
    if len(answered) == 0 or not answered.all():
        return float(np.inf)
    return float(feedback.latency_seconds.max())
