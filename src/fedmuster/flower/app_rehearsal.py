"""Runs a Flower app for :mod:`.app_check`, in a process of its own: held back first, then a round.

Held back, the ServerApp's main function runs with the run's config, but every ``start()`` of a
strategy only notes the strategy and returns the model that it was given. So Muster's own checks
judge the very objects that a run would use. In the rehearsal ``start()`` plays one round with the
app's ClientApp on every node; only the number of rounds, the run's folder and the ledger differ.
"""

import json
import logging
import re
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial, wraps
from inspect import BoundArguments, signature
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import Strategy
from flwr.supercore.object_ref import load_app
from packaging.utils import canonicalize_name

from fedmuster.flower.app_check import Level, Play
from fedmuster.flower.app_judgement import OLDER, START, TRAIN, Starts, Told, WatchedGrid, explain
from fedmuster.flower.in_process import InProcessGrid, Node
from fedmuster.flower.muster import Muster
from fedmuster.flower.wire import Question, signals_of

_NODES: Final = 10
_RUN: Final = "rehearsed"
_FEDMUSTER: Final = "fedmuster: "


def run(play: Play, tell: Told) -> None:
    """Import the app, run it held back, and rehearse it where nothing must change."""
    server_app = _load(play, "serverapp", ServerApp, tell)
    client_app = _load(play, "clientapp", ClientApp, tell)
    if server_app is None or client_app is None:
        return
    if server_app._main is None:
        text = f"ServerApp(server_fn=…) {OLDER} a main function that starts a strategy"
        tell("must change", "older API", text, write=START)
    if client_app._call is not None:
        text = f"ClientApp(client_fn) {OLDER} functions for messages"
        tell("must change", "older API", text, write=TRAIN)
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
