"""What people see in the terminal: tables, progress."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fedmuster.core.records import Problem
from fedmuster.experiments import sweep
from fedmuster.experiments.journal import Standing
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Federation, Horizon

console = Console()

_LINE_SECONDS = 1.0
_LONGEST_SILENCE_SECONDS = 10.0
_LINE_SHARE = 0.1


def say(text: str) -> None:
    """Print a line that the terminal wraps: a path or command in it is not broken."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def tell(text: str) -> None:
    """Print a sentence, wrapped at words."""
    console.print(text, highlight=False, markup=False)


def show_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], *, words: bool = False
) -> None:
    """Print a table; the columns after the first hold numbers, unless they hold ``words``.

    Cells are wrapped between words and never inside one. A table that is too wide for that is
    printed row by row.
    """
    columns = list(zip(header, *rows, strict=True))
    least = [max(map(len, " ".join(column).split()), default=0) for column in columns]
    lacking = [max(map(len, column)) - width for column, width in zip(columns, least, strict=True)]
    spare = console.width - (sum(least) + 3 * len(columns) + 1)
    if spare < 0:
        _show_rows(title, header, rows)
        return
    # Rich would narrow columns below their longest word, and cut it.
    share = min(1.0, spare / max(sum(lacking), 1))
    widths = [width + int(share * more) for width, more in zip(least, lacking, strict=True)]
    table = Table(title=title, title_justify="left", header_style="bold")
    for number, (name, width) in enumerate(zip(header, widths, strict=True)):
        left = words or number == 0
        table.add_column(name, justify="left" if left else "right", width=width)
    for row in rows:
        table.add_row(*map(Text, row))  # not markup: labels are the user's
    console.print(table)


def _show_rows(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    tell(title)
    width = max(map(len, header))
    for row in rows:
        say(row[0])
        for name, cell in zip(header[1:], row[1:], strict=True):
            say(f"  {name:<{width}}  {cell}")


def counted_in(cells: Iterable[Experiment]) -> str:
    """What the ends of these runs are counted in: rounds; where one has none, aggregations."""
    return "rounds" if all(map(_in_rounds, cells)) else "aggregations"


def _in_rounds(cell: Experiment) -> bool:
    """Whether all policies of an experiment work in rounds; its world need not be started."""
    for label, policy in cell.policies.items():
        given = cell.federation_of(label) or Federation()
        slots: int = given.concurrency or getattr(cell.world, "cohort_size", None) or 1
        if not given.settled(policy, Problem(num_clients=slots, cohort_size=slots)).in_rounds:
            return False
    return True


def horizon_in_words(experiment: Experiment) -> str:
    """How long each run of an experiment is."""
    return str(experiment.horizon).replace("rounds", counted_in([experiment]))


@contextmanager
def progress_shown(horizon: Horizon, step: str = "rounds") -> Iterator[sweep.Progress]:
    """Show how far runs are: bars in a terminal, else a line on stderr now and then.

    Args:
        horizon: when each run is over.
        step: what is counted where runs do not end by time, see :func:`counted_in`.
    """
    unit = step if horizon.seconds is None else "simulated seconds"
    if not console.is_terminal:
        yield _Lines(horizon, unit)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        tasks = {}

        def update(standings: Mapping[Path, Standing]) -> None:
            for label, (completed, total) in _done_and_whole(horizon, standings).items():
                if label not in tasks:
                    tasks[label] = bars.add_task(escape(label), total=total)
                bars.update(tasks[label], completed=completed, total=total)

        yield update


class _Lines:
    """Progress for files and pipes, every tenth or ten seconds."""

    def __init__(
        self, horizon: Horizon, unit: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._horizon, self._unit = horizon, unit
        self._clock = clock
        self._began = self._told_at = clock()
        self._first: float | None = None
        self._told = 0.0

    def __call__(self, standings: Mapping[Path, Standing]) -> None:
        sums = _done_and_whole(self._horizon, standings).values()
        done, whole = (sum(column) for column in zip(*sums, strict=True))
        share = done / whole if whole else 1.0
        if self._first is None:
            self._first = self._told = share  # a resumed run has come so far before
        now = self._clock()
        silent = now - self._told_at
        due = share >= self._told + _LINE_SHARE or silent >= _LONGEST_SILENCE_SECONDS
        if not due or silent < _LINE_SECONDS:
            return
        seconds = now - self._began
        left = ""
        if share > self._first:
            rest = seconds * (1 - share) / (share - self._first)
            left = f", about {rest:,.0f} s left"
        sys.stderr.write(
            f"{share:4.0%} of {len(standings)} runs: {done:,.0f} of {whole:,.0f} "
            f"{self._unit} after {seconds:,.0f} s{left}\n"
        )
        sys.stderr.flush()
        self._told, self._told_at = share, now


def _done_and_whole(
    horizon: Horizon, standings: Mapping[Path, Standing]
) -> dict[str, tuple[float, float]]:
    """By policy, in rounds, or in seconds where runs end by time."""
    sums: dict[str, tuple[float, float]] = {}
    for cell, run in standings.items():
        whole: float = horizon.rounds
        done: float = run.rounds
        if horizon.seconds is not None:
            whole = horizon.seconds
            done = min(run.elapsed_seconds, whole)
        if run.ending is not None:  # the run ended before its horizon
            whole = done
        before = sums.get(cell.parent.name, (0.0, 0.0))
        sums[cell.parent.name] = before[0] + done, before[1] + whole
    return sums
