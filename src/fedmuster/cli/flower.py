"""The commands of ``fedmuster flower``."""

import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fedmuster.flower.app_check import Finding


@click.group()
def flower() -> None:
    """For federations that run on Flower (flwr)."""


@flower.command("check")
@click.argument("app", metavar="APP", type=click.Path(path_type=Path))
@click.option(
    "--rehearse/--no-rehearse",
    default=True,
    show_default=True,
    help="Play one round where nothing must change, all nodes in one process.",
)
@click.option("--nodes", type=click.IntRange(min=1), help="Of the rehearsal [default: as needed].")
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=120.0,
    show_default=True,
    help="After which the app's process is ended.",
)
@click.option("--run-config", default="", help="As for flwr run: 'key=1 other=\"text\"'.")
@click.option("--federation-config", default="", help="As for flwr run: 'num-supernodes=8'.")
@click.option("--node-config", default="", help="Of all nodes, as for flower-supernode.")
@click.pass_context
def check_command(
    context: click.Context,
    app: Path,
    rehearse: bool,
    nodes: int | None,
    seconds: float,
    run_config: str,
    federation_config: str,
    node_config: str,
) -> None:
    """Say whether the Flower app in the folder APP is ready, and what to write where it is not.

    The app is imported and its ServerApp runs with every start() held back, in a process of its own
    and an empty folder. Exit code 0 if the app is ready, 1 if something must change.
    """
    from fedmuster.flower.app_check import check

    count = 0
    for finding in check(
        app,
        rehearse=rehearse,
        nodes=nodes,
        seconds=seconds,
        run_config=run_config,
        node_config=node_config,
        federation_config=federation_config,
    ):
        _show(finding)
        count += finding.level == "must change"
    verdict = f"Not ready: {count} thing{'s' * (count != 1)} must change." if count else "Ready."
    click.echo(f"\n{verdict}")
    context.exit(1 if count else 0)


def _show(finding: "Finding") -> None:
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
