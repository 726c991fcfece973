"""Flower (flwr): any policy in a running federation, by changing a line or two.

On the server wrap the strategy in :class:`Muster`; on the clients add :class:`ReportingMod` to the
mods of the ClientApp, and :class:`PrivateMod` before it where privacy is promised.
"""

from importlib import import_module, util
from typing import TYPE_CHECKING, Any

from fedmuster.core.errors import MissingExtraError

if TYPE_CHECKING:
    from fedmuster.adapters.flower.choosing.edge_groups import EdgeGroups
    from fedmuster.adapters.flower.client.private_mod import PrivateMod
    from fedmuster.adapters.flower.client.reporting_mod import ReportingMod
    from fedmuster.adapters.flower.server.muster import Muster

__all__ = ["EdgeGroups", "Muster", "PrivateMod", "ReportingMod"]

if util.find_spec("flwr") is None:
    raise MissingExtraError("flwr", extra="flower", purpose="the adapter for Flower")

# Imported when asked for: in a deployment every message starts a process, which needs a mod only.
_ROOMS = {
    "EdgeGroups": "choosing.edge_groups",
    "Muster": "server.muster",
    "PrivateMod": "client.private_mod",
    "ReportingMod": "client.reporting_mod",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
