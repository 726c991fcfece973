"""fedmuster: which clients should train next? Client selection for federated learning.

Names are loaded when they are first used, so that ``import fedmuster`` and the command line start
at once; none of them needs more than numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmuster.core.errors import FedmusterError
    from fedmuster.core.feedback import FeedbackReport
    from fedmuster.core.policy import Policy, PolicyTraits
    from fedmuster.core.records import Feedback, Problem, RoundView, Selection, Truth
    from fedmuster.core.selector import Selector
    from fedmuster.core.state import given, shared
    from fedmuster.policies import (
        BSFL,
        CSUCB,
        CSUCBQ,
        PAUSE,
        POLICIES,
        RBCSF,
        AllClients,
        FastestInExpectation,
        Genie,
        PowerOfChoice,
        Random,
    )

__version__ = "0.1.0"

__all__ = [
    "BSFL",
    "CSUCB",
    "CSUCBQ",
    "PAUSE",
    "POLICIES",
    "RBCSF",
    "AllClients",
    "FastestInExpectation",
    "FedmusterError",
    "Feedback",
    "FeedbackReport",
    "Genie",
    "Policy",
    "PolicyTraits",
    "PowerOfChoice",
    "Problem",
    "Random",
    "RoundView",
    "Selection",
    "Selector",
    "Truth",
    "__version__",
    "given",
    "shared",
]

_CORE = {
    "FedmusterError": "errors",
    "FeedbackReport": "feedback",
    "Policy": "policy",
    "PolicyTraits": "policy",
    "Feedback": "records",
    "Problem": "records",
    "RoundView": "records",
    "Selection": "records",
    "Selector": "selector",
    "Truth": "records",
    "given": "state",
    "shared": "state",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fedmuster' has no attribute {name!r}")
    home = f"fedmuster.core.{_CORE[name]}" if name in _CORE else "fedmuster.policies"
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
