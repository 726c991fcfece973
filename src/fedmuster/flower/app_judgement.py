"""Judges a Flower app by the objects that its main function makes, and says what to write."""

import ast
import json
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict
from inspect import BoundArguments
from pathlib import Path
from typing import Any, Final, TextIO

from flwr.app import Message
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import Result, Strategy

from fedmuster.core.errors import ConfigError, FedmusterError
from fedmuster.flower.app_check import Finding, Level, Play
from fedmuster.flower.in_process import InProcessGrid, Node
from fedmuster.flower.muster import Muster
from fedmuster.flower.muster_settings import check_strategy, least_nodes, nodes_to_evaluate
from fedmuster.flower.node_messages import Questions
from fedmuster.flower.private_mod import PrivateMod
from fedmuster.flower.strategy_loop import layers, setting_of
from fedmuster.policies import BSFL

_COHORT: Final = 4
_MOST_STARTS: Final = 100
"""An app that starts strategies until it likes the model never likes one that nobody trained."""
OLDER: Final = "is Flower's older API, which Muster does not speak: write"
START: Final = """\
strategy = Muster(FedAvg(), policy="bsfl", cohort_size=4, folder="runs/mine")
strategy.start(grid=grid, initial_arrays=arrays, num_rounds=10)"""
TRAIN: Final = """\
app = ClientApp(mods=[ReportingMod()])

@app.train()
def train(message: Message, context: Context) -> Message: …"""


class EnoughError(BaseException):
    """Ends the ServerApp's main function; no app catches it by accident."""


class Told:
    """Writes findings to a file as they are made: they outlive a process that is killed."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lines: set[str] = set()
        self.must_change = False

    def __call__(
        self, level: Level, about: str, text: str, where: str = "", write: str = ""
    ) -> None:
        """Write a finding, once."""
        finding = Finding(level=level, about=about, text=text, where=where, write=write)
        line = json.dumps(asdict(finding))
        self.must_change |= level == "must change"
        if line not in self._lines:
            self._lines.add(line)
            print(line, file=self._file, flush=True)


def explain(problem: BaseException, folder: Path) -> tuple[str, str]:
    """An error in a line, and the last of the app's own lines that led to it."""
    if isinstance(problem, SyntaxError) and problem.filename:
        return f"SyntaxError: {problem.msg}", _last_own(
            [(problem.filename, problem.lineno)], folder
        )
    text = f"{type(problem).__name__}: {problem}".strip(": \n").partition("\n\n")[0]
    if isinstance(problem, KeyError):
        text += "; what an app reads from node_config is given with --node-config"
    if isinstance(problem, FileNotFoundError):
        text += "; a rehearsal works in an empty folder: give absolute paths"
    frames = [(f.filename, f.lineno) for f in traceback.extract_tb(problem.__traceback__)]
    return text, _last_own(frames, folder)


def _last_own(frames: Iterable[tuple[str, int | None]], folder: Path) -> str:
    own = [(Path(file), line) for file, line in frames if Path(file).is_relative_to(folder)]
    return f"{own[-1][0].relative_to(folder)}:{own[-1][1]}" if own else ""


def _called_from(folder: Path) -> str:
    return _last_own([(f.filename, f.lineno) for f in traceback.extract_stack()], folder)


