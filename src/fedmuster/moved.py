"""Import paths of version 0.1, which lead to the new ones for a release, with a warning."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

_MOVED: Final = {
    "adapters": "",
    "adapters.flower": "flower",
    "estimators": "",
    "estimators.mean": "bandits.means",
    "learning": "",
    "learning.aggregation": "training.aggregation",
    "learning.data": "training.data",
    "learning.federate": "training.training",
    "learning.local": "training.local_sgd",
    "learning.models": "training.models",
    "learning.networks": "training.networks",
    "learning.partition": "training.partition",
    "learning.records": "training.training_records",
    "learning.torch_engine": "training.engines.torch_engine",
    "learning.trainer": "training.trainer",
    "learning.training": "training.training",
    "objectives": "",
    "objectives.edge_utility": "bandits.utility",
    "objectives.reward": "bandits.rewards",
    "privacy.mechanism": "privacy.mechanisms",
    "privacy.schedule": "privacy.schedules",
    "regret": "federation.regret",
    "simulation": "federation",
}


class MovedModules(MetaPathFinder, Loader):
    """Finds modules by their old names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module that stands for its successor."""
        if fullname.removeprefix("fedmuster.") not in _MOVED:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        """Look everything up in the new module; warn where there is something to look up."""
        new = _MOVED[module.__name__.removeprefix("fedmuster.")]

        def look_up(name: str) -> Any:
            return getattr(import_module(f"fedmuster.{new}"), name)

        if new:
            module.__dict__["__getattr__"] = look_up
            warnings.warn(
                f"{module.__name__} is now fedmuster.{new}; the old path goes in the next release",
                DeprecationWarning,
                stacklevel=2,
            )


sys.meta_path.append(MovedModules())
