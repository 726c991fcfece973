"""Simulated worlds: who answers, when. And the registry of all worlds."""

from typing import Final

from fedmuster.worlds.availability import Always, Bernoulli, Markov
from fedmuster.worlds.bsfl import BSFLGroups, BSFLRates
from fedmuster.worlds.client_data import Alike, ExponentialSizes
from fedmuster.worlds.contextual import ContextualWorld
from fedmuster.worlds.heterogeneous import Exponential, LatencyWorld, LogNormal, Normal
from fedmuster.worlds.pause import PauseGroups
from fedmuster.worlds.trace import TraceWorld
from fedmuster.worlds.world import Outcome, World, WorldRound, WorldRun

WORLDS: Final[dict[str, type[World]]] = {
    "bsfl-groups": BSFLGroups,
    "bsfl-rates": BSFLRates,
    "pause-groups": PauseGroups,
    "latency": LatencyWorld,
    "trace": TraceWorld,
    "contextual": ContextualWorld,
}

__all__ = [
    "WORLDS",
    "Alike",
    "Always",
    "BSFLGroups",
    "BSFLRates",
    "Bernoulli",
    "ContextualWorld",
    "Exponential",
    "ExponentialSizes",
    "LatencyWorld",
    "LogNormal",
    "Markov",
    "Normal",
    "Outcome",
    "PauseGroups",
    "TraceWorld",
    "World",
    "WorldRound",
    "WorldRun",
]
