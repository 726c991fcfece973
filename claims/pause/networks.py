"""The networks of PAUSE's section V, and the selection problems of its rounds."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from fedmuster import PAUSE
from fedmuster.bandits.rewards import CohortReward
from fedmuster.bandits.speed import SpeedEstimator
from fedmuster.federation import Simulation
from fedmuster.policies.bottleneck_policy import BanditState
from fedmuster.solvers.annealing import Annealing
from fedmuster.solvers.bottleneck_problem import BottleneckProblem
from fedmuster.worlds import PauseGroups

KAPPA = 30.0
"""What the temperature is divided by in large networks (PAUSE section V.D)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """A population of clients, and PAUSE as it chooses among them.

    Args:
        num_clients: K.
        cohort_size: m.
        num_clusters: R, of the reward R2.
        cluster_delay_seconds: what a further client of a cluster adds to the round.
        policy: PAUSE with the reward R2.
    """

    num_clients: int
    cohort_size: int
    num_clusters: int
    cluster_delay_seconds: float
    policy: PAUSE

    def __str__(self) -> str:
        reward = f"R2 with {self.num_clusters} clusters" if self.policy.rho > 0 else "R1"
        return f"K = {self.num_clients:,}, m = {self.cohort_size}, {reward}"

    @property
    def world(self) -> PauseGroups:
        """A fast half and a slow half; in clusters, where the reward looks at them."""
        return PauseGroups(
            num_clients=self.num_clients,
            cohort_size=self.cohort_size,
            num_clusters=self.num_clusters if self.policy.rho > 0 else None,
            cluster_delay_seconds=self.cluster_delay_seconds,
        )

    @property
    def reward(self) -> CohortReward:
        """What the policy wants of a cohort beyond speed."""
        return CohortReward.of(self.policy)

    @property
    def rounds_to_see_all(self) -> int:
        """Unseen clients come first, so these rounds choose everybody."""
        return -(-self.num_clients // self.cohort_size)

    def with_rho(self, rho: float) -> "Network":
        """The same with other costs of a repeat; 0 is the reward R1 (PAUSE Eq. 18)."""
        return replace(self, policy=replace(self.policy, rho=rho))

    def problems(self, *, seed: int, rounds: Collection[int]) -> Iterator[BottleneckProblem]:
        """What the policy has to solve in each of ``rounds`` of its own run (PAUSE Eq. 14)."""
        simulation = Simulation(self.policy, self.world, seed=seed)
        for round_ in range(1, max(rounds) + 1):
            if round_ in rounds:
                yield self._problem(simulation)
            simulation.step()

    def _problem(self, simulation: Simulation[BanditState]) -> BottleneckProblem:
        selector, policy = simulation.selector, self.policy
        state = selector.state
        speed = SpeedEstimator(
            estimator=policy.estimator, tau_min_seconds=policy.tau_min_seconds, zeta=policy.zeta
        )
        return BottleneckProblem(
            bottleneck=speed.upper_bound(
                state.speed, slice(None), round_=selector.round, cohort_size=self.cohort_size
            ),
            weight=self.reward.weights(
                state.speed.inverse.count, selector.round, state.target_share
            ),
            size=self.cohort_size,
            clusters=selector.problem.clusters,
            penalty=self.reward.penalty,
        )


def sa_pause(*, steps: int, kappa: float = KAPPA) -> Annealing:
    """The paper's Algorithm 3."""
    return Annealing(neighbourhood="pause", steps=steps, kappa=kappa)


# alpha, beta and gamma are those of the authors' scripts for CIFAR-10 at these sizes. The paper
# does not say what rho is, and the scripts charge 0.05 or 0.01 for a repeat; here it costs 0.1, a
# tenth of the fastest speed, so that clusters matter.
SMALL = Network(
    num_clients=30,
    cohort_size=5,
    num_clusters=6,
    cluster_delay_seconds=0.05,
    policy=PAUSE(alpha=100.0, beta=2.0, gamma=5.0, rho=0.001),
)
LARGE = Network(
    num_clients=300,
    cohort_size=15,
    num_clusters=20,
    cluster_delay_seconds=0.01,
    policy=PAUSE(alpha=10.0, beta=2.0, gamma=10.0, rho=0.01, zeta=3.0),
)
