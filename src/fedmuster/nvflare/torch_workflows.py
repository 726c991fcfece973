"""FLARE's workflows for PyTorch with the clients that fedmuster chooses."""

from collections.abc import Mapping
from typing import Any

from nvflare.app_opt.pt.fedavg import PTFedAvg
from nvflare.app_opt.pt.fedopt_ctl import FedOpt

from fedmuster.nvflare.replies import numbers_of
from fedmuster.nvflare.workflows import MusterFedAvg


class MusterPTFedAvg(MusterFedAvg, PTFedAvg):
    """FLARE's ``PTFedAvg``; arguments as of :class:`MusterController` and of ``PTFedAvg``."""


class MusterFedOpt(MusterFedAvg, FedOpt):
    """FLARE's ``FedOpt``; arguments as of :class:`MusterController` and of ``FedOpt``.

    The server's optimizer and scheduler survive the server, with the model.
    """

    def workflow_state(self) -> Mapping[str, Any]:
        """Get the state of FedAvg, the server's optimizer and its scheduler."""
        state = dict(super().workflow_state())
        if self.optimizer is not None:
            state["optimizer"] = self.optimizer.state_dict()
        if self.lr_scheduler is not None:
            state["lr_scheduler"] = self.lr_scheduler.state_dict()
        return state

    def load_workflow_state(self, state: Mapping[str, Any]) -> None:
        """Load what :meth:`workflow_state` gave, and the model that the optimizer updates."""
        rest = dict(state)
        optimizer, scheduler = rest.pop("optimizer", None), rest.pop("lr_scheduler", None)
        super().load_workflow_state(rest)
        for name, tensor in self.torch_model.state_dict().items():
            if name in self._opened.model:
                tensor.copy_(tensor.new_tensor(numbers_of(self._opened.model[name])))
        if optimizer is not None:
            self.optimizer.load_state_dict(optimizer)
        if scheduler is not None and self.lr_scheduler is not None:
            self.lr_scheduler.load_state_dict(scheduler)
