"""Tempo: value per slot-second, fedmuster's own policy."""

from fedmuster.policies.tempo.policy import Tempo

__all__ = ["Tempo"]
