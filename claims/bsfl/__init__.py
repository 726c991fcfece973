"""Claims of BSFL.

D. Ben Ami, K. Cohen, Q. Zhao, Client Selection for Generalization in Accelerated Federated
Learning: A Multi-Armed Bandit Approach, IEEE Access 13, 2025.
"""

from typing import Final

from claims.bsfl import annealing, balance, tables_1_and_2, theorem_1, training, variance
from claims.claim import Claim

CLAIMS: Final[tuple[Claim, ...]] = (
    annealing.CLAIM,
    balance.ALPHA,
    balance.BETA,
    theorem_1.IID,
    theorem_1.NON_IID,
    theorem_1.LARGE,
    *training.TRAINING,
    tables_1_and_2.ALPHA,
    tables_1_and_2.BETA,
    variance.CLAIM,
)
