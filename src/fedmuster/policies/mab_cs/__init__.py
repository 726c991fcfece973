"""MAB-CS and FedCS: short upload schedules."""

from fedmuster.policies.mab_cs.fedcs import ExtendedFedCS, FedCS
from fedmuster.policies.mab_cs.policy import ElementWiseMABCS, NaiveMABCS

__all__ = ["ElementWiseMABCS", "ExtendedFedCS", "FedCS", "NaiveMABCS"]
