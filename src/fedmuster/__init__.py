"""fedmuster: which clients should train next? Client selection for federated learning.

Names are loaded when they are first used, so that ``import fedmuster`` and the command line start
at once; none of them needs more than numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmuster.core.edges import EdgeView
    from fedmuster.core.errors import FedmusterError
    from fedmuster.core.feedback import FeedbackReport
    from fedmuster.core.policy import Policy, PolicyTraits
    from fedmuster.core.records import Feedback, Forecast, Problem, RoundView, Selection, Truth
    from fedmuster.core.selector import Selector
    from fedmuster.core.state import derived, given, shared
    from fedmuster.policies import (
        BSFL,
        COCS,
        CSUCB,
        CSUCBQ,
        CUCB,
        PAUSE,
        POLICIES,
        RBCSF,
        REFL,
        SAFA,
        AllClients,
        ClusteredSampling,
        ElementWiseMABCS,
        ExtendedFedCS,
        FastestInExpectation,
        FedCS,
        FedSUV,
        Genie,
        Lifted,
        LinUCB,
        NaiveMABCS,
        Oort,
        Oracle,
        PowerOfChoice,
        Random,
        TiFL,
    )
    from fedmuster.privacy.budget import Budget, Privacy
    from fedmuster.privacy.ledger import Ledger

__version__ = "0.1.0"

__all__ = [
    "BSFL",
    "COCS",
    "CSUCB",
    "CSUCBQ",
    "CUCB",
    "PAUSE",
    "POLICIES",
    "RBCSF",
    "REFL",
    "SAFA",
    "AllClients",
    "Budget",
    "ClusteredSampling",
    "EdgeView",
    "ElementWiseMABCS",
    "ExtendedFedCS",
    "FastestInExpectation",
    "FedCS",
    "FedSUV",
    "FedmusterError",
    "Feedback",
    "FeedbackReport",
    "Forecast",
    "Genie",
    "Ledger",
    "Lifted",
    "LinUCB",
    "NaiveMABCS",
    "Oort",
    "Oracle",
    "Policy",
    "PolicyTraits",
    "PowerOfChoice",
    "Privacy",
    "Problem",
    "Random",
    "RoundView",
    "Selection",
    "Selector",
    "TiFL",
    "Truth",
    "__version__",
    "derived",
    "given",
    "shared",
]

_HOMES = {  # of what is no policy
    "Budget": "privacy.budget",
    "EdgeView": "core.edges",
    "FedmusterError": "core.errors",
    "FeedbackReport": "core.feedback",
    "Ledger": "privacy.ledger",
    "Policy": "core.policy",
    "PolicyTraits": "core.policy",
    "Privacy": "privacy.budget",
    "Feedback": "core.records",
    "Problem": "core.records",
    "RoundView": "core.records",
    "Selection": "core.records",
    "Selector": "core.selector",
    "Truth": "core.records",
    "Forecast": "core.records",
    "derived": "core.state",
    "given": "core.state",
    "shared": "core.state",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fedmuster' has no attribute {name!r}")
    return getattr(import_module(f"fedmuster.{_HOMES.get(name, 'policies')}"), name)


def __dir__() -> list[str]:
    return __all__
