"""Puts fedmuster's workflows into a job or recipe that FLARE, or somebody else, has made."""

from importlib import import_module
from typing import Any, Final

from nvflare.fuel.utils.class_utils import get_component_init_parameters

from fedmuster.core.errors import ConfigError

_TWINS: Final = {
    "nvflare.app_common.workflows.fedavg.FedAvg": "workflows.MusterFedAvg",
    "nvflare.app_common.workflows.scaffold.Scaffold": "workflows.MusterScaffold",
    "nvflare.app_opt.pt.fedavg.PTFedAvg": "torch_workflows.MusterPTFedAvg",
    "nvflare.app_opt.pt.fedopt_ctl.FedOpt": "torch_workflows.MusterFedOpt",
}
"""By FLARE's workflow, ours. By name, because some import PyTorch."""


def choose_clients(job: Any, **settings: Any) -> None:
    """Let fedmuster choose the clients of a job that is made already.

    Every FedAvg, Scaffold and FedOpt of the job is replaced by fedmuster's, with the same arguments
    and these settings::

        recipe = NumpyFedAvgRecipe(min_clients=2, num_rounds=20, …)
        choose_clients(recipe, num_clients=4, policy="tempo", folder="/data/runs/mine")
        recipe.execute(env)

    Args:
        job: a ``FedJob``, or a recipe.
        settings: of :class:`~fedmuster.nvflare.MusterController`, and what else shall change.
    """
    job = getattr(job, "_job", job)  # of a recipe
    server = getattr(job, "_deploy_map", {}).get("server")
    workflows = [] if server is None else server.app_config.workflows
    ours = 0
    for workflow in workflows:
        twin = _TWINS.get(_path(workflow.controller))
        if twin is not None:
            module, _, name = twin.partition(".")
            kind = getattr(import_module(f"fedmuster.nvflare.{module}"), name)
            workflow.controller = kind(**{**_arguments(workflow.controller), **settings})
            ours += 1
    if ours == 0:
        found = ", ".join(_path(workflow.controller) for workflow in workflows) or "none"
        raise ConfigError(
            f"choose_clients: the job's workflows are {found}, expected {', '.join(_TWINS)}: "
            "derive a class from MusterController and your workflow, and put that into the job"
        )
    job.set_app_packages(sorted({*job.job.app_packages, "fedmuster"}))


def _path(component: object) -> str:
    return f"{type(component).__module__}.{type(component).__qualname__}"


def _arguments(controller: object) -> dict[str, Any]:
    """The arguments that a workflow was made with, found as FLARE's Job API finds them."""
    kept, arguments = vars(controller), {}
    for name in get_component_init_parameters(controller):
        attribute = name if name in kept else f"_{name}"
        if name not in ("self", "args", "kwargs") and attribute in kept:
            arguments[name] = kept[attribute]
    return arguments
