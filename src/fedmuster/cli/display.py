"""What people see in the terminal: tables, progress bars."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from fedmuster.experiments import sweep
from fedmuster.experiments.journal import Standing
from fedmuster.federation import Horizon

console = Console()


def show_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], *, words: bool = False
) -> None:
    """Print a table; the columns after the first hold numbers, unless they hold ``words``."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for number, name in enumerate(header):
        table.add_column(name, justify="left" if words or number == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # not markup: labels are the user's
    console.print(table)


@contextmanager
def progress_bars(horizon: Horizon) -> Iterator[sweep.Progress]:
    """A progress bar for each policy, in rounds, or in seconds where runs end by time."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rounds" if horizon.seconds is None else "simulated seconds"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=not console.is_terminal) as bars:
        tasks = {}

        def update(standings: dict[Path, Standing]) -> None:
            sums: dict[str, tuple[float, float]] = {}
            for cell, run in standings.items():
                whole: float = horizon.rounds
                done: float = run.rounds
                if horizon.seconds is not None:
                    whole = horizon.seconds
                    done = min(run.elapsed_seconds, whole)
                if run.ending is not None:  # privacy ended it: there is no more to come
                    whole = done
                before = sums.get(cell.parent.name, (0.0, 0.0))
                sums[cell.parent.name] = before[0] + done, before[1] + whole
            for label, (completed, total) in sums.items():
                if label not in tasks:
                    tasks[label] = bars.add_task(escape(label), total=total)
                bars.update(tasks[label], completed=completed, total=total)

        yield update
