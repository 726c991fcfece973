"""COCS: context-aware client selection for hierarchical federated learning."""

from fedmuster.policies.cocs.policy import COCS

__all__ = ["COCS"]
