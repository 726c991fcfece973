"""BSFL: bandit scheduling for federated learning."""

from dataclasses import dataclass
from typing import ClassVar

from fedmuster.bandits.means import Bonus, MeanEstimator, SampleMean
from fedmuster.core.policy import POLICIES
from fedmuster.policies.bottleneck_policy import BottleneckPolicy
from fedmuster.solvers.bottleneck import Exact
from fedmuster.solvers.bottleneck_problem import Solver


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class BSFL(BottleneckPolicy):
    """Fast cohorts that still use everybody's data.

    The index of a client is the upper confidence bound of its speed ``tau_min / tau``,
    ``ucb(k, t) = mean + sqrt((m+1) ln t / c_k)`` (Eq. 8–12), ``+inf`` while it is unseen. Round t
    takes the m-set with the largest ``min ucb(k, t-1) + (alpha/m) sum g_k`` (Eq. 13), where
    ``g_k = |x|^beta sgn(x)`` with ``x = m d_k / sum d - c_k / t`` is positive for clients whose
    data were used too little (Eq. 3, 4). Theorem 1 bounds its regret by O(ln t) if rewards are
    quantised.

    Args:
        alpha: weight of generalisation. Paper: 2 (i.i.d.), 3 (non-i.i.d. and linear regression).
        beta: exponent of the generalisation term. Paper: 1 (i.i.d.), 1.2 (else).
        tau_min_seconds: the shortest conceivable latency; None for the shortest seen so far.
        estimator: which samples count: all (the paper), a window, or discounted (for drift).
        bonus: "published"; "variance" for ``sqrt(2 s² ln t / c_k)`` with the variance s² of the
            client's speeds (deviation 6), which explores far less; "minimax" for the same with
            ``ln+(c̄ / c_k)`` in place of ``ln t``, c̄ the mean of all ``c_k``: less still.
        scale: factor on the bonus.
        solver: how Eq. 13 is solved: exactly, or by the paper's annealing.

    State:
        Of each client the participations and the mean of 1/tau; the shortest latency seen. With
        another bonus also the variance of 1/tau.

    Deviations:
        1. Eq. 13 is solved exactly in O(K) on typical states; the paper holds it to be
           infeasible and anneals (``solver=Annealing()``).
        2. Eq. 17 puts the sum inside the minimum; Eq. 13, where it is outside, is right.
        3. A client that was asked and did not complete counts as a sample of speed 0.
        4. Without ``tau_min_seconds`` the running minimum takes its place.
        5. Without rounds, as many clients as a cohort has make up a round, of which t counts the
           number. m in the index and in Eq. 13 is the number of clients that are chosen at once:
           where slots are filled one by one, ``ucb + alpha g`` decides, with the index of UCB1.
        6. The bonuses "variance" and "minimax" are not in the paper, and Theorem 1 does not cover
           them. They take speeds for normal with ``s² = (c_k v + 0.02) / (c_k + 2)``, where v is
           the mean squared deviation of the samples that count: the prior stands for two samples
           0.1 away from the mean. Neither depends on m.

    References:
        D. Ben Ami, K. Cohen, Q. Zhao, Client Selection for Generalization in Accelerated
        Federated Learning: A Multi-Armed Bandit Approach, IEEE Access 13, 2025.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> selector = Selector(BSFL(alpha=3.0, beta=1.2), Problem(num_clients=500, cohort_size=25))
        >>> selector.select().clients.shape
        (25,)
    """

    name: ClassVar[str] = "bsfl"

    alpha: float = 2.0
    beta: float = 1.0
    tau_min_seconds: float | None = None
    estimator: MeanEstimator = SampleMean()
    bonus: Bonus = "published"
    scale: float = 1.0
    solver: Solver = Exact()
