"""One file per paper or baseline, and the registry of all policies."""

from typing import Any, Final

from fedmuster.core.policy import Policy
from fedmuster.policies.all_clients import AllClients
from fedmuster.policies.bsfl import BSFL
from fedmuster.policies.clustered_sampling import ClusteredSampling
from fedmuster.policies.cs_ucb import CSUCB
from fedmuster.policies.cs_ucb_q import CSUCBQ
from fedmuster.policies.fastest import FastestInExpectation
from fedmuster.policies.genie import Genie
from fedmuster.policies.pause import PAUSE
from fedmuster.policies.power_of_choice import PowerOfChoice
from fedmuster.policies.random import Random
from fedmuster.policies.rbcs_f import RBCSF

POLICIES: Final[dict[str, type[Policy[Any]]]] = {
    "bsfl": BSFL,
    "pause": PAUSE,
    "cs-ucb": CSUCB,
    "cs-ucb-q": CSUCBQ,
    "rbcs-f": RBCSF,
    "power-of-choice": PowerOfChoice,
    "clustered-sampling": ClusteredSampling,
    "random": Random,
    "all-clients": AllClients,
    "fastest": FastestInExpectation,
    "genie": Genie,
}

__all__ = [
    "BSFL",
    "CSUCB",
    "CSUCBQ",
    "PAUSE",
    "POLICIES",
    "RBCSF",
    "AllClients",
    "ClusteredSampling",
    "FastestInExpectation",
    "Genie",
    "PowerOfChoice",
    "Random",
]
