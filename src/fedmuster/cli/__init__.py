"""The ``fedmuster`` command: a file for each command, which imports what is heavy when it runs."""

import sys
import warnings

import click

import fedmuster
from fedmuster.core.errors import FedmusterError, FedmusterWarning


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(fedmuster.__version__, prog_name="fedmuster")
def cli() -> None:
    """Which clients should train next? Client selection for federated learning."""


def _add_commands() -> None:
    """Import the commands here, so that no command hides the module of its name."""
    from fedmuster.cli.claims import claims
    from fedmuster.cli.datasets import data, partition
    from fedmuster.cli.demo import demo
    from fedmuster.cli.explain import explain
    from fedmuster.cli.flower import flower
    from fedmuster.cli.league import league
    from fedmuster.cli.ledger import ledger
    from fedmuster.cli.list_command import list_command, show
    from fedmuster.cli.running import compare, report, resume, run
    from fedmuster.cli.verify import verify

    for command in (list_command, show, compare, run, resume, verify, report, explain, demo):
        cli.add_command(command)
    for command in (data, partition, ledger, flower, claims, league):
        cli.add_command(command)


_add_commands()


def _plainly(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    return f"warning: {message}\n"


def main() -> None:
    """Run the command line; errors that we foresaw are told without a traceback, exit code 2."""
    warnings.filterwarnings("once", category=FedmusterWarning)
    warnings.formatwarning = _plainly
    try:
        cli(prog_name="fedmuster", standalone_mode=True)
    except (FedmusterError, OSError, MemoryError) as error:
        # An OSError names its file; what is out of memory is a world of too many clients.
        sys.stderr.write(f"fedmuster: {error or 'out of memory'}\n")
        sys.exit(2)


__all__ = ["cli", "main"]
