"""The contract that every policy must pass. Check your own with it.

In pytest, so that each point is seen by name::

    @pytest.mark.parametrize("check", CHECKS, ids=str)
    def test_my_policy_keeps_the_contract(check):
        check(MyPolicy(alpha=3.0))

A policy that assigns clients to edge servers is tried at them, and in flat federated learning.
A policy is tried in rounds and without, unless it says why it needs rounds (``rounds_only``).
"""

from fedmuster.testing.contract import CHECKS, Check, check_policy, knowledges
from fedmuster.testing.playing import ContractError, assert_cohort_is_optimal, replay
from fedmuster.testing.tiny_federation import Knowledge

__all__ = [
    "CHECKS",
    "Check",
    "ContractError",
    "Knowledge",
    "assert_cohort_is_optimal",
    "check_policy",
    "knowledges",
    "replay",
]
