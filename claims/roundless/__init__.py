"""Claims on federations without rounds: fedmuster's own (``bottleneck``), and Pisces'.

Z. Jiang, W. Wang, B. Li, B. Li, Pisces: Efficient Federated Learning via Guided Asynchronous
Training, SoCC 2022.
"""

from typing import Final

from claims.claim import Claim
from claims.roundless import bottleneck, pisces

CLAIMS: Final[tuple[Claim, ...]] = (bottleneck.CLAIM, *pisces.CLAIMS)
