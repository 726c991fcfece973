"""The command ``fedmuster verify``."""

import sys
from pathlib import Path

import click

_SHOWN_FAULTS = 20


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
def verify(folder: Path) -> None:
    """Check every digest of a run, or of every run of an experiment, and change nothing.

    Exit code 0 if all is well, 1 if anything is wrong, 2 if RUN is no run.
    """
    from fedmuster.cli.display import say
    from fedmuster.core.words import several
    from fedmuster.experiments.verification import verify_runs

    found = verify_runs(folder)
    for run in found:
        for fault in run.faults[:_SHOWN_FAULTS]:
            say(f"FAULT: {fault}")
        if len(run.faults) > _SHOWN_FAULTS:
            say(f"… and {len(run.faults) - _SHOWN_FAULTS:,} more faults in {run.folder}")
        for remark in run.remarks:
            say(f"remark: {run.folder}: {remark}")
    num_faults = sum(len(run.faults) for run in found)
    if num_faults:
        say(f"{folder}: {several(num_faults, 'fault')}")
        sys.exit(1)
    say(f"{folder}: good, {several(sum(run.rounds for run in found), 'round')} checked")
