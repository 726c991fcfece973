"""Flower's older API, which fedmuster does not speak, and what it is called today."""

import ast
from collections.abc import Iterator
from typing import Final

from fedmuster.adapters.flower.readiness.findings import Finding
from fedmuster.adapters.flower.readiness.source import Module, Source
from fedmuster.adapters.flower.readiness.strategies import CURRENT, LEGACY

_SERVER: Final = """\
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from fedmuster.adapters.flower import Muster

app = ServerApp()

@app.main()
def main(grid: Grid, context: Context) -> None:
    arrays = ArrayRecord(model.state_dict())  # or ArrayRecord([numpy arrays])
    strategy = FedAvg()
    strategy = Muster(strategy, policy="bsfl", cohort_size=10, folder="runs/mine")
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=10)"""

_CLIENT: Final = """\
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from fedmuster.adapters.flower import ReportingMod

app = ClientApp(mods=[ReportingMod()])

@app.train()
def train(message: Message, context: Context) -> Message:
    state = message.content["arrays"].to_torch_state_dict()  # what fit() got as parameters
    …
    reply = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"train_loss": loss, "num-examples": len(data)}),
    }
    return Message(RecordDict(reply), reply_to=message)

@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    …
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(data)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)"""

_RENAMED: Final = (
    "fraction_fit is now fraction_train, min_fit_clients min_train_nodes, min_evaluate_clients "
    "min_evaluate_nodes, min_available_clients min_available_nodes; initial_parameters, "
    "evaluate_fn and on_fit_config_fn are now initial_arrays, evaluate_fn and train_config of start"
)

_NO_WORKFLOWS: Final = (
    "strategy.start(…), without workflows: secure aggregation (SecAgg+) has no place there yet"
)

_INSTEAD: Final = {
    "ServerApp(…) with arguments": ("a main function that starts a strategy", _SERVER),
    "ClientApp(client_fn)": ("functions for train and evaluate", _CLIENT),
    "flwr.server.start_server": (
        "a ServerApp with a main function, started by `flwr run`",
        _SERVER,
    ),
    "flwr.server.ServerAppComponents": ("a ServerApp with a main function", _SERVER),
    "flwr.server.ServerConfig": ("num_rounds of strategy.start(…)", ""),
    "flwr.server.LegacyContext": (_NO_WORKFLOWS, ""),
    "flwr.server.DefaultWorkflow": (_NO_WORKFLOWS, ""),
    "flwr.client.NumPyClient": ("functions for train and evaluate", _CLIENT),
    "flwr.client.Client": ("functions for train and evaluate", _CLIENT),
    "flwr.client.start_client": ("a ClientApp, started by a SuperNode", _CLIENT),
    "flwr.client.start_numpy_client": ("a ClientApp, started by a SuperNode", _CLIENT),
    "flwr.simulation.start_simulation": ("a ServerApp and a ClientApp, and `flwr run`", ""),
}


def check_legacy(source: Source, modules: list[Module]) -> Iterator[Finding]:
    """Say for each use of the older API what to write today; each example is shown once."""
    shown: set[str] = set()
    for module in modules:
        for node, name in _uses(source, module):
            today, example = _today(name)
            yield Finding(
                level="must change",
                about="older API",
                text=f"{name} belongs to Flower's older API; now it is {today}",
                where=module.at(node),
                write="" if example in shown else example,
            )
            shown.add(example)


def _today(name: str) -> tuple[str, str]:
    if name in _INSTEAD:
        return _INSTEAD[name]
    kind = name.rpartition(".")[2]
    return f"{CURRENT}.{kind}: {_RENAMED}", f"from {CURRENT} import {kind}"


def _uses(source: Source, module: Module) -> Iterator[tuple[ast.AST, str]]:
    """Calls of, and classes made from, what is old: an import alone may be for types."""
    for node in ast.walk(module.tree):
        used: list[ast.expr] = []
        if isinstance(node, ast.Call):
            used = [node.func]
            keywords = {keyword.arg for keyword in node.keywords}
            kind = (source.meaning(module, node.func) or "").rpartition(".")[2]
            if kind == "ServerApp" and (node.args or keywords):
                yield node, "ServerApp(…) with arguments"
            elif kind == "ClientApp" and (node.args or "client_fn" in keywords):
                yield node, "ClientApp(client_fn)"
        elif isinstance(node, ast.ClassDef):
            used = node.bases
        for expression in used:
            name = _public(source.meaning(module, expression) or "")
            is_class = name.rpartition(".")[2][:1].isupper()
            if name in _INSTEAD or (name.startswith(LEGACY + ".") and is_class):
                yield node, name


def _public(name: str) -> str:
    """``flwr.client.client.Client`` as ``flwr.client.Client``."""
    parts = name.split(".")
    short = ".".join((*parts[:2], parts[-1]))
    return short if short in _INSTEAD else name
