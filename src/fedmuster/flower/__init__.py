"""Flower (flwr): any policy in a running federation, by changing a line or two.

On the server wrap the strategy in :class:`Muster`; on the clients add :class:`ReportingMod` to the
mods of the ClientApp, and :class:`PrivateMod` before it where privacy is promised.
"""

from importlib import import_module, util
from typing import TYPE_CHECKING, Any

from fedmuster.core.errors import MissingExtraError

if TYPE_CHECKING:
    from fedmuster.flower.muster import Muster
    from fedmuster.flower.muster_settings import EdgeGroups
    from fedmuster.flower.private_mod import PrivateMod
    from fedmuster.flower.reporting_mod import ReportingMod

__all__ = ["EdgeGroups", "Muster", "PrivateMod", "ReportingMod"]

if util.find_spec("flwr") is None:
    raise MissingExtraError("flwr", extra="flower", purpose="the adapter for Flower")

# Imported when asked for: in a deployment every message starts a process, which needs a mod only.
_MODULES = {
    "EdgeGroups": "muster_settings",
    "Muster": "muster",
    "PrivateMod": "private_mod",
    "ReportingMod": "reporting_mod",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
