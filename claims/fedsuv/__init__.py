"""Claims of FedSUV.

FedSUV: Validity and Utility-Guided Client Selection for Federated Learning.
"""

from typing import Final

from claims.claim import Claim
from claims.fedsuv import selection, tables_2_and_3, uncertainty

CLAIMS: Final[tuple[Claim, ...]] = (selection.CLAIM, uncertainty.CLAIM, *tables_2_and_3.TABLES)
