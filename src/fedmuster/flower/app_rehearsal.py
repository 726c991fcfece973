"""Runs a Flower app for :mod:`.app_check`, in a process of its own: held back first, then a round.

Held back, the ServerApp's main function runs with the run's config, but every ``start()`` of a
strategy only notes the strategy and returns the model that it was given. So Muster's own checks
judge the very objects that a run would use. In the rehearsal ``start()`` plays one round with the
app's ClientApp on every node; only the number of rounds, the run's folder and the ledger differ.
"""

import json
import re
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import wraps
from inspect import BoundArguments, signature
from logging import LogRecord
from pathlib import Path
from typing import Any, Final, TextIO
from unittest.mock import patch

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.common.logger import FLOWER_LOGGER
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore.object_ref import load_app
from packaging.utils import canonicalize_name

from fedmuster.core.errors import ConfigError, FedmusterError
from fedmuster.flower.app_check import (
    Finding,
    Level,
    Play,
    explain,
    last_own,
    lines_to_write,
    older_names,
    own_frames,
)
from fedmuster.flower.app_privacy import judge_privacy, note_elsewhere
from fedmuster.flower.in_process import InProcessGrid, Node
from fedmuster.flower.muster import Muster
from fedmuster.flower.muster_settings import check_strategy, least_nodes, nodes_to_evaluate
from fedmuster.flower.node_messages import Questions
from fedmuster.flower.private_mod import PrivateMod
from fedmuster.flower.strategy_loop import layers, setting_of
from fedmuster.flower.wire import Question, signals_of
from fedmuster.policies import BSFL

_COHORT: Final = 4
_NODES: Final = 10
_MOST_STARTS: Final = 100
"""An app that starts strategies until it likes the model never likes one that nobody trained."""
_CHOSEN: Final = re.compile(r"fedmuster: round 1: (.* chose .*)")
_ANSWERED: Final = re.compile(r"fedmuster: round 1: ((\d+) answers, .* (\d+) refused, .*)")
_OLDER: Final = "is Flower's older API, which Muster does not speak: write"
_START: Final = """\
strategy = Muster(FedAvg(), policy="bsfl", cohort_size=4, folder="runs/mine")
strategy.start(grid=grid, initial_arrays=arrays, num_rounds=10)"""
_MODS: Final = "app = ClientApp(mods=[ReportingMod()])"
_TRAIN: Final = f"""\
{_MODS}

@app.train()
def train(message: Message, context: Context) -> Message: …"""


class EnoughError(BaseException):
    """Ends the ServerApp's main function; no app catches it by accident."""


