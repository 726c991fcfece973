"""A campaign's progress, and its results for people and programs."""

import json
import platform
import sqlite3
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from tests.faults.board import Point
from tests.faults.campaign import LEAST_SHARE, STAGES, Campaign, Result


def conduct(*, kills: int, seed: int, out: Path | None) -> bool:
    """Run a campaign and show it; whether all is well."""
    console = Console()
    columns = (TextColumn("kill -9"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # No thread that draws by itself: children are forked from here.
    with Progress(*columns, console=console, auto_refresh=False) as progress:
        task = progress.add_task("kill -9", total=kills)

        def show(done: int) -> None:
            progress.update(task, completed=done, refresh=True)

        result = Campaign(kills=kills, seed=seed, progress=show).run()
    console.print(_table(result))
    for title, value in _facts(result):
        console.print(f"{title}: {value}", highlight=False)
    for fault in result.faults:
        console.print(f"FAULT: {fault}", style="red", markup=False)
    for stage in result.neglected:
        console.print(f"{stage} was hit in less than {LEAST_SHARE:.0%} of the kills", style="red")
    good = not result.faults and not result.neglected
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        command = f"python -m tests.faults --kills {kills} --seed {seed}"
        report = {"command": command, "seed": seed, "good": good, **to_table(result)}
        (out / "faults.json").write_text(json.dumps(report, indent=1) + "\n")
        (out / "faults.md").write_text(_page(result, command, good=good))
    return good


def to_table(result: Result) -> dict[str, Any]:
    """Everything, for JSON."""
    return {
        "kills": result.total,
        "stages": {stage: result.hits(stage) for stage in dict.fromkeys(p.stage for p in Point)},
        "points": {point.name.lower(): result.kills[point] for point in Point},
        "scenarios": {
            name: {"trials": trials, "kills": result.kills_by_scenario[name]}
            for name, trials in sorted(result.trials.items())
        },
        "audits": result.audits,
        "debits": result.debits,
        "releases": result.releases,
        "repeated_releases": result.repeated_releases,
        "runs": result.runs,
        "identical_runs": result.identical_runs,
        "secure_rounds": result.secure_rounds,
        "lost_rounds": result.lost_rounds,
        "secure_jobs": result.secure_jobs,
        "lost_jobs": result.lost_jobs,
        "faults": result.faults,
        "versions": {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version},
    }


def _rows(result: Result) -> list[tuple[str, str, str, str]]:
    return [
        (point.stage, point.meaning, f"{hits:,}", f"{hits / max(result.total, 1):.1%}")
        for point in Point
        for hits in (result.kills[point],)
    ]


def _facts(result: Result) -> list[tuple[str, str]]:
    return [
        ("Kills", f"{result.total:,}, in {result.trials.total():,} trials"),
        ("Audits of ledger, journals and releases", f"{result.audits:,}"),
        ("Debits", f"{result.debits:,}"),
        (
            "Updates that left a client",
            f"{result.releases:,}; {result.repeated_releases:,} of them again after a kill, each "
            "the same bit for bit (seeded noise only)",
        ),
        (
            "Runs that came to their end",
            f"{result.runs:,}; the {result.identical_runs:,} that can be compared equal runs that "
            "were not killed, bit for bit, and so do their debits",
        ),
        (
            "Rounds lost with secure noise",
            f"{result.lost_rounds:,} of {result.secure_rounds:,}, all of them hit by a kill",
        ),
        (
            "Jobs lost with secure noise, without rounds",
            f"{result.lost_jobs:,} of {result.secure_jobs:,}, all of them open when a run was "
            "killed",
        ),
        ("Faults", f"{len(result.faults):,}"),
    ]


def _table(result: Result) -> Table:
    table = Table("stage", "where", title="What the kills hit")
    for name in ("kills", "share"):
        table.add_column(name, justify="right")
    for row in _rows(result):
        table.add_row(*row)
    return table


def _page(result: Result, command: str, *, good: bool) -> str:
    stages = ", ".join(f"{stage} {result.hits(stage):,}" for stage in STAGES)
    lines = [
        f"# `kill -9`, {result.total:,} times: {'holds' if good else 'DOES NOT HOLD'}",
        "",
        "No release without its debit, no client above its cap, a resumed run bit-identical.",
        "",
        "**What was run.** Private runs that train on digits (PAUSE, random, over-selection with",
        "dropouts; with rounds and without; four schedules; three kinds of noise, seeded and",
        "secure; ledgers of one run and of two), each in a process of its own that is killed up to",
        "8 times, on a disk and in memory in turn. Children say in shared memory where they are:",
        "what a kill hit is read after it. After every kill an auditor that uses nothing of",
        "fedmuster recomputes the ledger from its first entry and compares it with the journals",
        "and with a log of every update that left a client; then the run is continued.",
        "",
        "Full disks, read-only, truncated, tampered, lost and old ledgers, clocks that step back",
        "and two runs at once are in `tests/faults/test_faults.py`: each is refused in one line",
        "before anything is released, and when it is mended the run goes on, bit for bit.",
        "",
        f"Made by `{command} --out docs/claims`, with SQLite {sqlite3.sqlite_version}.",
        "",
        *(f"- {title}: {value}." for title, value in _facts(result)),
        f"- Hits by stage: {stages} (required: {LEAST_SHARE:.0%} of the kills in each).",
        "",
        "| stage | where | kills | share |",
        "|---|---|---:|---:|",
        *(f"| {' | '.join(row)} |" for row in _rows(result)),
        "",
        "| scenario | trials | kills |",
        "|---|---:|---:|",
        *(
            f"| {name} | {trials:,} | {result.kills_by_scenario[name]:,} |"
            for name, trials in sorted(result.trials.items())
        ),
        "",
        *(f"- FAULT: {fault}" for fault in result.faults),
    ]
    return "\n".join(lines).rstrip() + "\n"
