"""Lines to write into an app: where a strategy is started, and in place of Flower's older API."""

import ast
from pathlib import Path
from typing import Final, NamedTuple

OLDER_SERVER: Final = """\
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from fedmuster.flower import Muster

app = ServerApp()

@app.main()
def main(grid: Grid, context: Context) -> None:
    arrays = ArrayRecord(model.state_dict())  # or ArrayRecord([numpy arrays])
    strategy = FedAvg()
    strategy = Muster(strategy, policy="bsfl", cohort_size=10, folder="runs/mine")
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=10)"""

OLDER_CLIENT: Final = """\
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from fedmuster.flower import ReportingMod

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


class StartCall(NamedTuple):
    """A call of ``strategy.start(…)`` in an app's source.

    ``receiver`` is the expression that is started, ``name`` the variable to write, ``line`` and
    ``indent`` where to write above; the line is 0 where the source cannot be read.
    """

    receiver: str = "strategy"
    name: str = "strategy"
    file: str = ""
    line: int = 0
    indent: int = 4

    @classmethod
    def at(cls, folder: Path, where: str) -> "StartCall":
        """The call at ``file:line`` of an app."""
        file, _, line = where.rpartition(":")
        try:
            tree = ast.parse((folder / file).read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError):
            return cls()
        parents = {
            inner: outer for outer in ast.walk(tree) for inner in ast.iter_child_nodes(outer)
        }
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr == "start" and node.lineno <= int(line) <= (node.end_lineno or 0):
                receiver = node.func.value
                named = isinstance(receiver, ast.Name | ast.Attribute)
                name = ast.unparse(receiver) if named else "strategy"
                above = _place(node, parents, name)
                return cls(ast.unparse(receiver), name, file, above.lineno, above.col_offset)
        return cls()

    @property
    def place(self) -> str:
        """Where the lines belong, as a sentence."""
        if not self.line:
            return "Write before it is started"
        then = "" if self.receiver == self.name else f", and call {self.name}.start(…) there"
        return f"Write the import at the top of {self.file}, the rest above line {self.line}{then}"

    def lines(self, settings: str) -> str:
        """The lines to write."""
        muster = f"{self.name} = Muster({self.receiver}, {settings})"
        return f"from fedmuster.flower import Muster\n{' ' * self.indent}{muster}"


def _place(call: ast.expr, parents: dict[ast.AST, ast.AST], name: str) -> ast.stmt:
    """The statement of a call, or the outermost loop around it that does not make the strategy."""
    node: ast.AST = call
    while not isinstance(node, ast.stmt):
        node = parents[node]
    place = node
    while not isinstance(node, ast.FunctionDef | ast.Module):
        node = parents[node]
        if isinstance(node, ast.For | ast.While):
            made = {ast.unparse(each) for each in ast.walk(node) if _is_stored(each)}
            if name in made:
                break
            place = node
    return place


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store)
