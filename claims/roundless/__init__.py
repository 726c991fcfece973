"""Claims on federations without rounds: fedmuster's own (``bottleneck``), and Pisces'.

They are registered when the pages of their full runs are in docs/claims.

Z. Jiang, W. Wang, B. Li, B. Li, Pisces: Efficient Federated Learning via Guided Asynchronous
Training, SoCC 2022.
"""

from typing import Final

from claims.claim import Claim

CLAIMS: Final[tuple[Claim, ...]] = ()
