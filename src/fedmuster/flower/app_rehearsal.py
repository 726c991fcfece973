"""Runs a Flower app for :mod:`.app_check`, in a process of its own: held back first, then a round.

Held back, the ServerApp's main function runs with the run's config, but every ``start()`` of a
strategy only notes the strategy and returns the model that it was given. So Muster's own checks
judge the very objects that a run would use. In the rehearsal ``start()`` plays one round with the
app's ClientApp on every node; only the number of rounds, the run's folder and the ledger differ.
"""

import ast
import json
import logging
import re
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import partial, wraps
from inspect import BoundArguments, signature
from pathlib import Path
from typing import Any, Final, TextIO
from unittest.mock import patch

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore.object_ref import load_app
from packaging.utils import canonicalize_name

from fedmuster.core.errors import ConfigError, FedmusterError
from fedmuster.flower.app_check import Finding, Level, Play
from fedmuster.flower.in_process import InProcessGrid, Node
from fedmuster.flower.metric_names import signals_of
from fedmuster.flower.muster import Muster
from fedmuster.flower.muster_settings import check_strategy, least_nodes, nodes_to_evaluate
from fedmuster.flower.node_messages import Questions
from fedmuster.flower.private_mod import PrivateMod
from fedmuster.flower.strategy_loop import layers, setting_of
from fedmuster.flower.wire import Question
from fedmuster.policies import BSFL

_COHORT: Final = 4
_NODES: Final = 10
_MOST_STARTS: Final = 100
"""An app that starts strategies until it likes the model never likes one that nobody trained."""
_RUN: Final = "rehearsed"
_FEDMUSTER: Final = "fedmuster: "
_OLDER: Final = "is Flower's older API, which Muster does not speak: write"
_START: Final = """\
strategy = Muster(FedAvg(), policy="bsfl", cohort_size=4, folder="runs/mine")
strategy.start(grid=grid, initial_arrays=arrays, num_rounds=10)"""
_TRAIN: Final = """\
app = ClientApp(mods=[ReportingMod()])

@app.train()
def train(message: Message, context: Context) -> Message: …"""


class _EnoughError(BaseException):
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


def run(play: Play, tell: Told) -> None:
    """Import the app, run it held back, and rehearse it where nothing must change."""
    server_app = _load(play, "serverapp", ServerApp, tell)
    client_app = _load(play, "clientapp", ClientApp, tell)
    if server_app is None or client_app is None:
        return
    if server_app._main is None:
        text = f"ServerApp(server_fn=…) {_OLDER} a main function that starts a strategy"
        tell("must change", "older API", text, write=_START)
    if client_app._call is not None:
        text = f"ClientApp(client_fn) {_OLDER} functions for messages"
        tell("must change", "older API", text, write=_TRAIN)
    if tell.must_change:
        return
    starts = Starts(play, tell)
    grid = WatchedGrid(client_app, _nodes(play, play.nodes or _NODES), play)
    with _in_place_of_start(starts.hold):
        problem = _main(server_app, grid, play)
    starts.judge_end(problem, grid)
    starts.judge_client(client_app, grid)
    if play.rehearse and not tell.must_change:
        rehearse(server_app, client_app, play, starts.nodes_needed, tell)
    elif play.rehearse:
        tell("note", "rehearsal", "no round is played before that is changed")


def _load(play: Play, which: str, kind: type[Any], tell: Told) -> Any:
    """The component, where it can be imported and is one."""
    reference, folder = str(getattr(play, which)), Path(play.folder)
    try:
        found = load_app(reference, AttributeError, folder)
    except BaseException as problem:  # an app may also raise SystemExit
        why, where = explain(problem, folder)
        text, write = f"{reference} cannot be imported by {sys.executable}: {why}", ""
        if isinstance(problem, ModuleNotFoundError) and problem.name is not None:
            package = canonicalize_name(problem.name.partition(".")[0])
            if package in play.requirements:
                write = f"pip install '{play.requirements[package]}'"
            else:
                text += f"; {package} is not among the dependencies in the app's pyproject.toml"
                write = f"pip install -e {folder}"
        tell("must change", which, text, where, write)
        return None
    fits = isinstance(found, kind)
    text = f"{reference} is a {type(found).__name__}"
    text += "" if fits else f", expected a {kind.__name__}"
    tell("ok" if fits else "must change", which, text)
    return found if fits else None


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


def _nodes(play: Play, count: int) -> list[Node]:
    common = {"num-partitions": count, **play.node_config}
    return [Node(101 + i, {"partition-id": i, **common}) for i in range(count)]


def _main(app: ServerApp, grid: InProcessGrid, play: Play) -> BaseException | None:
    """Run the ServerApp in the current folder; what it raised."""
    run_config = dict(play.run_config)
    context = Context(grid.run.run_id, SUPERLINK_NODE_ID, {}, RecordDict(), run_config)
    try:
        app(grid=grid, context=context)
    except BaseException as problem:  # an app may also raise SystemExit
        return problem
    return None


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
            raise _EnoughError
        return super().push_messages(sent)


Instead = Callable[[Callable[..., Any], Strategy, BoundArguments], Any]


