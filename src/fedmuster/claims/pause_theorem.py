"""PAUSE, Theorem 3: the bound on regret, in numbers."""

import math
from dataclasses import dataclass, replace

import numpy as np

from fedmuster.claims.pause_networks import Network
from fedmuster.core.records import Feedback, FloatArray, RoundView, Selection, Truth
from fedmuster.federation.regret import CohortJudge
from fedmuster.policies import Genie
from fedmuster.report.runs import Run


@dataclass(frozen=True, kw_only=True, slots=True)
class Theorem3:
    """``K (Delta_max + delta) (4 (m+1) ln n / delta^2 + 1 + 2 pi^2 / 3)`` (PAUSE Eq. 17).

    Args:
        num_clients: K.
        cohort_size: m.
        delta: the smallest difference between two clients' expected latencies, in seconds.
        largest_gap: Delta_max, at most what Lemma 1 says (PAUSE Eq. 16).
    """

    num_clients: int
    cohort_size: int
    delta: float
    largest_gap: float

    @classmethod
    def of(cls, network: Network, truth: Truth) -> "Theorem3":
        """The theorem for PAUSE in ``network``, with the clients of ``truth``."""
        reward, size = network.reward, network.cohort_size
        mu = truth.mean_speed
        # PAUSE section III.D: Phi_g has the range 2, and R2 widens it by rho for each possible
        # repeat; Phi_p has the range 1.
        generalisation, privacy = 2.0 + reward.rho * (size - 1), 1.0
        return cls(
            num_clients=network.num_clients,
            cohort_size=size,
            delta=smallest_difference(truth.mean_latency_seconds),
            largest_gap=float(mu.max() - mu.min())
            + reward.alpha * generalisation
            + reward.gamma * privacy,  # PAUSE Eq. 16
        )

    def bound(self, rounds: FloatArray) -> FloatArray:
        """What regret after ``rounds`` cannot exceed in expectation."""
        samples = 4 * (self.cohort_size + 1) * np.log(rounds) / self.delta**2
        per_client = samples + 1 + 2 * math.pi**2 / 3
        bound: FloatArray = self.num_clients * (self.largest_gap + self.delta) * per_client
        return bound  # PAUSE Eq. 17

    def use(self, gaps: FloatArray) -> float:
        """The largest share of the bound that a run with these gaps used, at any round."""
        rounds = np.arange(1.0, len(gaps) + 1)
        return float((np.cumsum(gaps) / self.bound(rounds)).max())

    @property
    def first_informative_round(self) -> float:
        """From when on the bound is below ``n Delta_max``, which no policy can exceed."""
        rounds = np.array(1e300)
        for _ in range(100):  # the bound grows as ln n, so this falls to where the two cross
            rounds = self.bound(rounds) / self.largest_gap
        return float(rounds)


def smallest_difference(values: FloatArray) -> float:
    """Between any two of ``values``."""
    return float(np.diff(np.sort(values)).min())


def bound_use(run: Run, network: Network) -> float:
    """The largest share of Eq. 17's bound that a run used, which nobody judged when it was played.

    A world's rounds follow from the seed and the genie decides on the policy's own history, so
    regret (PAUSE Eq. 15, between expectations) follows from the cohorts in the journal.
    """
    world = network.world.start(run.seed)
    problem = replace(world.problem, num_samples=run.num_samples, quality=run.quality)
    judge = CohortJudge(Genie.of(network.reward), problem, seed=run.seed)
    gaps = np.empty(run.rounds)
    cohorts = np.split(run.chosen, np.cumsum(run.cohort_sizes)[:-1])
    for number, cohort in enumerate(cohorts, start=1):
        drawn = world.realise(number)
        view = RoundView(
            round=number,
            cohort_size=network.cohort_size,
            available=drawn.available,
            truth=drawn.truth,
        )
        selection = Selection(round=number, clients=cohort)
        gaps[number - 1] = judge.assess(view, selection).regret
        asked = Feedback(round=number, clients=cohort, latency_seconds=np.ones(len(cohort)))
        judge.record(selection, asked)
    return Theorem3.of(network, world.realise(1).truth).use(gaps)
