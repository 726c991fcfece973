"""fedmuster: which clients should train next? Client selection for federated learning."""

from fedmuster.core.errors import FedmusterError
from fedmuster.core.feedback import FeedbackReport
from fedmuster.core.policy import Policy
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.selector import Selector
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
    "Problem",
    "Random",
    "RoundView",
    "Selection",
    "Selector",
    "__version__",
]
