"""The claims of the papers, by name on the command line: ``fedmuster claims``."""

from typing import Final

from claims import bsfl, cocs, fedsuv, flower, mab_cs, pause, roundless
from claims.claim import Claim

CLAIMS: Final[dict[str, Claim]] = {
    claim.name: claim
    for paper in (bsfl, pause, mab_cs, fedsuv, cocs, flower, roundless)
    for claim in paper.CLAIMS
}
