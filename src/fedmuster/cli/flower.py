"""The commands of ``fedmuster flower``."""

import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fedmuster.flower.readiness import Finding, Readiness


@click.group()
def flower() -> None:
    """For federations that run on Flower (flwr)."""


@flower.command("check")
@click.argument("app", metavar="APP", type=click.Path(path_type=Path))
@click.option("--rehearse", is_flag=True, help="Play one round, all nodes in one process.")
@click.option("--nodes", type=click.IntRange(min=1), help="Of the rehearsal [default: as needed].")
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=120.0,
    show_default=True,
    help="After which an import or a rehearsal is ended.",
)
@click.option(
    "--run-config", default="", help="Of the rehearsal, as for flwr run: 'key=1 other=\"text\"'."
)
@click.option(
    "--node-config", default="", help="Of all nodes of the rehearsal, as for flower-supernode."
)
@click.pass_context
def check_command(
    context: click.Context,
    app: Path,
    rehearse: bool,
    nodes: int | None,
    seconds: float,
    run_config: str,
    node_config: str,
) -> None:
    """Say whether the Flower app in the folder APP is ready, and what to write where it is not.

    Exit code 0 if it is, 1 if something must change. The app's modules are imported; nothing else
    of it runs, unless it is rehearsed.
    """
    from fedmuster.flower import readiness

    found = readiness.check(app, import_seconds=seconds)
    _show(found)
    if rehearse and found.importable:
        count = nodes or max(found.nodes, 4)
        click.echo(f"\nA round with {count} nodes:")
        played = readiness.rehearse(
            app, nodes=count, seconds=seconds, run_config=run_config, node_config=node_config
        )
        _show(played)
        found = readiness.Readiness(findings=found.findings + played.findings)
    click.echo(f"\n{_verdict(found)}")
    context.exit(0 if found.ready else 1)


def _show(found: "Readiness") -> None:
    for finding in found.findings:
        _show_finding(finding)


def _show_finding(finding: "Finding") -> None:
    colour = {"ok": "green", "note": "yellow", "must change": "red"}[finding.level]
    place = f"{finding.where}: " if finding.where else ""
    width = min(shutil.get_terminal_size().columns, 100)
    indent = " " * 25
    lines = textwrap.wrap(
        place + finding.text, width - len(indent), break_on_hyphens=False, break_long_words=False
    )
    level = click.style(f"{finding.level:<12}", fg=colour)
    click.echo(f"{level}{finding.about:<13}" + f"\n{indent}".join(lines))
    for line in finding.write.splitlines():
        click.echo(f"{indent}| {line}")


def _verdict(found: "Readiness") -> str:
    if found.ready:
        return "Ready."
    count = len(found.must_change)
    return f"Not ready: {count} thing{'s' * (count != 1)} must change."
