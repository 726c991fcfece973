"""Runs a Flower app for :mod:`.app_check`, in a process of its own: held back first, then a round.

Held back, the ServerApp's main function runs with the run's config, but every ``start()`` of a
strategy only notes the strategy and returns the model that it was given. So Muster's own checks
judge the very objects that a run would use. In the rehearsal ``start()`` plays one round with the
app's ClientApp on every node; only the number of rounds, the run's folder and the ledger differ.
"""

import json
import logging
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial, wraps
from inspect import signature
from pathlib import Path
from statistics import median
from typing import Any, Final, TextIO
from unittest.mock import patch

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore.object_ref import load_app
from packaging.utils import canonicalize_name

from fedmuster.core.errors import ConfigError, DataError, FedmusterError
from fedmuster.experiments.journal import JournalReader
from fedmuster.experiments.shorthand import parse_policy
from fedmuster.flower.app_advice import OLDER_CLIENT, OLDER_SERVER, StartCall
from fedmuster.flower.app_check import Finding, Level, Play
from fedmuster.flower.in_process import InProcessGrid, Node
from fedmuster.flower.metric_names import signals_of
from fedmuster.flower.muster import Muster
from fedmuster.flower.muster_settings import check_strategy, least_nodes, nodes_to_evaluate
from fedmuster.flower.node_messages import Questions
from fedmuster.flower.private_mod import PrivateMod
from fedmuster.flower.reporting_mod import ReportingMod
from fedmuster.flower.strategy_loop import layers, setting_of
from fedmuster.flower.wire import Facts, Question, Report

_POLICY: Final = "bsfl"
_COHORT: Final = 4
_NODES: Final = 10
_MOST_STARTS: Final = 100
"""An app that starts strategies until it likes the result never likes one that nobody trained."""
_RUN: Final = "rehearsed"
_FEDMUSTER: Final = "fedmuster: "
_REPORTING: Final = (
    "from fedmuster.flower import ReportingMod\n\napp = ClientApp(mods=[ReportingMod()])"
)
_PRIVATE: Final = (
    "from fedmuster.flower import PrivateMod, ReportingMod\n\n"
    "app = ClientApp(mods=[PrivateMod(), ReportingMod()])"
)


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
        text = "ServerApp(server_fn=…) is Flower's older API: write a main that starts a strategy"
        tell("must change", "older API", text, write=OLDER_SERVER)
    if client_app._call is not None:
        text = "ClientApp(client_fn) is Flower's older API: write functions for messages"
        tell("must change", "older API", text, write=OLDER_CLIENT)
    if tell.must_change:
        return
    starts = Starts(play, tell)
    grid = WatchedGrid(client_app, _nodes(play, play.nodes or _NODES), play)
    with _in_place_of_start(partial(_held, starts=starts)):
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
        text, where = explain(problem, folder)
        text, write = f"{reference} cannot be imported: {text}", ""
        if isinstance(problem, ModuleNotFoundError) and problem.name is not None:
            package = canonicalize_name(problem.name.partition(".")[0])
            listed = play.requirements.get(package)
            write = f"pip install '{listed}'" if listed else f"pip install -e {folder}"
            text += f". It was imported with {sys.executable}"
            if listed is None:
                text += (
                    "; no dependency of that name is in the app's pyproject.toml: the line below "
                    "installs those that are"
                )
        tell("must change", which, text, where, write)
        return None
    if not isinstance(found, kind):
        text = f"{reference} is a {type(found).__name__}, expected a {kind.__name__}"
        tell("must change", which, text)
        return None
    tell("ok", which, f"{reference} is a {kind.__name__}")
    return found


def explain(problem: BaseException, folder: Path) -> tuple[str, str]:
    """An error in a line, and the last of the app's own lines that led to it."""
    if isinstance(problem, SyntaxError) and problem.filename:
        text = f"{type(problem).__name__}: {problem.msg}"
        frames = [(problem.filename, problem.lineno)]
    else:
        text = f"{type(problem).__name__}: {problem}".strip(": \n").partition("\n\n")[0]
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
    context = Context(
        run_id=grid.run.run_id,
        node_id=SUPERLINK_NODE_ID,
        node_config={},
        state=RecordDict(),
        run_config=dict(play.run_config),
    )
    try:
        app(grid=grid, context=context)
    except BaseException as problem:  # an app may also raise SystemExit
        return problem
    return None


