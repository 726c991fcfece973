"""Oort: guided selection by statistical utility and speed."""

from fedmuster.policies.oort.policy import Oort

__all__ = ["Oort"]
