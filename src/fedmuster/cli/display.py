"""What people see in the terminal: tables, progress bars."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from fedmuster.experiments import sweep

console = Console()


def show_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], *, words: bool = False
) -> None:
    """Print a table; the columns after the first hold numbers, unless they hold ``words``."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for number, name in enumerate(header):
        table.add_column(name, justify="left" if words or number == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


@contextmanager
def round_bars(rounds: int) -> Iterator[sweep.Progress]:
    """A progress bar for each policy, fed with the rounds done in each of its run folders."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rounds"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=not console.is_terminal) as bars:
        tasks = {}

        def update(done: dict[Path, int]) -> None:
            by_label: dict[str, list[int]] = {}
            for cell, number in done.items():
                by_label.setdefault(cell.parent.name, []).append(number)
            for label, numbers in by_label.items():
                if label not in tasks:
                    tasks[label] = bars.add_task(label, total=rounds * len(numbers))
                bars.update(tasks[label], completed=sum(numbers))

        yield update