class WatchedGrid(InProcessGrid):
    """Notes which line of the app sends messages itself, and plays none of its trainings."""

    def __init__(self, app: ClientApp, nodes: list[Node], play: Play) -> None:
        super().__init__(app, nodes, run_config=play.run_config)
        self._folder = Path(play.folder)
        self.sent_from = ""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages, but for trainings: the app has seen enough then."""
        sent = list(messages)
        where = _called_from(self._folder)
        self.sent_from = where or self.sent_from
        if where and any(message.metadata.message_type.startswith("train") for message in sent):
            raise _EnoughError
        return super().push_messages(sent)


@contextmanager
def _in_place_of_start(instead: Callable[..., Any]) -> Iterator[None]:
    """Let ``instead(start, strategy, …)`` run wherever an app calls ``strategy.start(…)``."""

    def replaced(start: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(start)
        def call(self: Strategy, *args: Any, **kwargs: Any) -> Any:
            bound = signature(start).bind(self, *args, **kwargs)
            return instead(start, self, bound)

        return call

    with ExitStack() as patches:
        for kind in _with_own_start(Strategy):
            patches.enter_context(patch.object(kind, "start", replaced(kind.start)))
        yield


def _with_own_start(kind: type[Any]) -> set[type[Any]]:
    found = {kind} if "start" in vars(kind) else set()
    return found.union(*map(_with_own_start, kind.__subclasses__()))


def _held(start: Callable[..., Any], strategy: Strategy, bound: Any, *, starts: "Starts") -> Result:
    starts.judge(strategy)
    return Result(arrays=bound.arguments.get("initial_arrays"))


class Starts:
    """Judges the strategies that an app starts.

    Args:
        play: the app.
        tell: takes findings.
    """

    def __init__(self, play: Play, tell: Told) -> None:
        self._play = play
        self._folder = Path(play.folder)
        self._tell = tell
        self._seen: list[Strategy] = []
        self._folders: dict[Path, Muster] = {}
        self._places: set[str] = set()
        self.nodes_needed = _COHORT

    @property
    def musters(self) -> list[Muster]:
        """The Musters that were started."""
        return [each for each in self._seen if isinstance(each, Muster)]

    def judge(self, strategy: Strategy) -> None:
        """Judge a strategy that is started, once."""
        if len(self._seen) >= _MOST_STARTS:
            raise _EnoughError
        if any(strategy is each for each in self._seen):
            return
        self._seen.append(strategy)
        where = _called_from(self._folder)
        inside = [layer for layer in layers(strategy) if isinstance(layer, Muster)]
        if isinstance(strategy, Muster):
            self._judge_muster(strategy, where)
        elif inside:
            name = type(strategy).__name__
            text = f"{name} is wrapped around Muster, which must be outermost"
            self._tell("must change", "Muster", text, where, f"Muster({name}(…), …)")
        elif setting_of(strategy, "fraction_train", 1.0) == 0:
            text = "what is started here only evaluates (fraction_train = 0), without Muster"
            self._tell("note", "Muster", text, where)
        elif where not in self._places:  # one line may start many
            self._judge_bare(strategy, where)
        self._places.add(where)

    def _judge_muster(self, muster: Muster, where: str) -> None:
        settings = muster.settings
        try:
            muster.check()
        except ConfigError as error:
            self._tell("must change", "Muster", str(error), where)
            return
        other = self._folders.setdefault(settings.folder, muster)
        if other is not muster:
            text = (
                f"another Muster of this app has the folder {settings.folder.name!r}: the second "
                "to start finds the rounds of the first on record, and trains nothing"
            )
            self._tell("must change", "folder", text, where, 'folder="…-2"')
        policy, count = settings.policy.name, settings.num_to_ask
        self._tell("ok", "Muster", f"{policy} chooses {count} nodes a round", where)
        self.nodes_needed = max(
            self.nodes_needed,
            count,
            settings.min_nodes or 0,
            least_nodes(muster.strategy),
            nodes_to_evaluate(muster.strategy, count),
        )
        nodes = self._play.nodes
        if nodes is not None and nodes <= count and settings.policy.cohort_rule != "everyone":
            text = f"the federation has {nodes} nodes, so all of them train in every round"
            self._tell("note", "cohort", text, where)
        if nodes is not None and nodes_to_evaluate(muster.strategy, nodes) > nodes:
            text = f"the strategy waits for more than {nodes} nodes to evaluate, so none does"
            self._tell("must change", "evaluation", text, where, "min_evaluate_nodes=1")
        if settings.deadline_seconds is None:
            text = (
                "without deadline_seconds a node that never answers holds up its round for the "
                "timeout of start (an hour by default)"
            )
            self._tell("note", "deadline", text, where, "Muster(…, deadline_seconds=60.0)")
        if settings.folder.is_relative_to(Path.cwd()):
            folder = settings.folder.relative_to(Path.cwd())
            text = (
                f"the run is kept in {str(folder)!r}, relative to where the SuperLink was started: "
                "from another place it would begin anew. An absolute path is safe"
            )
            self._tell("note", "folder", text, where)

    def _judge_bare(self, strategy: Strategy, where: str) -> None:
        call = StartCall.at(self._folder, where)
        cohort = self._cohort_size(strategy)
        count = sum(not isinstance(each, Muster) for each in self._seen)
        folder = f"runs/{self._play.name}" + (f"-{count}" if count > 1 else "")
        kind = type(strategy).__name__
        text = f"{kind} is started as it is, so Flower chooses at random. {call.place}"
        write = call.lines(f'policy="{_POLICY}", cohort_size={cohort}, folder="{folder}"')
        self._tell("must change", "Muster", text, where, write)
        self.nodes_needed = max(self.nodes_needed, cohort)
        try:
            policy = parse_policy(_POLICY)
            check_strategy(strategy, policy=policy, cohort_size=cohort, num_to_ask=cohort)
        except ConfigError as error:
            self._tell("must change", "strategy", f"Muster will refuse: {error}", where)

    def _cohort_size(self, strategy: Strategy) -> int:
        """As many nodes as the strategy itself would train."""
        sampled = setting_of(strategy, "num_sampled_clients", None)
        fraction = setting_of(strategy, "fraction_train", 1.0)
        least = max(getattr(layer, "min_train_nodes", 1) for layer in layers(strategy))
        if isinstance(sampled, int):
            return sampled
        if self._play.nodes is not None and fraction < 1:
            return max(int(fraction * self._play.nodes), least)
        return max(_COHORT, least)

    def judge_end(self, problem: BaseException | None, grid: WatchedGrid) -> None:
        """Judge how the main function ended, which may be for want of a trained model."""
        if isinstance(problem, FedmusterError):
            text, where = explain(problem, self._folder)
            self._tell("must change", "Muster", text.partition(": ")[2], where)
        elif not self._seen and isinstance(problem, _EnoughError):
            text = (
                "the app sends train messages itself and starts no strategy, and Muster wraps "
                "strategies: put the loop into a subclass of FedAvg (its configure_train and "
                "aggregate_train) and start that"
            )
            self._tell("must change", "Muster", text, grid.sent_from)
        elif not self._seen and problem is not None:
            text, where = explain(problem, self._folder)
            text = f"main stops before it starts a strategy: {text}{_hint(text)}"
            self._tell("must change", "serverapp", text, where)
        elif not self._seen:
            text = "with this run config, main starts no strategy of flwr.serverapp.strategy"
            older = ", ".join(_older_names(self._folder))
            if older:
                text += f"; it uses Flower's older API: {older}"
            self._tell("must change", "Muster", text, grid.sent_from, OLDER_SERVER)

    def judge_client(self, app: ClientApp, grid: InProcessGrid) -> None:
        """Judge the ClientApp by its mods, and by its answer to the question which client it is."""
        mods = {getattr(mod, "__name__", type(mod).__name__) for mod in app._mods}
        private = any(isinstance(mod, PrivateMod) for mod in app._mods)
        promised = any(muster.settings.privacy is not None for muster in self.musters)
        if promised and not private:
            text = "Muster promises privacy, and the ClientApp has no PrivateMod"
            self._tell("must change", "privacy", text, write=_PRIVATE)
        if private and self.musters and not promised:
            text = "the ClientApp has a PrivateMod, which sends nothing without a promise of Muster"
            self._tell("must change", "privacy", text, write="Muster(…, privacy=Privacy(…))")
        for strategy in self._seen:
            for layer in layers(strategy):
                wanted = _CLIPPING_MODS.get(type(layer).__name__)
                if wanted is not None and wanted not in mods:
                    text = f"{type(layer).__name__} needs {wanted} in the ClientApp's mods"
                    self._tell("must change", "mods", text)
        facts = _asked(grid)
        if facts is None:
            text = (
                "clients do not say who they are and how long they work: add ReportingMod as the "
                "first of the ClientApp's mods (after PrivateMod, if there is one)"
            )
            self._tell("note", "mods", text, write=_REPORTING)
        else:
            self._tell("ok", "mods", f"clients report their time; the first is {facts.client_id}")
        reporting = [mod for mod in app._mods if isinstance(mod, ReportingMod)]
        gains = [m.settings.policy.name for m in self.musters if m.settings.policy.wants_gain]
        if gains and not promised and not any(mod.measures_gain for mod in reporting):
            text = (
                f"{gains[0]} learns from how much accuracy training gains, and no evaluation is "
                "marked for measuring it: the policy makes do with losses"
            )
            self._tell("note", "gains", text, write=_GAINS)


def _older_names(folder: Path) -> list[str]:
    """Classes of Flower's older API in the app's modules."""
    own = [
        module
        for module in list(sys.modules.values())
        if Path(getattr(module, "__file__", None) or "/").is_relative_to(folder)
    ]
    kinds = {each for module in own for each in vars(module).values() if isinstance(each, type)}
    return sorted(
        f"{kind.__module__}.{kind.__name__}"
        for kind in kinds
        if kind.__module__.startswith(("flwr.server.", "flwr.compat."))
    )


_CLIPPING_MODS: Final = {
    "DifferentialPrivacyClientSideFixedClipping": "fixedclipping_mod",
    "DifferentialPrivacyClientSideAdaptiveClipping": "adaptiveclipping_mod",
}
_GAINS: Final = """\
reporting = ReportingMod()
app = ClientApp(mods=[reporting])

