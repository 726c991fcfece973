"""The command ``fedmuster explain``."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

if TYPE_CHECKING:
    from fedmuster.core.explaining import Moment
    from fedmuster.experiments.replay import Replayed
    from fedmuster.report.cells import Cell
    from fedmuster.report.explain import Explanation


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--round", "round_number", type=int, required=True, help="Which round: 1, 2, …")
@click.option("--client", help="A client's number, or its name in a federation.")
@click.option("--policy", help="Which policy's run, if RUN is an experiment.")
@click.option("--seed", type=int, help="The run of which seed, if RUN is an experiment.")
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="At most so many clients in each table.",
)
@click.option(
    "--from",
    "source",
    type=click.Choice(["journal", "replay"]),
    help="Read the journal, or play the run again [default: what is needed].",
)
def explain(
    folder: Path,
    round_number: int,
    client: str | None,
    policy: str | None,
    seed: int | None,
    rows: int,
    source: Literal["journal", "replay"] | None,
) -> None:
    """Show why a client was or was not chosen, term by term.

    RUN is the folder of a run, or of an experiment (then say which run by --policy and --seed). A
    simulation whose journal does not hold enough is played again up to that round, which takes as
    long as it took; the run itself is not touched.
    """
    from fedmuster.report.explain import explain as explained
    from fedmuster.report.explain import find_run

    cell = find_run(folder, policy=policy, seed=seed)
    moment = _moment(cell, round_number, client, source)
    number = None if client is None else moment.client(client)
    _show(explained(moment, client=number, rows=rows))


def _moment(
    cell: "Cell",
    round_number: int,
    client: str | None,
    source: Literal["journal", "replay"] | None,
) -> "Moment":
    from fedmuster.core.errors import ConfigError
    from fedmuster.report.explain import can_be_replayed, from_journal, from_replay, suffices

    written = from_journal(cell, round_number)
    if client is not None:
        written.client(client)  # before anything is played again for somebody who does not exist
    repeatable = can_be_replayed(cell)
    if source == "replay" and not repeatable:
        raise ConfigError(
            f"{cell.folder} is a real federation, which cannot be played again: leave --from out, "
            "its journal has what there is"
        )
    if source == "journal" or not repeatable or (source is None and suffices(written)):
        return written
    return from_replay(cell, round_number, _played_again(cell.folder, round_number))


def _played_again(folder: Path, round_number: int) -> "Replayed":
    import time

    from rich.progress import Progress

    from fedmuster.cli.display import console
    from fedmuster.experiments.replay import replay

    began = time.monotonic()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("playing the run again", total=round_number)
        replayed = replay(
            folder, round_number, progress=lambda done: bars.update(task, completed=done)
        )
    rounds = f"{round_number:,} round{'' if round_number == 1 else 's'}"
    console.print(
        f"Played {rounds} again in {time.monotonic() - began:.1f} s: the same cohorts as in the "
        "journal.",
        highlight=False,
    )
    return replayed


def _show(explanation: "Explanation") -> None:
    from fedmuster.cli.display import console, show_table

    for line in explanation.lines:
        console.print(line, highlight=False, markup=False)
    for table in explanation.tables:
        words = "what it is" in table.columns
        show_table(table.title, table.columns, table.rows, words=words)
    if explanation.verdict is not None:
        console.print(explanation.verdict, highlight=False, markup=False)
