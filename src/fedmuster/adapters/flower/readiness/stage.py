"""Play one round of an app in this process, which :mod:`.rehearsal` starts for it.

The app's own main function runs, with its own ClientApp on every node; only the number of rounds,
the run's folder and the ledger are others.
"""

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from flwr.app import Context, Message, RecordDict, UserConfig
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.serverapp.strategy import Strategy
from flwr.supercore.object_ref import load_app

from fedmuster.adapters.flower.in_process import InProcessGrid, Node
from fedmuster.adapters.flower.metrics import signals_of
from fedmuster.adapters.flower.readiness.loading import explain
from fedmuster.adapters.flower.server.muster import Muster
from fedmuster.adapters.flower.wire import Question, Report
from fedmuster.core.errors import DataError, FedmusterError
from fedmuster.experiments.journal import JournalReader

_RUN: Final = "rehearsed"
_PREFIX: Final = "fedmuster: "


@dataclass(frozen=True, kw_only=True)
class Play:
    """What to play: the app, with how many nodes, and how they are configured."""

    folder: str
    serverapp: str
    clientapp: str
    nodes: int
    seconds: float
    run_config: UserConfig
    node_config: UserConfig


@dataclass(kw_only=True)
class Heard:
    """What a node did with a message."""

    node: int
    asked: str
    error: str = ""
    where: str = ""
    seconds: float = 0.0
    metrics: list[str] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)
    reported_seconds: float | None = None


@dataclass(kw_only=True)
class Played:
    """What happened."""

    problem: str = ""
    where: str = ""
    mustered: bool = False
    heard: list[Heard] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    chosen: list[str] = field(default_factory=list)
    completed: int = 0
    refused: int = 0


def play(what: Play) -> Played:
    """One round, in the current folder."""
    played = Played()
    logging.getLogger("flwr").addHandler(_Lines(played.log))
    folder = Path(what.folder)
    try:
        server_app = load_app(what.serverapp, AttributeError, folder)
        client_app = load_app(what.clientapp, AttributeError, folder)
        common: UserConfig = {"num-partitions": what.nodes, **what.node_config}
        nodes = [Node(101 + i, {"partition-id": i, **common}) for i in range(what.nodes)]
        listener = _listener(client_app, played.heard, folder)
        grid = InProcessGrid(listener, nodes, run_config=what.run_config)
        context = Context(
            run_id=grid.run.run_id,
            node_id=SUPERLINK_NODE_ID,
            node_config={},
            state=RecordDict(),
            run_config=dict(what.run_config),
        )
        with _one_round(played, seconds=what.seconds):
            server_app(grid=grid, context=context)
    except BaseException as problem:  # an app may also raise SystemExit
        played.problem, played.where = explain(problem, folder)
    _read_journal(played)
    return played


def _listener(
    app: Callable[[Message, Context], Message], heard: list[Heard], folder: Path
) -> Callable[[Message, Context], Message]:
    def listen(message: Message, context: Context) -> Message:
        asked = message.metadata.message_type
        if Question.of(message.content) is not None:
            asked = "who"
        entry = Heard(node=context.node_id, asked=asked)
        heard.append(entry)
        start = time.monotonic()
        try:
            reply = app(message, context)
        except Exception as problem:
            entry.error, entry.where = explain(problem, folder)
            raise
        entry.seconds = time.monotonic() - start
        if reply.has_error():
            entry.error = reply.error.reason or f"error {reply.error.code}"
        else:
            _note(entry, reply.content)
        return reply

    return listen


def _note(entry: Heard, content: RecordDict) -> None:
    for metrics in content.metric_records.values():
        entry.metrics += list(metrics)
        entry.signals += signals_of(metrics)
    try:
        report = Report.of(content)
    except DataError:
        return
    if report is not None:
        entry.reported_seconds = report.compute_seconds
        entry.signals += report.signals


@contextmanager
def _one_round(played: Played, *, seconds: float) -> Iterator[None]:
    """Every strategy's ``start`` plays one round, and a run is kept in the current folder."""
    with ExitStack() as patches:
        for kind in _with_own_start(Strategy):
            short = _shortened(kind.start, played, seconds)
            patches.enter_context(patch.object(kind, "start", short))
        yield


def _shortened(start: Callable[..., Any], played: Played, seconds: float) -> Callable[..., Any]:
    parameters = signature(start)

    @wraps(start)
    def one_round(self: Strategy, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self, Muster):
            played.mustered = True
            privacy = self.settings.privacy
            self.settings = replace(
                self.settings,
                folder=Path(_RUN).absolute(),
                privacy=None if privacy is None else replace(privacy, ledger=None),
                wait_seconds=min(self.settings.wait_seconds, seconds / 4),
            )
        bound = parameters.bind(self, *args, **kwargs)
        if "num_rounds" in parameters.parameters:
            bound.arguments["num_rounds"] = 1
        return start(*bound.args, **bound.kwargs)

    return one_round


def _with_own_start(kind: type[Any]) -> set[type[Any]]:
    found = {kind} if "start" in vars(kind) else set()
    return found.union(*map(_with_own_start, kind.__subclasses__()))


def _read_journal(played: Played) -> None:
    try:
        journal = JournalReader(Path(_RUN))
    except FedmusterError:
        return
    if len(journal):
        names = journal.clients.get("identity")
        cohort = journal.cohorts[0].tolist()
        played.chosen = [str(i) if names is None else str(names[i]) for i in cohort]
        played.completed = int(journal.columns["num_completed"][0])
        played.refused = int(journal.columns["num_refused"][0])


class _Lines(logging.Handler):
    """Keeps what fedmuster has to say."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it, if it is ours."""
        text = record.getMessage()
        if text.startswith(_PREFIX):
            self._lines.append(text.removeprefix(_PREFIX))


def main() -> None:
    """Play what ``argv[2]`` (JSON) says, and write what happened to ``argv[1]``."""
    output, what = sys.argv[1:]
    played = play(Play(**json.loads(what)))
    Path(output).write_text(json.dumps(asdict(played)), encoding="utf-8")


if __name__ == "__main__":
    main()
