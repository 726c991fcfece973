"""What MAB-CS's experiments have in common: the cell, and the four policies at its values."""

from typing import Any, Final

from fedmuster.core.policy import Policy
from fedmuster.policies import ElementWiseMABCS, ExtendedFedCS, FedCS, NaiveMABCS
from fedmuster.worlds import LTECell

REQUEST_FRACTION: Final = 0.1
ALPHA: Final = 1000.0
BETA: Final = 50.0

FEDCS: Final = FedCS.name
EXTENDED: Final = ExtendedFedCS.name
NAIVE: Final = NaiveMABCS.name
ELEMENT_WISE: Final = ElementWiseMABCS.name
RIVALS: Final = (EXTENDED, NAIVE, ELEMENT_WISE)
"""Those whom the paper holds against FedCS."""

WIDEST: Final = 1.99
"""The largest eta of the paper."""


def naive(alpha: float = ALPHA) -> NaiveMABCS:
    """Naive MAB-CS, with the paper's share of candidates."""
    return NaiveMABCS(request_fraction=REQUEST_FRACTION, alpha=alpha)


def element_wise(beta: float = BETA) -> ElementWiseMABCS:
    """Element-wise MAB-CS, with the paper's share of candidates."""
    return ElementWiseMABCS(request_fraction=REQUEST_FRACTION, beta=beta)


def policies() -> dict[str, Policy[Any]]:
    """FedCS and the three others, as in section IV."""
    return {
        FEDCS: FedCS(request_fraction=REQUEST_FRACTION),
        EXTENDED: ExtendedFedCS(request_fraction=REQUEST_FRACTION),
        NAIVE: naive(),
        ELEMENT_WISE: element_wise(),
    }


def cell(eta: float | None) -> LTECell:
    """K = 100, S_round = 5; None for resources that do not fluctuate."""
    return LTECell(fluctuating=False) if eta is None else LTECell(eta=eta)


SETTING: Final = (
    f"the LTE cell of section IV, K = 100, C = {REQUEST_FRACTION:g}, S_round = 5, alpha = "
    f"{ALPHA:g}, beta = {BETA:g}"
)
