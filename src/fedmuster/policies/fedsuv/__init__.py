"""FedSUV: clients that may be Pareto-optimal in validity and utility."""

from fedmuster.policies.fedsuv.policy import FedSUV

__all__ = ["FedSUV"]
