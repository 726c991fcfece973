"""Policies that know nothing of edge servers, and what they see where there are some."""

from dataclasses import replace
from typing import Any

import numpy as np

from fedmuster.core.policy import Policy
from fedmuster.core.records import RoundView
from fedmuster.policies.all_clients import AllClients
from fedmuster.policies.bsfl import BSFL
from fedmuster.policies.clustered_sampling import ClusteredSampling
from fedmuster.policies.cs_ucb import CSUCB
from fedmuster.policies.cs_ucb_q import CSUCBQ
from fedmuster.policies.element_wise_mab_cs import ElementWiseMABCS
from fedmuster.policies.extended_fedcs import ExtendedFedCS
from fedmuster.policies.fastest import FastestInExpectation
from fedmuster.policies.fedcs import FedCS
from fedmuster.policies.fedsuv import FedSUV
from fedmuster.policies.genie import Genie
from fedmuster.policies.naive_mab_cs import NaiveMABCS
from fedmuster.policies.oort import Oort
from fedmuster.policies.pause import PAUSE
from fedmuster.policies.power_of_choice import PowerOfChoice
from fedmuster.policies.rbcs_f import RBCSF
from fedmuster.policies.refl import REFL
from fedmuster.policies.safa import SAFA
from fedmuster.policies.tifl import TiFL

FlatPolicy = (
    BSFL
    | PAUSE
    | FedCS
    | ExtendedFedCS
    | NaiveMABCS
    | ElementWiseMABCS
    | FedSUV
    | Oort
    | REFL
    | SAFA
    | TiFL
    | CSUCB
    | CSUCBQ
    | RBCSF
    | PowerOfChoice
    | ClusteredSampling
    | AllClients
    | FastestInExpectation
    | Genie
    | Policy[Any]  # of your own: TOML does not know it, Python does
)
"""Those that can be lifted to edge servers."""


def flattened(view: RoundView) -> RoundView:
    """The view without its edges: of each client the mean over the edges that cover it.

    Where none does, over all edges, so that nothing is missing.
    """
    features = view.pair_features
    if features is not None:
        network = view.network
        weight = np.where(network.covered[:, None], network.coverage, True).astype(np.float64)
        weight /= weight.sum(axis=1, keepdims=True)
        features = np.einsum("km,kmd->kd", weight, features)
    return replace(view, edges=None, features=features)
