"""``fedmuster league``: policies compete in frozen settings, in a checkout of the repository."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from fedmuster.cli.claims import import_from_checkout
from fedmuster.cli.where import first_seed_option, interruptible, processes_option
from fedmuster.core.errors import DataError

if TYPE_CHECKING:
    from fedmuster.report.tables import Table

_FOLDER = click.Path(path_type=Path)
_LINE_SECONDS: Final = 10.0


@click.command()
@click.argument("names", nargs=-1, metavar="[POLICY]...")
@click.option("--quick", is_flag=True, help="Fewer settings, seeds and learning rates: minutes.")
@click.option("--out", type=_FOLDER, default=Path("runs/league"), show_default=True)
@click.option("--pages", type=_FOLDER, help="Folder for record, page and pictures [default: OUT].")
@click.option(
    "--seeds", type=click.IntRange(min=1), help="Judging seeds [default: 10; 3 with --quick]."
)
@first_seed_option
@click.option(
    "--verify",
    type=_FOLDER,
    help="Check the checksum of a record and compare its code with the code here. Run nothing.",
)
@click.option(
    "--rerun",
    type=click.IntRange(min=1),
    help="With --verify: play this number of random judging runs of the record again.",
)
@click.option(
    "--beside",
    type=click.Path(),
    help="An earlier record. Its unchanged contestants are copied into the new record instead of "
    "being run again.",
)
@processes_option
def league(
    names: tuple[str, ...],
    quick: bool,
    out: Path,
    pages: Path | None,
    seeds: int | None,
    first_seed: int,
    verify: Path | None,
    rerun: int | None,
    beside: str | None,
    processes: int | None,
) -> None:
    """Let policies compete in the league's frozen settings.

    A POLICY is a name with settings, for example oort, ./mine.py:Mine or bsfl:alpha=3. It works in
    rounds and without, unless federation=rounds or federation=round-less is among its settings.
    Without a name, every policy takes part. Random choice in rounds always does. Each contestant's
    learning rate is tuned on separate worlds and seeds. Finished runs are kept: the same command
    continues after an interruption, and runs only what is missing.
    """
    from fedmuster.cli.display import say

    command = import_from_checkout("claims.league.command")
    if verify is not None:
        _verify(verify, names, rerun, first_seed, processes)
        return
    if rerun is not None:
        raise click.UsageError("--rerun needs --verify RECORD")
    options = command.Options(
        names=names,
        quick=quick,
        first_seed=first_seed,
        seeds=seeds,
        processes=processes,
        folder=out,
        beside=beside,
    )
    with _progress_shown() as progress, interruptible("the same command"):
        record = command.play(options, progress, say)
    _show(command.short_tables(record))
    for path in import_from_checkout("claims.league.page").write_page(record, pages or out):
        say(f"wrote {path}")


def _verify(
    path: Path, names: tuple[str, ...], rerun: int | None, seed: int, processes: int | None
) -> None:
    """Check a record, and play some of its runs again."""
    from fedmuster.cli.display import say

    command = import_from_checkout("claims.league.command")
    record, differences = command.verify(path, names)
    _show(command.short_tables(record))
    for difference in differences:
        say(f"note: {difference}")
    say(f"{path}: the checksum is right, which proves only that the file was not edited")
    if rerun is None:
        return
    with _progress_shown() as progress, interruptible("the same command"):
        found, not_checked = command.rerun(
            record, names, count=rerun, seed=seed, processes=processes, progress=progress
        )
    for sentence in (*not_checked, *found):
        say(sentence)
    if found:
        raise DataError(f"{path}: {len(found)} numbers of the runs that were played again differ")
    say(f"{path}: all numbers of the runs that were played again are the same, bit for bit")


def _show(tables: "Sequence[Table]") -> None:
    from fedmuster.cli.display import show_table, tell

    for table in tables:
        show_table(table.title, table.columns, table.rows)
        for footnote in table.footnotes:
            tell(footnote)


@contextmanager
def _progress_shown() -> Iterator[Callable[[str, int, int], None]]:
    """Show how many runs are done: bars in a terminal, else a line on stderr now and then."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    from fedmuster.cli.display import console

    if not console.is_terminal:
        yield _Lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Remaining())
    with Progress(*columns, console=console) as bars:
        tasks = {}

        def update(what: str, done: int, whole: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=whole, completed=done)
            bars.update(tasks[what], completed=done, total=whole)

        yield update


class _Lines:
    """Progress for files and pipes."""

    def __init__(self) -> None:
        self._told_at = -_LINE_SECONDS

    def __call__(self, what: str, done: int, whole: int) -> None:
        now = time.monotonic()
        if now - self._told_at >= _LINE_SECONDS or done == whole:
            sys.stderr.write(f"{what}: {done:,} of {whole:,} runs\n")
            sys.stderr.flush()
            self._told_at = now
