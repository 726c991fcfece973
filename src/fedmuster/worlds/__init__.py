"""Simulated worlds: who answers, when. And the registry of all worlds."""

from typing import Final

from fedmuster.worlds.availability import ActivityTrace, Always, Bernoulli, Markov, OnOff
from fedmuster.worlds.bsfl_and_pause import BSFLGroups, BSFLRates, PauseGroups
from fedmuster.worlds.devices import DeviceWorld
from fedmuster.worlds.edge_network import EdgeNetwork
from fedmuster.worlds.heterogeneous import (
    ContextualWorld,
    Exponential,
    LatencyWorld,
    LogNormal,
    Normal,
)
from fedmuster.worlds.layout import Alike, ExponentialSizes, UniformSizes
from fedmuster.worlds.lte_cell import LTECell
from fedmuster.worlds.mobility import RandomWaypoint, Redrawn
from fedmuster.worlds.radio import Radio
from fedmuster.worlds.trace_world import TraceWorld
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
