"""Simulated worlds: which clients are available, and when each answers.

Each world registers itself in :data:`~fedmuster.worlds.world.WORLDS`; its class can be imported
from here by its name. :class:`~fedmuster.worlds.world.World` says how to write one.
"""

from typing import Any

from fedmuster.worlds.adversaries import Adversaries
from fedmuster.worlds.availability import (
    AVAILABILITIES,
    ActivityTrace,
    Always,
    Bernoulli,
    Markov,
    OnOff,
)
from fedmuster.worlds.heterogeneous import Exponential, Fixed, LogNormal, Normal
from fedmuster.worlds.layout import Alike, ExponentialSizes, UniformSizes, speed_groups
from fedmuster.worlds.mobility import RandomWaypoint, Redrawn
from fedmuster.worlds.radio import Radio
from fedmuster.worlds.setting import Setting
from fedmuster.worlds.world import WORLDS, Outcome, RoundDraw, World, WorldRound, WorldRun

__all__ = [
    "AVAILABILITIES",
    "WORLDS",
    "ActivityTrace",
    "Adversaries",
    "Alike",
    "Always",
    "Bernoulli",
    "Exponential",
    "ExponentialSizes",
    "Fixed",
    "LogNormal",
    "Markov",
    "Normal",
    "OnOff",
    "Outcome",
    "Radio",
    "RandomWaypoint",
    "Redrawn",
    "RoundDraw",
    "Setting",
    "UniformSizes",
    "World",
    "WorldRound",
    "WorldRun",
    "speed_groups",
]


def __getattr__(name: str) -> Any:
    for world in WORLDS.values():
        if world.__name__ == name:
            return world
    raise AttributeError(f"module 'fedmuster.worlds' has no attribute {name!r}")
