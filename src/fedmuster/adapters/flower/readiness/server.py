"""What an app's ServerApp builds and starts, for the rules to look at."""

import ast

from fedmuster.adapters.flower.readiness.project import Project
from fedmuster.adapters.flower.readiness.source import Module
from fedmuster.adapters.flower.readiness.strategies import Built, Strategies
from fedmuster.adapters.flower.readiness.values import Value
from fedmuster.core.arrays import ceil_of


class Server:
    """The ServerApp of an app, as far as reading goes."""

    def __init__(self, project: Project, strategies: Strategies, modules: list[Module]) -> None:
        self.project = project
        self.strategies = strategies
        self.modules = modules
        self.starts = strategies.starts(modules)
        started = [built for start in self.starts for built in strategies.built_by(start.receiver)]
        found = [layer for built in started for layer in strategies.layers(built)]
        # The latter override the former: following them also tells what functions were given.
        every = {
            (built.call.node, built.name): built
            for built in (*strategies.everywhere(modules), *found)
        }
        self.built = sorted(every.values(), key=lambda built: built.call.where)

    @property
    def musters(self) -> list[Built]:
        """Where Muster is made."""
        return [built for built in self.built if built.kind == "muster"]

    @property
    def current(self) -> list[Built]:
        """Where strategies of Flower's current API are made."""
        return [built for built in self.built if built.kind == "current"]

    @property
    def cohort_size(self) -> int | None:
        """Of Muster, where it is known."""
        for muster in self.musters:
            size = count(self.muster_setting(muster, "cohort_size"))
            if size is not None:
                return size
        return None

    @property
    def nodes_needed(self) -> int:
        """How many nodes a round takes, as far as reading tells."""
        names = ("min_train_nodes", "min_evaluate_nodes", "min_available_nodes")
        least = [self.strategies.setting(b, name)[0] for b in self.current for name in names]
        least += [self.muster_setting(muster, "min_nodes") for muster in self.musters]
        return max(self._num_to_ask, *(count(value) or 1 for value in least), 1)

    @property
    def _num_to_ask(self) -> int:
        """A cohort, and who is asked on top."""
        times = [self.muster_setting(muster, "over_selection").value for muster in self.musters]
        most = max((each for each in times if isinstance(each, int | float)), default=1.0)
        return ceil_of((self.cohort_size or 1) * most)

    @property
    def weight_key(self) -> str:
        """The metric by which the strategy weighs replies."""
        for built in self.current:
            value, _ = self.strategies.setting(built, "weighted_by_key")
            if isinstance(value.value, str):
                return value.value
        return "num-examples"

    def muster_setting(self, muster: Built, name: str) -> Value:
        """An argument of Muster; None where it is not given."""
        given = self.strategies.settings(muster).get(name)
        return Value(None) if given is None else self.strategies.values.value(given)

    def origin(self, value: Value) -> str:
        """In words, where a value comes from the run config."""
        if value.key is None:
            return ""
        return f" (run config {value.key!r}, {self.project.line_with(value.key)})"


def count(value: Value) -> int | None:
    """The value, where it is known and a whole number."""
    found = value.value
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def instead(value: Value, name: str, wanted: str) -> str:
    """What to write: in the source, or in the run config, where the value comes from there."""
    return f"{name}={wanted}" if value.key is None else f"{value.key} = {wanted}"


def shown(node: ast.expr) -> str:
    """The expression as it is written, more or less."""
    return ast.unparse(node)
