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
    from fedmuster.core.policy import POLICIES, Policy, PolicyTraits
    from fedmuster.core.records import Feedback, Forecast, Problem, RoundView, Selection, Truth
    from fedmuster.core.selector import Selector
    from fedmuster.core.state import derived, given, shared
    from fedmuster.policies.bsfl import BSFL
    from fedmuster.policies.clustered_sampling import ClusteredSampling
    from fedmuster.policies.cocs import COCS
    from fedmuster.policies.cs_ucb import CSUCB, CSUCBQ
    from fedmuster.policies.cucb import CUCB
    from fedmuster.policies.divfl import DivFL
    from fedmuster.policies.exploring import Exploring
    from fedmuster.policies.fedbuff import FedAsync, FedBuff
    from fedmuster.policies.fedcor import FedCor
    from fedmuster.policies.fedsuv import FedSUV
    from fedmuster.policies.genie import FastestInExpectation, Genie
    from fedmuster.policies.hics_fl import HiCSFL
    from fedmuster.policies.lifted import Lifted
    from fedmuster.policies.linucb import LinUCB
    from fedmuster.policies.mab_cs import ElementWiseMABCS, ExtendedFedCS, FedCS, NaiveMABCS
    from fedmuster.policies.oort import Oort
    from fedmuster.policies.optimal_sampling import OptimalSampling
    from fedmuster.policies.oracle import Oracle
    from fedmuster.policies.pause import PAUSE
    from fedmuster.policies.pisces import Pisces
    from fedmuster.policies.power_of_choice import PowerOfChoice
    from fedmuster.policies.random import AllClients, Random
    from fedmuster.policies.rbcs_f import RBCSF
    from fedmuster.policies.refl import REFL
    from fedmuster.policies.safa import SAFA
    from fedmuster.policies.tempo import Tempo
    from fedmuster.policies.tifl import TiFL
    from fedmuster.privacy.budget import Budget, Privacy
    from fedmuster.privacy.ledger import Ledger

import_module("fedmuster.moved")  # so that old import paths are found

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
    "DivFL",
    "EdgeView",
    "ElementWiseMABCS",
    "Exploring",
    "ExtendedFedCS",
    "FastestInExpectation",
    "FedAsync",
    "FedBuff",
    "FedCS",
    "FedCor",
    "FedSUV",
    "FedmusterError",
    "Feedback",
    "FeedbackReport",
    "Forecast",
    "Genie",
    "HiCSFL",
    "Ledger",
    "Lifted",
    "LinUCB",
    "NaiveMABCS",
    "Oort",
    "OptimalSampling",
    "Oracle",
    "Pisces",
    "Policy",
    "PolicyTraits",
    "PowerOfChoice",
    "Privacy",
    "Problem",
    "Random",
    "RoundView",
    "Selection",
    "Selector",
    "Tempo",
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
    "POLICIES": "core.policy",
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
    try:  # what has no home here is a policy, which its registry knows
        return getattr(import_module(f"fedmuster.{_HOMES.get(name, 'policies')}"), name)
    except AttributeError:
        raise AttributeError(f"module 'fedmuster' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return __all__
