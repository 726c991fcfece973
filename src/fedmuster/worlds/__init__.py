"""Simulated worlds: who answers, when. And the registry of all worlds."""

from typing import Final

from fedmuster.worlds.activity import ActivityTrace, OnOff
from fedmuster.worlds.availability import Always, Bernoulli, Markov
from fedmuster.worlds.bsfl import BSFLGroups, BSFLRates
from fedmuster.worlds.cell import LTECell
from fedmuster.worlds.client_data import Alike, ExponentialSizes, UniformSizes
from fedmuster.worlds.contextual import ContextualWorld
from fedmuster.worlds.devices import DeviceWorld
from fedmuster.worlds.edge_network import EdgeNetwork
from fedmuster.worlds.heterogeneous import Exponential, LatencyWorld, LogNormal, Normal
from fedmuster.worlds.mobility import RandomWaypoint, Redrawn
from fedmuster.worlds.pause import PauseGroups
from fedmuster.worlds.radio import Radio
from fedmuster.worlds.trace import TraceWorld
from fedmuster.worlds.validity_utility import ValidityUtilityWorld
from fedmuster.worlds.world import Outcome, World, WorldRound, WorldRun

WORLDS: Final[dict[str, type[World]]] = {
    "bsfl-groups": BSFLGroups,
    "bsfl-rates": BSFLRates,
    "pause-groups": PauseGroups,
    "latency": LatencyWorld,
    "trace": TraceWorld,
    "contextual": ContextualWorld,
    "lte-cell": LTECell,
    "devices": DeviceWorld,
    "validity-utility": ValidityUtilityWorld,
    "edge-network": EdgeNetwork,
}

__all__ = [
    "WORLDS",
    "ActivityTrace",
    "Alike",
    "Always",
    "BSFLGroups",
    "BSFLRates",
    "Bernoulli",
    "ContextualWorld",
    "DeviceWorld",
    "EdgeNetwork",
    "Exponential",
    "ExponentialSizes",
    "LTECell",
    "LatencyWorld",
    "LogNormal",
    "Markov",
    "Normal",
    "OnOff",
    "Outcome",
    "PauseGroups",
    "Radio",
    "RandomWaypoint",
    "Redrawn",
    "TraceWorld",
    "UniformSizes",
    "ValidityUtilityWorld",
    "World",
    "WorldRound",
    "WorldRun",
]
