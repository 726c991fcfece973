"""The command ``fedmuster explain``."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

if TYPE_CHECKING:
    from fedmuster.core.explaining import Moment
    from fedmuster.experiments.replay import Replayed
    from fedmuster.report.cells import Cell
    from fedmuster.report.explain import Explanation
    from fedmuster.report.points import Point


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--round",
    "round_number",
    type=int,
    help="Which round: 1, 2, …; without rounds, the last decision before that aggregation.",
)
@click.option(
    "--time", "time_seconds", type=float, help="The last decision at or before this second."
)
@click.option("--client", help="A client's number, or its name in a federation.")
@click.option("--policy", help="Which policy's run, if RUN is an experiment.")
@click.option("--seed", type=int, help="The run of which seed, if RUN is an experiment.")
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="At most this many clients in each table.",
)
@click.option(
    "--from",
    "source",
    type=click.Choice(["journal", "replay"]),
    help="Read the journal, or play the run again [default: what is needed].",
)
@click.option(
    "--trust", is_flag=True, help="Import the code that the run names, without asking: it is mine."
)
def explain(
    folder: Path,
    round_number: int | None,
    time_seconds: float | None,
    client: str | None,
    policy: str | None,
    seed: int | None,
    rows: int,
    source: Literal["journal", "replay"] | None,
    trust: bool,
) -> None:
    """Show why a client was or was not chosen, term by term.

    RUN is the folder of a run, or of an experiment (then say which run by --policy and --seed). Say
    when by --round or by --time. A simulation whose journal does not hold enough is played again up
    to then, which takes as long as it took; the run itself is not touched. Playing imports the code
    that the run names; you are asked before a model or data of somebody's own is imported.
    """
    from fedmuster.core.errors import ConfigError
    from fedmuster.report.explain import explain as explained
    from fedmuster.report.explain import find_run
    from fedmuster.report.points import point_at, point_of_round

    if not trust:
        _require_no_code_inside(folder)
    cell = find_run(folder, policy=policy, seed=seed)
    if round_number is not None and time_seconds is None:
        point = point_of_round(cell, round_number)
    elif time_seconds is not None and round_number is None:
        point = point_at(cell, time_seconds)
    else:
        raise ConfigError("say what to explain: give either --round or --time")
    moment, note = _moment(cell, point, client, source, trust=trust)
    _require_its_spec(cell)
    number = None if client is None else moment.client(client)
    _show(explained(moment, client=number, rows=rows), note)


def _require_no_code_inside(folder: Path) -> None:
    """Refuse to read a run that brings its own classes along: reading its spec imports them."""
    from fedmuster.core.errors import ConfigError
    from fedmuster.experiments.foreign_code import files_inside

    if files := files_inside(folder):
        raise ConfigError(
            f"{folder} names code that lies in it ({', '.join(map(str, files))}): read it, and add "
            "--trust to have it imported"
        )


def _require_its_spec(cell: "Cell") -> None:
    """Explain nothing by another rule than the one that chose."""
    from fedmuster.experiments.journal import JournalReader
    from fedmuster.experiments.origin import require_same_spec

    origin = JournalReader(cell.folder).origin
    if origin is not None:
        require_same_spec(origin, cell.spec, cell.folder)


def _require_trust(cell: "Cell") -> None:
    """Ask before the functions that the run's spec names are imported and called."""
    import sys

    from fedmuster.core.errors import ConfigError
    from fedmuster.experiments.foreign_code import factories

    if not (names := factories(cell.spec)):
        return
    question = f"{cell.folder} is played again with code that its spec names: {', '.join(names)}"
    if not (sys.stdin.isatty() and click.confirm(f"{question}. Import and run it?")):
        raise ConfigError(f"{question}. If you trust it, add --trust; --from journal does without")


def _moment(
    cell: "Cell",
    point: "Point",
    client: str | None,
    source: Literal["journal", "replay"] | None,
    *,
    trust: bool,
) -> "tuple[Moment, str | None]":
    """The round or decision, and how it is known, where that has to be said."""
    from fedmuster.core.errors import ConfigError
    from fedmuster.report.explain import from_journal, from_replay, suffices, why_not_replayed

    written = from_journal(cell, point)
    if client is not None:
        written.client(client)  # before anything is played again for somebody who does not exist
    if source == "journal" or (source is None and suffices(written)):
        return written, None
    refusal = why_not_replayed(cell)
    if refusal is not None and source == "replay":
        raise ConfigError(
            f"{cell.folder} cannot be played again ({refusal}): leave --from out, the journal has "
            "what there is"
        )
    if refusal is not None:
        return written, f"Not played again: {refusal}."
    if not trust:
        _require_trust(cell)
    replayed, note = _played_again(cell.folder, point)
    return from_replay(cell, point, replayed), note


def _played_again(folder: Path, point: "Point") -> "tuple[Replayed, str]":
    import time

    from rich.progress import Progress

    from fedmuster.cli.display import console
    from fedmuster.core.words import several
    from fedmuster.experiments.replay import replay

    began = time.monotonic()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("playing the run again", total=point.round)
        replayed = replay(
            folder,
            point.round,
            decision=point.number,
            progress=lambda done: bars.update(task, completed=done),
        )
    seconds = time.monotonic() - began
    step, same = ("round", "cohorts") if point.decision is None else ("aggregation", "jobs")
    played = several(point.round, step)
    return replayed, f"Played {played} again in {seconds:.1f} s: the same {same} as in the journal."


def _show(explanation: "Explanation", note: str | None) -> None:
    """The verdict first, then what it follows from."""
    from fedmuster.cli.display import show_table, tell

    for line in (explanation.verdict, *explanation.lines, note):
        if line is not None:
            tell(line)
    for table in explanation.tables:
        words = "what it is" in table.columns
        show_table(table.title, table.columns, table.rows, words=words)
