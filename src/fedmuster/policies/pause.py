"""PAUSE: privacy-aware active user selection."""

from dataclasses import dataclass
from typing import ClassVar

from fedmuster.bandits.means import Bonus, MeanEstimator, SampleMean
from fedmuster.core.policy import POLICIES
from fedmuster.policies.bottleneck_policy import BottleneckPolicy
from fedmuster.privacy.schedules import Geometric, Schedule
from fedmuster.solvers.bottleneck import Exact
from fedmuster.solvers.bottleneck_problem import Solver


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class PAUSE(BottleneckPolicy):
    """Fast cohorts that use everybody's data and spare everybody's privacy.

    The index is BSFL's, ``ucb(k, t) = zeta mean + sqrt((m+1) ln t / c_k)`` (Eq. 11–13). Round t
    takes the m-set with the largest ``min ucb(k, t-1) + alpha Phi_g + gamma Phi_p`` (Eq. 14).
    ``Phi_p`` is the mean share of privacy budget left, ``p_k = 1 - spent / eps_bar`` (Eq. 7), as
    the ledger says, or as the schedule says where there is none: ``e^(-eta c_k)`` under the
    geometric one (Eq. 6). ``Phi_g`` is the mean of BSFL's generalisation terms (Eq. 8, 18); with
    ``rho > 0`` it is lowered by ``rho`` for each client beyond the first of its cluster (Eq. 22,
    the paper's R2).

    Args:
        alpha: weight of generalisation. Authors' code: 100.
        beta: exponent of the generalisation term, > 1 in the paper. Authors' code: 2.
        gamma: weight of the privacy that is left. Authors' code: 5.
        schedule: how participations spend privacy, where no ledger says what is left. Authors'
            code: geometric, eta = 0.04.
        rho: what each further client of a cluster costs; needs ``Problem.clusters``.
        zeta: factor on the mean, to exploit more. Paper: 1, and 3 in large networks.
        tau_min_seconds: the shortest conceivable latency; None for the shortest seen so far.
        estimator: which samples count: all (the paper), a window, or discounted (for drift).
        bonus: "published"; "variance" for ``sqrt(2 s² ln t / c_k)`` with the variance s² of the
            client's speeds (deviation 7), which explores far less; "minimax" for the same with
            ``ln+(c̄ / c_k)`` in place of ``ln t``, c̄ the mean of all ``c_k``: less still.
        scale: factor on the bonus.
        solver: how Eq. 14 is solved: exactly, or by the paper's Algorithm 3, which is
            ``{ name = "annealing", neighbourhood = "pause", kappa = 30.0 }``.

    State:
        Of each client the participations and the mean of 1/tau; the shortest latency seen. With
        another bonus also the variance of 1/tau.

    Deviations:
        1. Eq. 14 is solved exactly also under Eq. 22, which the paper holds to be out of reach
           beyond small networks.
        2. ``p_k = 1`` before the first round, as Eq. 7 says; Algorithm 1 starts it at 0.
        3. ``g_k`` divides by t, as BSFL does, where Eq. 14 has t - 1, so that PAUSE with
           ``gamma = rho = 0`` is BSFL.
        4. A client that was asked and did not complete counts as a sample of speed 0, and as a
           participation.
        5. A policy only selects: noise and debits are the business of ``fedmuster.privacy``.
        6. Without rounds: deviation 5 of BSFL. Clusters (``rho > 0``) need rounds, because clients
           that are asked one by one are in no cohort together.
        7. "variance" and "minimax": deviation 6 of BSFL. zeta multiplies the mean only.

    References:
        O. Peleg, N. Lang, D. Ben Ami, S. Rini, N. Shlezinger, K. Cohen, PAUSE: Low-Latency and
        Privacy-Aware Active User Selection for Federated Learning.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> selector = Selector(PAUSE(), Problem(num_clients=30, cohort_size=5))
        >>> selector.select().clients.shape
        (5,)
    """

    name: ClassVar[str] = "pause"

    alpha: float = 100.0
    beta: float = 2.0
    gamma: float = 5.0
    schedule: Schedule = Geometric()
    rho: float = 0.0
    zeta: float = 1.0
    tau_min_seconds: float | None = None
    estimator: MeanEstimator = SampleMean()
    bonus: Bonus = "published"
    scale: float = 1.0
    solver: Solver = Exact()
