"""Every policy of the registry, and the variants that take other paths, keep every point."""

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from fedmuster import (
    BSFL,
    COCS,
    CSUCB,
    CSUCBQ,
    PAUSE,
    POLICIES,
    RBCSF,
    ElementWiseMABCS,
    Exploring,
    FedCS,
    FedSUV,
    Genie,
    Lifted,
    NaiveMABCS,
    Oort,
    OptimalSampling,
    Oracle,
    Pisces,
    PowerOfChoice,
    Random,
)
from fedmuster.bandits.means import DiscountedMean, WindowedMean
from fedmuster.core.policy import Policy
from fedmuster.policies.cocs.hypercubes import ZoomingCubes
from fedmuster.policies.fedsuv.gaussian_process import GaussianProcess
from fedmuster.solvers.annealing import Annealing
from fedmuster.solvers.assignment import FLGreedy
from fedmuster.testing import CHECKS, Check, Knowledge, check_policy, knowledges
from fedmuster.testing.repetition_checks import trajectory

NOTHING = Knowledge(
    data=False, clusters=False, num_features=0, losses=False, attributes=False
)  # but forecasts: REFL looks at nothing else
AT_EDGES = Knowledge(num_edges=3)
UNUSUAL = (2, 11, 12)
"""Points that ask for cohorts of all sizes, scarce clients and failures."""


class Case(NamedTuple):
    label: str
    policy: Policy[Any]
    knowledge: Knowledge


REGISTERED = [
    Case(name if told.num_edges == 0 else f"{name} at edges", kind(), told)
    for name, kind in POLICIES.items()
    for told in knowledges(kind())
]
VARIANTS = [
    Case("bsfl, windowed", BSFL(estimator=WindowedMean()), Knowledge()),
    Case("bsfl, discounted", BSFL(estimator=DiscountedMean()), Knowledge()),
    Case("bsfl, non-i.i.d.", BSFL(alpha=3.0, beta=1.2, tau_min_seconds=0.01), Knowledge()),
    Case("bsfl, annealing", BSFL(solver=Annealing(steps=50)), Knowledge()),
    Case("bsfl, variance", BSFL(bonus="variance"), Knowledge()),
    Case("bsfl, minimax", BSFL(bonus="minimax"), Knowledge()),
    Case("bsfl, variance, windowed", BSFL(bonus="variance", estimator=WindowedMean()), Knowledge()),
    Case(
        "bsfl, minimax, discounted", BSFL(bonus="minimax", estimator=DiscountedMean()), Knowledge()
    ),
    Case("pause, variance", PAUSE(bonus="variance", scale=0.5), Knowledge()),
    Case("cs-ucb, variance", CSUCB(bonus="variance"), Knowledge()),
    Case("cs-ucb, minimax", CSUCB(bonus="minimax"), Knowledge()),
    Case("cs-ucb-q, variance", CSUCBQ(bonus="variance"), Knowledge()),
    Case("pause, clusters", PAUSE(rho=0.1, zeta=3.0), Knowledge()),
    Case("rbcs-f, features only", RBCSF(), Knowledge(data=False, clusters=False)),
    Case("pow-d", PowerOfChoice(variant="pow-d"), Knowledge()),
    Case("pow-d, few candidates", PowerOfChoice(variant="pow-d", num_candidates=6), Knowledge()),
    Case("cpow-d", PowerOfChoice(variant="cpow-d", num_candidates=6), Knowledge(data=False)),
    Case("rpow-d, few candidates", PowerOfChoice(num_candidates=6), Knowledge()),
    Case("fedcs, few candidates", FedCS(request_fraction=0.7), Knowledge()),
    Case("naive-mab-cs, few candidates", NaiveMABCS(request_fraction=0.7), Knowledge()),
    Case("element-wise, few", ElementWiseMABCS(request_fraction=0.7), Knowledge()),
    Case("oort, blacklist", Oort(blacklist_rounds=20), Knowledge()),
    Case(
        "fedsuv, random features",
        FedSUV(gp=GaussianProcess(exact_up_to=0, num_features=16)),
        Knowledge(),
    ),
    Case("random, by data", Random(by_data=True), Knowledge()),
    Case("oort, exploring", Exploring(policy=Oort(), explore=0.2), Knowledge()),
    Case("fedcs, exploring", Exploring(policy=FedCS(), explore=0.2), Knowledge()),
    Case("naive-mab-cs, exploring", Exploring(policy=NaiveMABCS(), explore=0.2), Knowledge()),
    Case("random, exploring", Exploring(policy=Random(), explore=0.5), Knowledge()),
    Case("pisces, exploring", Exploring(policy=Pisces(), explore=0.1), Knowledge()),
    Case("optimal-sampling, alike", OptimalSampling(by_data=False, unseen="mean"), Knowledge()),
    Case("bsfl at edges, exploring", Lifted(policy=Exploring(policy=BSFL())), AT_EDGES),
    Case("genie, clusters", Genie(gamma=1.0, rho=0.1), Knowledge()),
    Case("random at edges, by data", Random(by_data=True), AT_EDGES),
    Case("oracle at edges, clairvoyant", Oracle(knows="outcome"), AT_EDGES),
    Case("cocs at edges, zooming", COCS(cubes=ZoomingCubes(), pool="network"), AT_EDGES),
    Case("cocs at edges, greedy", COCS(pool="clients", solver=FLGreedy()), AT_EDGES),
]


def points() -> list[Any]:
    """All; those that play hundreds of rounds take longest."""
    slow = {point: [pytest.mark.slow] for point in (5, 7, 8, 9, 11, 13, 14, 16, 17, 18)}
    return [pytest.param(check, id=str(check), marks=slow.get(check.point, [])) for check in CHECKS]


@pytest.mark.parametrize("check", points())
@pytest.mark.parametrize("case", REGISTERED, ids=lambda case: case.label)
def test_policy_keeps(case: Case, check: Check) -> None:
    check(case.policy, knowledge=case.knowledge)


@pytest.mark.slow
@pytest.mark.parametrize("case", VARIANTS, ids=lambda case: case.label)
def test_variant_keeps_all_points(case: Case) -> None:
    check_policy(case.policy, knowledge=case.knowledge)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fedmuster.core.errors.FedmusterWarning")  # too little said
@pytest.mark.parametrize("case", REGISTERED, ids=lambda case: case.label)
def test_policy_that_is_told_nothing_keeps(case: Case) -> None:
    """If that changes what the policy does, all points but those that repeat others, that ask
    nothing of the federation (1), and for a form of the state that stays for long (7); else those
    about unusual rounds."""
    nothing = replace(NOTHING, num_edges=case.knowledge.num_edges)
    same = trajectory(case.policy, nothing) == trajectory(case.policy, case.knowledge)
    for check in CHECKS:
        if check.point in UNUSUAL or not same:
            check(case.policy, knowledge=nothing)