@app.evaluate()
@reporting.evaluates
def evaluate(message, context): …"""


def _asked(grid: InProcessGrid) -> Facts | None:
    """What the first node says of itself; None where its app has no ReportingMod."""
    questions = Questions()
    online = {info.node_id: info for info in list(grid.get_nodes())[:1]}
    (node,) = online
    while node not in questions.heard:
        questions.ask(grid, online)
        questions.collect(grid)
    return questions.heard[node]


@dataclass(kw_only=True)
class Heard:
    """What a node did with a message."""

    asked: str
    error: str = ""
    metrics: list[str] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)
    reported_seconds: float | None = None


def rehearse(
    server_app: ServerApp, client_app: ClientApp, play: Play, needed: int, tell: Told
) -> None:
    """Play one round, and tell what happened."""
    heard: list[Heard] = []
    lines: list[str] = []
    count = play.nodes or needed
    tell("ok", "rehearsal", f"a round with {count} nodes")
    listen = partial(_listen, app=client_app, heard=heard, folder=Path(play.folder), tell=tell)
    grid = InProcessGrid(listen, _nodes(play, count), run_config=play.run_config)
    handler = _Lines(lines)
    logging.getLogger("flwr").addHandler(handler)
    with _in_place_of_start(partial(_one_round, seconds=play.seconds)):
        problem = _main(server_app, grid, play)
    logging.getLogger("flwr").removeHandler(handler)
    trained = [entry for entry in heard if entry.asked == "train"]
    if problem is not None:
        text, where = explain(problem, Path(play.folder))
        tell("must change", "rehearsal", f"the ServerApp stopped: {text}{_hint(text)}", where)
    elif not trained:
        text = "the ServerApp ended and no node was asked to train"
        tell("must change", "rehearsal", text, write="\n".join(lines))
    _tell_choice(lines, tell)
    for what in ("train", "evaluate"):
        asked = [entry for entry in heard if entry.asked == what]
        for error, failed in Counter(entry.error for entry in asked if entry.error).items():
            tell("must change", what, f"{failed} of {len(asked)} nodes failed: {error}")
        if asked and all(not entry.error for entry in asked):
            tell("ok", what, f"{len(asked)} of {len(asked)} nodes answered")
    _tell_signals([entry for entry in trained if not entry.error], tell)


def _one_round(start: Callable[..., Any], strategy: Strategy, bound: Any, *, seconds: float) -> Any:
    """Start a strategy for one round, in a run folder within the current one."""
    if isinstance(strategy, Muster):
        settings = strategy.settings
        privacy = settings.privacy
        strategy.settings = replace(
            settings,
            folder=Path(_RUN).absolute() / settings.folder.name,
            privacy=None if privacy is None else replace(privacy, ledger=None),
            wait_seconds=min(settings.wait_seconds, seconds / 4),
        )
    if "num_rounds" in signature(start).parameters:
        bound.arguments["num_rounds"] = 1
    return start(*bound.args, **bound.kwargs)


def _listen(
    message: Message,
    context: Context,
    *,
    app: Callable[[Message, Context], Message],
    heard: list[Heard],
    folder: Path,
    tell: Told,
) -> Message:
    """Let the app answer, and note what it does."""
    asked = message.metadata.message_type.partition(".")[0]
    if Question.of(message.content) is not None:
        asked = "who"
    entry = Heard(asked=asked)
    heard.append(entry)
    start = time.monotonic()
    try:
        reply = app(message, context)
    except Exception as problem:
        entry.error, where = explain(problem, folder)
        if asked != "who":  # at once, for the rehearsal may be ended before its end
            frames = traceback.format_list(
                [f for f in traceback.extract_tb(problem.__traceback__) if _is_in(f, folder)]
            )
            trace = "".join(frames).rstrip()
            text = f"a node fails to {asked}: {entry.error}{_hint(entry.error)}"
            tell("must change", "client", text, where, trace)
        raise
    if reply.has_error():
        entry.error = reply.error.reason or f"error {reply.error.code}"
        return reply
    for metrics in reply.content.metric_records.values():
        entry.metrics += list(metrics)
        entry.signals += signals_of(metrics)
    try:
        report = Report.of(reply.content)
    except DataError:
        report = None
    if report is not None:
        entry.reported_seconds = min(report.compute_seconds, time.monotonic() - start)
        entry.signals += report.signals
    return reply


def _is_in(frame: traceback.FrameSummary, folder: Path) -> bool:
    return Path(frame.filename).is_relative_to(folder)


def _hint(error: str) -> str:
    if error.startswith("KeyError"):
        return "; what an app reads from node_config is given with --node-config"
    if error.startswith("FileNotFoundError"):
        return "; a rehearsal works in an empty folder: give absolute paths"
    return ""


def _tell_choice(lines: list[str], tell: Told) -> None:
    """Which clients were chosen, and how many of them completed, by the run's journal."""
    for folder in sorted(Path(_RUN).glob("*/")):
        try:
            journal = JournalReader(folder)
        except FedmusterError:
            continue
        if len(journal) == 0:
            continue
        chosen = [str(journal.clients["identity"][i]) for i in journal.cohorts[0].tolist()]
        completed = int(journal.columns["num_completed"][0])
        refused = int(journal.columns["num_refused"][0])
        shown = ", ".join(chosen[:10]) + ", …" * (len(chosen) > 10)
        text = (
            f"fedmuster chose {len(chosen)} ({shown}); {completed} completed, "
            f"{refused} were refused"
        )
        good = completed > 0 and refused == 0  # with over-selection not all can complete
        level: Level = "ok" if good else "note" if completed else "must change"
        tell(level, "choice", text, write="" if good else "\n".join(lines))


