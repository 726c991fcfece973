"""Claims of MAB-CS.

N. Yoshida, T. Nishio, M. Morikura, K. Yamamoto, MAB-based Client Selection for Federated Learning
with Uncertain Resources in Mobile Networks, IEEE Globecom Workshops 2020.
"""

from typing import Final

from claims.claim import Claim
from claims.mab_cs import accuracy, elapsed, scores

CLAIMS: Final[tuple[Claim, ...]] = (elapsed.CLAIM, *accuracy.TRAINING, scores.CLAIM)
