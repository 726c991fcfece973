"""Misconfiguration is refused at the start, with what to write instead."""

from typing import Any

import pytest
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedProx,
    FedXgbCyclic,
    Strategy,
)

from fedmuster import BSFL, COCS, Genie, Lifted, Random
from fedmuster.core.errors import ConfigError
from fedmuster.core.policy import Policy
from fedmuster.flower.muster_settings import (
    check_policy,
    check_strategy,
    least_nodes,
    nodes_to_evaluate,
)
from fedmuster.flower.strategy_loop import setting_of


def private(strategy: Strategy, clients: int) -> Strategy:
    return DifferentialPrivacyServerSideFixedClipping(
        strategy, noise_multiplier=1.0, clipping_norm=1.0, num_sampled_clients=clients
    )


def check(
    strategy: object,
    *,
    cohort_size: int,
    policy: Policy[Any] | None = None,
    num_to_ask: int | None = None,
) -> None:
    check_strategy(
        strategy,
        policy=policy or Random(),
        cohort_size=cohort_size,
        num_to_ask=num_to_ask or cohort_size,
    )


@pytest.mark.parametrize(
    ("strategy", "what_to_write"),
    [
        (FedAvg(fraction_train=0.5), r"FedAvg\(fraction_train=1.0\).*cohort_size"),
        (FedProx(fraction_train=0.0, proximal_mu=0.1), r"FedProx\(fraction_train=1.0\)"),
        (FedAvg(min_train_nodes=5), r"FedAvg\(min_train_nodes=1\).*min_nodes=5"),
        (FedAdam(min_available_nodes=9), r"FedAdam\(min_available_nodes=1\).*min_nodes=9"),
        (private(FedAvg(fraction_train=0.1), 4), r"FedAvg\(fraction_train=1.0\)"),
        (private(FedAvg(), 10), r"num_sampled_clients=4"),
        (FedXgbCyclic(), r"cohort_size=1"),
    ],
)
def test_what_would_choose_again_or_wait_for_ever_is_refused(
    strategy: Strategy, what_to_write: str
) -> None:
    with pytest.raises(ConfigError, match=what_to_write):
        check(strategy, cohort_size=4)


def test_what_a_class_sets_itself_is_set_after_it_was_made() -> None:
    cyclic = FedXgbCyclic()
    with pytest.raises(ConfigError, match=r"write strategy\.min_train_nodes = 1 before Muster"):
        check(cyclic, cohort_size=1)
    cyclic.min_train_nodes = 1
    with pytest.raises(ConfigError, match=r"write FedXgbCyclic\(min_available_nodes=1\)"):
        check(cyclic, cohort_size=1)
    cyclic.min_available_nodes = 1
    check(cyclic, cohort_size=1)

    class Passing(FedAvg):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)

    with pytest.raises(ConfigError, match=r"write Passing\(fraction_train=1.0\)"):
        check(Passing(fraction_train=0.5), cohort_size=4)

    class Stubborn(FedAvg):
        def __init__(self) -> None:
            super().__init__(fraction_train=0.5)

    with pytest.raises(ConfigError, match=r"write strategy\.fraction_train = 1.0 before Muster"):
        check(Stubborn(), cohort_size=4)


def test_what_fits_is_accepted() -> None:
    check(FedAvg(), cohort_size=2)
    check(FedAvg(fraction_evaluate=0.1, min_evaluate_nodes=50), cohort_size=2)
    check(private(FedProx(proximal_mu=0.1), 4), cohort_size=4)


def test_policies_that_may_choose_one_client_need_strategies_that_take_one() -> None:
    with pytest.raises(ConfigError, match="min_train_nodes=1, min_available_nodes=1"):
        check(FedAvg(), cohort_size=4, policy=COCS())
    check(FedAvg(min_train_nodes=1, min_available_nodes=1), cohort_size=4, policy=COCS())


def test_strategies_of_the_old_api_are_refused_with_the_new_name() -> None:
    with pytest.raises(ConfigError, match=r"from flwr\.serverapp\.strategy import"):
        check(object(), cohort_size=2)


def test_oracles_and_flat_policies_at_edges_are_refused() -> None:
    with pytest.raises(ConfigError, match="only a simulated world knows"):
        check_policy(Genie(), num_edges=0)
    with pytest.raises(ConfigError, match=r"Lifted\(policy=BSFL"):
        check_policy(BSFL(), num_edges=2)
    check_policy(Lifted(), num_edges=2)
    check_policy(COCS(), num_edges=2)
    check_policy(Random(), num_edges=2)


def test_the_innermost_setting_counts() -> None:
    strategy = DifferentialPrivacyClientSideFixedClipping(
        FedAvg(weighted_by_key="samples"), 1.0, 1.0, 3
    )
    assert setting_of(strategy, "weighted_by_key", None) == "samples"
    assert setting_of(strategy, "unheard_of", 7) == 7


def test_how_many_nodes_a_strategy_needs() -> None:
    assert least_nodes(FedAvg(min_train_nodes=1, min_available_nodes=1)) == 1
    assert least_nodes(private(FedAvg(min_train_nodes=1, min_available_nodes=3), 4)) == 3
    assert nodes_to_evaluate(FedAvg(fraction_evaluate=0.5), 10) == 5
    assert nodes_to_evaluate(FedAvg(fraction_evaluate=0.5), 1) == 2
    assert nodes_to_evaluate(FedAvg(fraction_evaluate=0.0), 0) == 0