class WatchedGrid(InProcessGrid):
    """Notes which line of the app sends messages itself, and ends main where they are trainings."""

    def __init__(self, app: ClientApp, nodes: list[Node], play: Play) -> None:
        super().__init__(app, nodes, run_config=play.run_config)
        self._folder = Path(play.folder)
        self.sent_from = ""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages, but for trainings."""
        sent = list(messages)
        where = _called_from(self._folder)
        self.sent_from = where or self.sent_from
        if where and any(message.metadata.message_type.startswith("train") for message in sent):
            raise EnoughError
        return super().push_messages(sent)


class Starts:
    """Judges the strategies that an app starts, and the ClientApp beside them."""

    def __init__(self, play: Play, tell: Told) -> None:
        self._play = play
        self._folder = Path(play.folder)
        self._tell = tell
        self._seen: list[Strategy] = []
        self._bare: set[str] = set()
        self.nodes_needed = _COHORT

    def hold(
        self, start: Callable[..., Any], strategy: Strategy, arguments: BoundArguments
    ) -> Result:
        """Judge a strategy instead of starting it."""
        if len(self._seen) >= _MOST_STARTS:
            raise EnoughError
        if all(strategy is not each for each in self._seen):
            self._judge(strategy, _called_from(self._folder))
            self._seen.append(strategy)
        return Result(arrays=arguments.arguments["initial_arrays"])

    def _judge(self, strategy: Strategy, where: str) -> None:
        kind = type(strategy).__name__
        if isinstance(strategy, Muster):
            self._judge_muster(strategy, where)
        elif any(isinstance(layer, Muster) for layer in layers(strategy)):
            text = f"{kind} is wrapped around Muster, which must be outermost"
            self._tell("must change", "Muster", text, where, f"Muster({kind}(…), …)")
        elif setting_of(strategy, "fraction_train", 1.0) == 0:
            text = f"{kind} only evaluates (fraction_train = 0), and needs no Muster"
            self._tell("note", "Muster", text, where)
        elif where not in self._bare:  # a loop may start many at one line
            self._bare.add(where)
            self._judge_bare(strategy, where)

    def _judge_muster(self, muster: Muster, where: str) -> None:
        settings, inner = muster.settings, muster.strategy
        try:
            muster.check()
        except ConfigError as error:
            self._tell("must change", "Muster", str(error), where)
            return
        count, nodes = settings.num_to_ask, self._play.nodes
        text = f"{settings.policy.name} chooses {count} nodes a round"
        self._tell("ok", "Muster", text, where)
        if any(settings.folder == other.settings.folder for other in self._musters):
            text = (
                f"another Muster of this app has the folder {settings.folder.name!r}: the second "
                "to start finds the rounds of the first on record, and trains nothing"
            )
            self._tell("must change", "folder", text, where, 'folder="…-2"')
        least = max(settings.min_nodes or 0, least_nodes(inner), nodes_to_evaluate(inner, count))
        self.nodes_needed = max(self.nodes_needed, count, least)
        if nodes is not None and nodes <= count and settings.policy.cohort_rule != "everyone":
            text = f"the federation has {nodes} nodes, so all of them train in every round"
            self._tell("note", "cohort", text, where)
        if settings.deadline_seconds is None:
            text = "a node that never answers holds up its round for the timeout of start, an hour"
            self._tell("note", "deadline", text, where, "Muster(…, deadline_seconds=60.0)")
        if settings.folder.is_relative_to(Path.cwd()):
            text = (
                f"the run is kept in {str(settings.folder.relative_to(Path.cwd()))!r}, relative to "
                "where the SuperLink was started: an absolute path is safe"
            )
            self._tell("note", "folder", text, where)

    @property
    def _musters(self) -> list[Muster]:
        return [each for each in self._seen if isinstance(each, Muster)]

    def _judge_bare(self, strategy: Strategy, where: str) -> None:
        """Say what to write, and what Muster would refuse then."""
        nodes, cohort = self._play.nodes, setting_of(strategy, "num_sampled_clients", None)
        if cohort is None:  # as many nodes as the strategy itself would train
            fraction = setting_of(strategy, "fraction_train", 1.0)
            wanted = _COHORT if nodes is None or fraction >= 1 else int(fraction * nodes)
            cohort = max(wanted, setting_of(strategy, "min_train_nodes", 1))
        self.nodes_needed = max(self.nodes_needed, cohort)
        number = len(self._bare)
        folder = f"runs/{self._play.name}" + (f"-{number}" if number > 1 else "")
        settings = f'policy="bsfl", cohort_size={cohort}, folder="{folder}"'
        place, write = _lines_to_write(self._folder, where, settings)
        text = f"{type(strategy).__name__} is started as it is, so Flower chooses at random. "
        self._tell("must change", "Muster", text + place, where, write)
        try:
            check_strategy(strategy, policy=BSFL(), cohort_size=cohort, num_to_ask=cohort)
        except ConfigError as error:
            self._tell("must change", "strategy", f"Muster will refuse: {error}", where)

    def judge_end(self, problem: BaseException | None, grid: WatchedGrid) -> None:
        """Judge how main ended; after a held start it may be for want of a trained model."""
        if problem is None or isinstance(problem, EnoughError):
            text, where = "", grid.sent_from
        else:
            text, where = explain(problem, self._folder)
        if isinstance(problem, FedmusterError):
            self._tell("must change", "Muster", str(problem), where)
        elif self._seen:
            return
        elif isinstance(problem, EnoughError):
            text = (
                "the app sends train messages itself, and Muster wraps strategies: put the loop "
                "into configure_train and aggregate_train of a subclass of FedAvg, and start that"
            )
            self._tell("must change", "Muster", text, where)
        elif problem is not None:
            text = f"main stops before it starts a strategy: {text}"
            self._tell("must change", "serverapp", text, where)
        else:
            older = ", ".join(_older_names(self._folder))
            text = "with this run config main starts no strategy of flwr.serverapp.strategy"
            text += f"; {older} {OLDER}" if older else ""
            self._tell("must change", "Muster", text, where, START)

    def judge_client(self, app: ClientApp, grid: InProcessGrid) -> None:
        """Judge the ClientApp by its mods, and by its answer to the question which client it is."""
        private = any(isinstance(mod, PrivateMod) for mod in app._mods)
        promised = any(muster.settings.privacy is not None for muster in self._musters)
        if promised and not private:
            text = "Muster promises privacy, and the ClientApp has no PrivateMod"
            write = "app = ClientApp(mods=[PrivateMod(), ReportingMod()])"
            self._tell("must change", "privacy", text, write=write)
        if private and self._musters and not promised:
            text = "the ClientApp has a PrivateMod, which sends nothing without a promise of Muster"
            self._tell("must change", "privacy", text, write="Muster(…, privacy=Privacy(…))")
        questions, online = Questions(), {info.node_id: info for info in grid.get_nodes()}
        node = min(online)
        while node not in questions.heard:
            questions.ask(grid, {node: online[node]})
            questions.collect(grid)
        facts = questions.heard[node]
        if facts is None:
            text = (
                "clients do not say who they are and how long they work: add ReportingMod as the "
                "first of the ClientApp's mods (after PrivateMod, if there is one)"
            )
            write = "from fedmuster.flower import ReportingMod\n\n" + TRAIN.splitlines()[0]
            self._tell("note", "mods", text, write=write)
        else:
            self._tell("ok", "mods", f"clients report their time; the first is {facts.client_id}")


def _older_names(folder: Path) -> list[str]:
    """Classes of Flower's older API in the app's modules."""
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    own = [name for name, file in files.items() if file and Path(file).is_relative_to(folder)]
    values = [value for name in own for value in vars(sys.modules[name]).values()]
    kinds = {value for value in values if isinstance(value, type)}
    old = [kind for kind in kinds if kind.__module__.startswith(("flwr.server.", "flwr.compat."))]
    return sorted(f"{kind.__module__}.{kind.__name__}" for kind in old)


def _lines_to_write(folder: Path, where: str, settings: str) -> tuple[str, str]:
    """Where Muster belongs for the ``strategy.start(…)`` at ``file:line``, and its lines."""
    file, _, number = where.rpartition(":")
    tree = ast.parse((folder / file).read_text(encoding="utf-8")) if file else ast.Module([], [])
    started, name, place, indent = "strategy", "strategy", "Write above", 4
    parents = {inner: outer for outer in ast.walk(tree) for inner in ast.iter_child_nodes(outer)}
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr == "start" and call.lineno <= int(number) <= (call.end_lineno or 0):
            started = ast.unparse(call.func.value)
            name = started if isinstance(call.func.value, ast.Name | ast.Attribute) else name
            above = _statement(call, parents, name)
            place = f"Write the import at the top of {file}, the rest above line {above.lineno}"
            place += "" if name == started else f", and start {name} there"
            indent = above.col_offset
    muster = f"{' ' * indent}{name} = Muster({started}, {settings})"
    return place, f"from fedmuster.flower import Muster\n{muster}"


def _statement(call: ast.expr, parents: dict[ast.AST, ast.AST], name: str) -> ast.stmt:
    """The statement of a call, or the outermost loop around it that does not make the strategy."""
    node: ast.AST = call
    while not isinstance(node, ast.stmt):
        node = parents[node]
    found = node
    while not isinstance(node, ast.FunctionDef | ast.Module):
        node = parents[node]
        if isinstance(node, ast.For | ast.While):
            inside = (n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute))
            if name in {ast.unparse(n) for n in inside if isinstance(n.ctx, ast.Store)}:
                break
            found = node
    return found
