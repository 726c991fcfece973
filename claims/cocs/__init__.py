"""Claims of COCS.

Z. Qu, R. Duan, L. Chen, J. Xu, Z. Lu, Y. Liu, Context-Aware Online Client Selection for
Hierarchical Federated Learning, IEEE TPDS 33(12), 2022.
"""

from typing import Final

from claims.claim import Claim
from claims.cocs import accuracy_sweeps, edge_training, nonconvex, sensitivity, solvers, utility

CLAIMS: Final[tuple[Claim, ...]] = (
    utility.CLAIM,
    nonconvex.CLAIM,
    sensitivity.BUDGET,
    sensitivity.DEADLINE,
    solvers.CLAIM,
    *edge_training.TRAINING,
    accuracy_sweeps.BUDGET,
    accuracy_sweeps.PARTICIPANTS,
)
