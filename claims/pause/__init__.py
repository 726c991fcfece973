"""Claims of PAUSE.

O. Peleg, N. Lang, D. Ben Ami, S. Rini, N. Shlezinger, K. Cohen, PAUSE: Low-Latency and
Privacy-Aware Active User Selection for Federated Learning.
"""

from typing import Final

from claims.claim import Claim
from claims.pause import exact_search, private_training, theorem_3

CLAIMS: Final[tuple[Claim, ...]] = (exact_search.CLAIM, theorem_3.CLAIM, *private_training.TRAINING)
