"""The ``fedmuster`` command. Everything heavy is imported by the command that needs it."""

import sys

from fedmuster.cli.commands import cli
from fedmuster.core.errors import FedmusterError


def main() -> None:
    """Run the command line; errors that we foresaw are told without a traceback, exit code 2."""
    try:
        cli(prog_name="fedmuster", standalone_mode=True)
    except (FedmusterError, OSError, MemoryError) as error:
        # An OSError names its file; what is out of memory is a world of too many clients.
        sys.stderr.write(f"fedmuster: {error or 'out of memory'}\n")
        sys.exit(2)


__all__ = ["cli", "main"]
