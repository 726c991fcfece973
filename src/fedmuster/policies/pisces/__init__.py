"""Pisces: guided selection without rounds, by statistical utility and staleness."""

from fedmuster.policies.pisces.policy import Pisces

__all__ = ["Pisces"]
