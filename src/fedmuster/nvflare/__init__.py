"""NVIDIA FLARE (nvflare): any policy in a running job, by changing a line or two.

On the server take :class:`MusterFedAvg` instead of FLARE's ``FedAvg`` (there are others), put
:class:`MusterController` before a workflow of your own, or call :func:`choose_clients` with a job
or recipe that is made already. Clients stay as they are.
"""

from importlib import import_module, util
from typing import TYPE_CHECKING, Any

from fedmuster.core.errors import MissingExtraError

if TYPE_CHECKING:
    from fedmuster.nvflare.controller import MusterController
    from fedmuster.nvflare.job_editing import choose_clients
    from fedmuster.nvflare.private_filter import PrivateFilter
    from fedmuster.nvflare.roundless import MusterFedBuff
    from fedmuster.nvflare.torch_workflows import MusterFedOpt, MusterPTFedAvg
    from fedmuster.nvflare.workflows import MusterFedAvg, MusterScaffold

__all__ = [
    "MusterController",
    "MusterFedAvg",
    "MusterFedBuff",
    "MusterFedOpt",
    "MusterPTFedAvg",
    "MusterScaffold",
    "PrivateFilter",
    "choose_clients",
]

if util.find_spec("nvflare") is None:
    raise MissingExtraError("nvflare", extra="nvflare", purpose="the adapter for NVIDIA FLARE")

# Imported when asked for: two of them need PyTorch.
_MODULES = {
    "MusterController": "controller",
    "MusterFedAvg": "workflows",
    "MusterFedBuff": "roundless",
    "MusterFedOpt": "torch_workflows",
    "MusterPTFedAvg": "torch_workflows",
    "MusterScaffold": "workflows",
    "PrivateFilter": "private_filter",
    "choose_clients": "job_editing",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
