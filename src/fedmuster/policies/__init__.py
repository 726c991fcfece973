"""One file per paper or baseline, and the registry of all policies."""

from typing import Any, Final

from fedmuster.core.policy import Policy
from fedmuster.policies.bsfl import BSFL
from fedmuster.policies.clustered_sampling import ClusteredSampling
from fedmuster.policies.cocs.policy import COCS
from fedmuster.policies.cs_ucb import CSUCB, CSUCBQ
from fedmuster.policies.cucb import CUCB
from fedmuster.policies.fedsuv.policy import FedSUV
from fedmuster.policies.genie import FastestInExpectation, Genie
from fedmuster.policies.lifted import Lifted
from fedmuster.policies.linucb import LinUCB
from fedmuster.policies.mab_cs.fedcs import ExtendedFedCS, FedCS
from fedmuster.policies.mab_cs.policy import ElementWiseMABCS, NaiveMABCS
from fedmuster.policies.oort.policy import Oort
from fedmuster.policies.oracle import Oracle
from fedmuster.policies.pause import PAUSE
from fedmuster.policies.power_of_choice import PowerOfChoice
from fedmuster.policies.random import AllClients, Random
from fedmuster.policies.rbcs_f import RBCSF
from fedmuster.policies.refl import REFL
from fedmuster.policies.safa import SAFA
from fedmuster.policies.tifl import TiFL

POLICIES: Final[dict[str, type[Policy[Any]]]] = {
    "bsfl": BSFL,
    "pause": PAUSE,
    "fedcs": FedCS,
    "extended-fedcs": ExtendedFedCS,
    "naive-mab-cs": NaiveMABCS,
    "element-wise-mab-cs": ElementWiseMABCS,
    "fedsuv": FedSUV,
    "oort": Oort,
    "refl": REFL,
    "safa": SAFA,
    "tifl": TiFL,
    "cs-ucb": CSUCB,
    "cs-ucb-q": CSUCBQ,
    "rbcs-f": RBCSF,
    "power-of-choice": PowerOfChoice,
    "clustered-sampling": ClusteredSampling,
    "cocs": COCS,
    "cucb": CUCB,
    "linucb": LinUCB,
    "lifted": Lifted,
    "random": Random,
    "all-clients": AllClients,
    "fastest": FastestInExpectation,
    "genie": Genie,
    "oracle": Oracle,
}

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
    "ClusteredSampling",
    "ElementWiseMABCS",
    "ExtendedFedCS",
    "FastestInExpectation",
    "FedCS",
    "FedSUV",
    "Genie",
    "Lifted",
    "LinUCB",
    "NaiveMABCS",
    "Oort",
    "Oracle",
    "PowerOfChoice",
    "Random",
    "TiFL",
]
