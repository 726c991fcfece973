"""fedmuster's own claim: wall-clock time in a real Flower deployment."""

from typing import Final

from claims.claim import Claim
from claims.flower import wall_clock

CLAIMS: Final[tuple[Claim, ...]] = (wall_clock.CLAIM,)
