"""Claims on what adversaries gain, and what the checks of fedmuster leave them."""

from typing import Final

from claims.claim import Claim
from claims.trust import liars

CLAIMS: Final[tuple[Claim, ...]] = (liars.CLAIM,)