class AppRun:
    """Runs the app that ``play`` names, and writes findings to a file as they are made."""

    def __init__(self, play: Play, output: TextIO) -> None:
        self._play = play
        self._folder = Path(play.folder)
        self._output = output
        self._told: set[Finding] = set()
        self._started: list[Strategy] = []
        self._bare: set[str] = set()
        self._nodes_needed = _COHORT

    def _tell(self, level: Level, about: str, text: str, where: str = "", write: str = "") -> None:
        """Write a finding, once; it outlives a process that is killed."""
        finding = Finding(level, about, text, where, write)
        if finding not in self._told:
            self._told.add(finding)
            print(json.dumps(finding), file=self._output, flush=True)

    @property
    def _must_change(self) -> bool:
        return any(finding.level == "must change" for finding in self._told)

    def run(self) -> None:
        """Import the app, run it held back, and rehearse it where nothing must change."""
        server_app = self._load("serverapp", ServerApp)
        client_app = self._load("clientapp", ClientApp)
        if server_app is None or client_app is None:
            return
        if server_app._main is None:
            text = f"ServerApp(server_fn=…) {_OLDER} a main function that starts a strategy"
            self._tell("must change", "older API", text, write=_START)
        if client_app._call is not None:
            text = f"ClientApp(client_fn) {_OLDER} functions for messages"
            self._tell("must change", "older API", text, write=_TRAIN)
        if self._must_change:
            return
        grid = _WatchedGrid(client_app, self._nodes(self._play.nodes or _NODES), self._play)
        with _in_place_of_start(self._hold):
            problem = self._main(server_app, grid)
        self._judge_end(problem, grid.sent_from)
        self._judge_client(client_app, grid)
        if self._play.rehearse and not self._must_change:
            self._rehearse(server_app, client_app)
        elif self._play.rehearse:
            self._tell("note", "rehearsal", "no round is played before that is changed")

    def _load(self, which: str, kind: type[Any]) -> Any:
        """The component, where it can be imported and is one."""
        reference = str(getattr(self._play, which))
        try:
            found = load_app(reference, AttributeError, self._folder)
        except BaseException as problem:  # an app may also raise SystemExit
            why, where = explain(problem, self._folder)
            text, write = f"{reference} cannot be imported by {sys.executable}: {why}", ""
            if isinstance(problem, ModuleNotFoundError) and problem.name is not None:
                package = canonicalize_name(problem.name.partition(".")[0])
                if package in self._play.requirements:
                    write = f"pip install '{self._play.requirements[package]}'"
                elif package == canonicalize_name(reference.partition(":")[0].partition(".")[0]):
                    text += f"; the app's folder has no package {problem.name}"
                else:  # a package of that name may be a stranger's
                    text += f"; {package} is not among the dependencies in the app's pyproject.toml"
                    write = f'dependencies = [..., "{package}"]\npip install -e {self._folder}'
            self._tell("must change", which, text, where, write)
            return None
        text = f"{reference} is a {type(found).__name__}"
        if not isinstance(found, kind):
            self._tell("must change", which, f"{text}, expected a {kind.__name__}")
            return None
        self._tell("ok", which, text)
        return found

    def _nodes(self, count: int) -> list[Node]:
        common = {"num-partitions": count, **self._play.node_config}
        return [Node(101 + i, {"partition-id": i, **common}) for i in range(count)]

    def _main(self, app: ServerApp, grid: InProcessGrid) -> BaseException | None:
        """Run the ServerApp in the current folder; what it raised."""
        config = dict(self._play.run_config)
        context = Context(grid.run.run_id, SUPERLINK_NODE_ID, {}, RecordDict(), config)
        try:
            app(grid=grid, context=context)
        except BaseException as problem:  # an app may also raise SystemExit
            return problem
        return None

    def _hold(self, start: Callable[..., Any], strategy: Strategy, given: BoundArguments) -> Result:
        """Judge a strategy instead of starting it."""
        if len(self._started) >= _MOST_STARTS:
            raise EnoughError
        if all(strategy is not each for each in self._started):
            self._judge(strategy, last_own(traceback.extract_stack(), self._folder))
            self._started.append(strategy)
        return Result(arrays=given.arguments["initial_arrays"])

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
        count, nodes, folder = settings.num_to_ask, self._play.nodes, settings.folder
        text = f"{settings.policy.name} chooses {count} nodes a round"
        self._tell("ok", "Muster", text, where)
        if any(folder == other.settings.folder for other in self._musters):
            text = (
                f"another Muster of this app has the folder {folder.name!r}: the second to start "
                "finds the rounds of the first on record, and trains nothing"
            )
            self._tell("must change", "folder", text, where, 'folder="…-2"')
        least = max(settings.min_nodes or 0, least_nodes(inner), nodes_to_evaluate(inner, count))
        self._nodes_needed = max(self._nodes_needed, count, least)
        if nodes is not None and nodes <= count and settings.policy.cohort_rule != "everyone":
            text = f"the federation has {nodes} nodes, so all of them train in every round"
            self._tell("note", "cohort", text, where)
        if settings.deadline_seconds is None:
            text = "a node that never answers holds up its round for the timeout of start, an hour"
            self._tell("note", "deadline", text, where, "Muster(…, deadline_seconds=60.0)")
        if folder.is_relative_to(Path.cwd()):
            text = (
                f"the run is kept in {str(folder.relative_to(Path.cwd()))!r}, relative to where "
                "the SuperLink was started: an absolute path is safe"
            )
            self._tell("note", "folder", text, where)

    @property
    def _musters(self) -> list[Muster]:
        return [each for each in self._started if isinstance(each, Muster)]

    def _judge_bare(self, strategy: Strategy, where: str) -> None:
        """Say what to write, and what Muster would refuse then."""
        nodes, cohort = self._play.nodes, setting_of(strategy, "num_sampled_clients", None)
        if cohort is None:  # as many nodes as the strategy itself would train
            fraction = setting_of(strategy, "fraction_train", 1.0)
            wanted = _COHORT if nodes is None or fraction >= 1 else int(fraction * nodes)
            cohort = max(wanted, setting_of(strategy, "min_train_nodes", 1))
        number = len(self._bare)
        folder = f"runs/{self._play.name}" + (f"-{number}" if number > 1 else "")
        settings = f'policy="bsfl", cohort_size={cohort}, folder="{folder}"'
        place, write = lines_to_write(self._folder, where, settings)
        text = f"{type(strategy).__name__} is started as it is, so Flower chooses at random. "
        self._tell("must change", "Muster", text + place, where, write)
        try:
            check_strategy(strategy, policy=BSFL(), cohort_size=cohort, num_to_ask=cohort)
        except ConfigError as error:
            self._tell("must change", "strategy", f"Muster will refuse: {error}", where)

    def _judge_end(self, problem: BaseException | None, sent_from: str) -> None:
        """Judge how main ended; after a held start it may be for want of a trained model."""
        if isinstance(problem, FedmusterError):
            where = explain(problem, self._folder)[1]
            self._tell("must change", "Muster", str(problem), where)
        elif self._started:
            return
        elif isinstance(problem, EnoughError):
            text = (
                "the app sends train messages itself, and Muster wraps strategies: put the loop "
                "into configure_train and aggregate_train of a subclass of FedAvg, and start that"
            )
            self._tell("must change", "Muster", text, sent_from)
        elif problem is not None:
            text, where = explain(problem, self._folder)
            text = f"main stops before it starts a strategy: {text}"
            self._tell("must change", "serverapp", text, where)
        else:
            older = ", ".join(older_names(self._folder))
            text = "with this run config main starts no strategy of flwr.serverapp.strategy"
            text += f"; {older} {_OLDER}" if older else ""
            self._tell("must change", "Muster", text, sent_from, _START)

    def _judge_client(self, app: ClientApp, grid: InProcessGrid) -> None:
        """Judge the ClientApp by its mods, and by its answer to the question which client it is."""
        mods = _private_mods(app)
        for finding in judge_privacy(self._musters, mods, self._play.node_config):
            self._tell(*finding)
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
            write = f"from fedmuster.flower import ReportingMod\n\n{_MODS}"
            self._tell("note", "mods", text, write=write)
        else:
            self._tell("ok", "mods", f"clients report their time; the first is {facts.client_id}")

    def _rehearse(self, server_app: ServerApp, client_app: ClientApp) -> None:
        """Play one round, and tell what happened."""
        asked: Counter[str] = Counter()
        errors: defaultdict[str, Counter[str]] = defaultdict(Counter)
        signals: set[str] = set()
        logged: list[str] = []

        def client(message: Message, context: Context) -> Message:
            if Question.of(message.content) is not None:
                return client_app(message, context)
            kind = message.metadata.message_type.partition(".")[0]
            asked[kind] += 1
            try:
                reply = client_app(message, context)
            except Exception as problem:  # told at once: the rehearsal may be ended before its end
                error, where = explain(problem, self._folder)
                errors[kind][error] += 1
                frames = own_frames(traceback.extract_tb(problem.__traceback__), self._folder)
                trace = "".join(traceback.format_list(frames)).rstrip()
                text = f"a node fails to {kind}: {error}"
                self._tell("must change", "client", text, where, trace)
                raise
            if reply.has_error():
                errors[kind][reply.error.reason or f"error {reply.error.code}"] += 1
            elif kind == "train":
                signals.update(*map(signals_of, reply.content.metric_records.values()))
            return reply

        def keep(line: LogRecord) -> bool:
            logged.append(line.getMessage())
            return True

        count = self._play.nodes or self._nodes_needed
        self._tell("ok", "rehearsal", f"a round with {count} nodes")
        nodes = self._nodes(count)
        note_elsewhere(nodes, _private_mods(client_app), Path.cwd())
        grid = InProcessGrid(client, nodes, run_config=self._play.run_config)
        FLOWER_LOGGER.addFilter(keep)
        with _in_place_of_start(self._one_round):
            problem = self._main(server_app, grid)
        FLOWER_LOGGER.removeFilter(keep)
        ours = [line for line in logged if line.startswith("fedmuster: ")]
        if problem is not None:
            text, where = explain(problem, self._folder)
            self._tell("must change", "rehearsal", f"the ServerApp stopped: {text}", where)
        elif not asked["train"]:
            text = "the ServerApp ended and no node was asked to train"
            self._tell("must change", "rehearsal", text, write="\n".join(ours))
        chosen, closed = (filter(None, map(p.fullmatch, ours)) for p in (_CHOSEN, _ANSWERED))
        for choice, answered in zip(chosen, closed, strict=False):
            text, write = f"{choice[1]}; {answered[1]}", "\n".join(ours)
            if answered[2] == "0":
                self._tell("must change", "choice", text, write=write)
            elif answered[3] != "0":
                self._tell("note", "choice", text, write=write)
            else:  # with over-selection not all can answer
                self._tell("ok", "choice", text)
        for kind, times in asked.items():
            for error, failed in errors[kind].items():
                self._tell("must change", kind, f"{failed} of {times} nodes failed: {error}")
            if not errors[kind]:
                self._tell("ok", kind, f"{times} of {times} nodes answered")
        names = ", ".join(["latency", *sorted(signals)])
        self._tell("ok", "signals", f"policies may learn from: {names}")

    def _one_round(
        self, start: Callable[..., Any], strategy: Strategy, given: BoundArguments
    ) -> Any:
        """Start a strategy for one round, in a run folder within the current one."""
        if isinstance(strategy, Muster):
            settings, privacy = strategy.settings, strategy.settings.privacy
            strategy.settings = replace(
                settings,
                folder=Path("rehearsed").absolute() / settings.folder.name,
                privacy=None if privacy is None else replace(privacy, ledger=None),
                wait_seconds=min(settings.wait_seconds, self._play.seconds / 4),
            )
        if "num_rounds" in signature(start).parameters:
            given.arguments["num_rounds"] = 1
        return start(*given.args, **given.kwargs)


def _private_mods(app: ClientApp) -> list[PrivateMod]:
    return [mod for mod in app._mods if isinstance(mod, PrivateMod)]


class _WatchedGrid(InProcessGrid):
    """Notes which line of the app sends messages itself, and ends main where they are trainings."""

    def __init__(self, app: ClientApp, nodes: list[Node], play: Play) -> None:
        super().__init__(app, nodes, run_config=play.run_config)
        self._folder = Path(play.folder)
        self.sent_from = ""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages, but for trainings."""
        sent = list(messages)
        where = last_own(traceback.extract_stack(), self._folder)
        self.sent_from = where or self.sent_from
        if where and any(message.metadata.message_type.startswith("train") for message in sent):
            raise EnoughError
        return super().push_messages(sent)


@contextmanager
def _in_place_of_start(
    instead: Callable[[Callable[..., Any], Strategy, BoundArguments], Any],
) -> Iterator[None]:
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


def main() -> None:
    """Run what standard input (JSON) says, and write findings to the file ``argv[1]``."""
    with Path(sys.argv[1]).open("a", encoding="utf-8") as file:
        AppRun(Play(*json.load(sys.stdin)), file).run()
        print("end", file=file)


if __name__ == "__main__":
    main()