@contextmanager
def _in_place_of_start(instead: Instead) -> Iterator[None]:
    """Let ``instead(start, strategy, arguments)`` run wherever an app starts a strategy."""

    def replaced(start: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(start)
        def call(self: Strategy, *args: Any, **kwargs: Any) -> Any:
            return instead(start, self, signature(start).bind(self, *args, **kwargs))

        return call

    with ExitStack() as patches:
        for kind in _with_own_start(Strategy):
            patches.enter_context(patch.object(kind, "start", replaced(kind.start)))
        yield


def _with_own_start(kind: type[Any]) -> set[type[Any]]:
    found = {kind} if "start" in vars(kind) else set()
    return found.union(*map(_with_own_start, kind.__subclasses__()))


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
            raise _EnoughError
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
        if problem is None or isinstance(problem, _EnoughError):
            text, where = "", grid.sent_from
        else:
            text, where = explain(problem, self._folder)
        if isinstance(problem, FedmusterError):
            self._tell("must change", "Muster", str(problem), where)
        elif self._seen:
            return
        elif isinstance(problem, _EnoughError):
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
            text += f"; {older} {_OLDER}" if older else ""
            self._tell("must change", "Muster", text, where, _START)

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
            write = "from fedmuster.flower import ReportingMod\n\n" + _TRAIN.splitlines()[0]
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


def rehearse(
    server_app: ServerApp, client_app: ClientApp, play: Play, needed: int, tell: Told
) -> None:
    """Play one round, and tell what happened."""
    count = play.nodes or needed
    tell("ok", "rehearsal", f"a round with {count} nodes")
    clients = Clients(client_app, Path(play.folder), tell)
    grid = InProcessGrid(clients, _nodes(play, count), run_config=play.run_config)
    log = _FedmusterLines()
    logging.getLogger("flwr").addHandler(log)
    with _in_place_of_start(partial(_one_round, seconds=play.seconds)):
        problem = _main(server_app, grid, play)
    logging.getLogger("flwr").removeHandler(log)
    if problem is not None:
        text, where = explain(problem, Path(play.folder))
        tell("must change", "rehearsal", f"the ServerApp stopped: {text}", where)
    elif not clients.asked["train"]:
        text = "the ServerApp ended and no node was asked to train"
        tell("must change", "rehearsal", text, write="\n".join(log.lines))
    for chosen, answered in zip(log.of(_CHOSEN), log.of(_ANSWERED), strict=False):
        some, refused = answered[2] != "0", answered[3] != "0"
        level: Level = "note" if some else "must change"
        good = some and not refused  # with over-selection not all can answer
        write = "" if good else "\n".join(log.lines)
        tell("ok" if good else level, "choice", f"{chosen[1]}; {answered[1]}", write=write)
    for what, asked in clients.asked.items():
        for error, failed in clients.errors[what].items():
            tell("must change", what, f"{failed} of {asked} nodes failed: {error}")
        if not clients.errors[what]:
            tell("ok", what, f"{asked} of {asked} nodes answered")
    names = ", ".join(["latency", *sorted(clients.signals)])
    tell("ok", "signals", f"policies may learn from: {names}")


def _one_round(
    start: Callable[..., Any], strategy: Strategy, arguments: BoundArguments, *, seconds: float
) -> Any:
    """Start a strategy for one round, in a run folder within the current one."""
    if isinstance(strategy, Muster):
        settings, privacy = strategy.settings, strategy.settings.privacy
        strategy.settings = replace(
            settings,
            folder=Path(_RUN).absolute() / settings.folder.name,
            privacy=None if privacy is None else replace(privacy, ledger=None),
            wait_seconds=min(settings.wait_seconds, seconds / 4),
        )
    if "num_rounds" in signature(start).parameters:
        arguments.arguments["num_rounds"] = 1
    return start(*arguments.args, **arguments.kwargs)


class Clients:
    """The ClientApp of all nodes, and what it did with the messages of a rehearsal."""

    def __init__(self, app: ClientApp, folder: Path, tell: Told) -> None:
        self._app = app
        self._folder = folder
        self._tell = tell
        self.asked: Counter[str] = Counter()
        self.errors: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.signals: set[str] = set()

    def __call__(self, message: Message, context: Context) -> Message:
        """Let the app answer."""
        if Question.of(message.content) is not None:
            return self._app(message, context)
        asked = message.metadata.message_type.partition(".")[0]
        self.asked[asked] += 1
        try:
            reply = self._app(message, context)
        except Exception as problem:  # told at once: the rehearsal may be ended before its end
            error, where = explain(problem, self._folder)
            self.errors[asked][error] += 1
            frames = traceback.extract_tb(problem.__traceback__)
            own = [frame for frame in frames if Path(frame.filename).is_relative_to(self._folder)]
            trace = "".join(traceback.format_list(own)).rstrip()
            self._tell("must change", "client", f"a node fails to {asked}: {error}", where, trace)
            raise
        if reply.has_error():
            self.errors[asked][reply.error.reason or f"error {reply.error.code}"] += 1
        elif asked == "train":
            for metrics in reply.content.metric_records.values():
                self.signals |= signals_of(metrics).keys()
        return reply


_CHOSEN: Final = re.compile(r"round 1: (.* chose .*)")
_ANSWERED: Final = re.compile(r"round 1: ((\d+) answers, .* (\d+) refused, .*)")


class _FedmusterLines(logging.Handler):
    """Keeps what fedmuster logs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line, if it is fedmuster's."""
        text = record.getMessage()
        if text.startswith(_FEDMUSTER):
            self.lines.append(text.removeprefix(_FEDMUSTER))

    def of(self, pattern: re.Pattern[str]) -> list[re.Match[str]]:
        """The lines that match."""
        return [found for line in self.lines if (found := pattern.fullmatch(line)) is not None]


def main() -> None:
    """Run what standard input (JSON) says, and write findings to the file ``argv[1]``."""
    play = Play(**json.load(sys.stdin))
    with Path(sys.argv[1]).open("a", encoding="utf-8") as file:
        run(play, Told(file))
        print("end", file=file)


if __name__ == "__main__":
    main()