def _tell_signals(trained: list[Heard], tell: Told) -> None:
    if not trained:
        return
    names = sorted({name for entry in trained for name in entry.signals})
    if names:
        tell("ok", "signals", f"policies may learn from: latency, {', '.join(names)}")
    else:
        tell("note", "signals", "the app sends no metric: policies learn from latency alone")
    uneven = {tuple(sorted(entry.metrics)) for entry in trained}
    if len(uneven) > 1:
        shown = " / ".join(", ".join(keys) for keys in sorted(uneven))
        text = f"nodes send different metrics, which Flower's strategies refuse: {shown}"
        tell("must change", "signals", text)
    reported = [e.reported_seconds for e in trained if e.reported_seconds is not None]
    if reported:
        tell("ok", "latency", f"clients report their time: {median(reported):.3g} s in the middle")


class _Lines(logging.Handler):
    """Keeps what fedmuster logs."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line, if it is fedmuster's."""
        text = record.getMessage()
        if text.startswith(_FEDMUSTER):
            self._lines.append(text.removeprefix(_FEDMUSTER))


def main() -> None:
    """Run what standard input (JSON) says, and write findings to the file ``argv[1]``."""
    play = Play(**json.load(sys.stdin))
    with Path(sys.argv[1]).open("a", encoding="utf-8") as file:
        run(play, Told(file))
        print("end", file=file)


if __name__ == "__main__":
    main()
