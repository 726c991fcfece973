"""FLARE's workflows with the clients that fedmuster chooses."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.app_constant import AlgorithmConstants
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.app_common.workflows.scaffold import Scaffold

from fedmuster.nvflare.controller import MusterController
from fedmuster.nvflare.replies import parameters_fault


class MusterFedAvg(MusterController, FedAvg):
    """FLARE's ``FedAvg``; arguments as of :class:`MusterController` and of ``FedAvg``."""

    remembers: ClassVar[tuple[str, ...]] = (
        "num_fl_rounds_without_improvement",
        "best_target_metric_value",
    )

    def _get_aggregated_result(self) -> FLModel:
        """Get the aggregate; of no replies an empty one, which aggregators of users may lack."""
        if self._received_count == 0:
            return FLModel(params={})
        return super()._get_aggregated_result()


class MusterScaffold(MusterController, Scaffold):
    """FLARE's ``Scaffold``; arguments as of :class:`MusterController` and of ``Scaffold``."""

    remembers: ClassVar[tuple[str, ...]] = ("_global_ctrl_weights",)

    def reply_fault(self, reply: FLModel) -> str | None:
        """Refuse control terms that are missing or cannot be added."""
        difference = reply.meta.get(AlgorithmConstants.SCAFFOLD_CTRL_DIFF)
        if not isinstance(difference, Mapping):
            return "no control terms came with it"
        fault = parameters_fault(difference, self._global_ctrl_weights)
        return None if fault is None else f"control terms: {fault}"

    def aggregate(
        self, results: list[FLModel], aggregate_fn: Callable[[list[FLModel]], FLModel] | None = None
    ) -> FLModel:
        """Aggregate; without replies the control terms stay as they are."""
        aggregated = super().aggregate(results, aggregate_fn)
        aggregated.meta.setdefault(AlgorithmConstants.SCAFFOLD_CTRL_DIFF, {})
        return aggregated
