"""The commands of ``fedmuster ledger``."""

from pathlib import Path
from typing import Literal

import click

from fedmuster.core.errors import ConfigError


@click.group()
def ledger() -> None:
    """Look into a ledger of privacy budgets, check it, and mend what an operator may mend."""


_LEDGER = click.argument("path", metavar="LEDGER", type=click.Path(path_type=Path))


@ledger.command("show")
@_LEDGER
@click.option("--client", help="One client's debits, in order.")
@click.option("--delta", type=float, help="With --client: the ε that its debits are at this δ.")
@click.option(
    "--method",
    type=click.Choice(["rdp", "pld"]),
    default="rdp",
    show_default=True,
    help="How to compose them; pld is tighter and needs the extra accounting.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs; amounts in billionths.")
def show_ledger(
    path: Path,
    client: str | None,
    delta: float | None,
    method: Literal["rdp", "pld"],
    as_json: bool,
) -> None:
    """Show who has spent how much."""
    from fedmuster.cli import ledger as ledgers

    if client is None:
        if delta is not None:
            raise ConfigError("--delta needs --client: debits are composed client by client")
        ledgers.show_ledger(path, as_json=as_json)
    else:
        ledgers.show_client(path, client, delta=delta, method=method, as_json=as_json)


@ledger.command("export")
@_LEDGER
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="A name that ends in .csv, .json or .parquet.",
)
def export_ledger(path: Path, out: Path) -> None:
    """Write every entry, with its digest, to a file."""
    from fedmuster.cli.display import console
    from fedmuster.cli.ledger_export import export

    console.print(f"wrote {export(path, out):,} entries to {out}", markup=False, soft_wrap=True)


@ledger.command("verify")
@_LEDGER
def verify_ledger(path: Path) -> None:
    """Check every digest, balance and cap. Exit code 1 if anything is wrong."""
    from fedmuster.cli.ledger import verify_and_tell

    verify_and_tell(path)


@ledger.command("audit")
@_LEDGER
@click.option(
    "--journal",
    "run_folders",
    multiple=True,
    metavar="RUN",
    type=click.Path(path_type=Path),
    help="A run folder: was everybody debited whom it asked? May be given many times.",
)
@click.option(
    "--client-name",
    default="client-{}",
    show_default=True,
    help="What a simulation's client {} is called in the ledger; federations say it themselves.",
)
def audit_ledger(path: Path, run_folders: tuple[Path, ...], client_name: str) -> None:
    """Verify; list what is odd; compare with runs. Exit code 1 if anything is wrong."""
    from fedmuster.cli.ledger import audit_and_tell

    audit_and_tell(path, list(run_folders), client_name)


@ledger.command("adopt")
@_LEDGER
def adopt_ledger(path: Path) -> None:
    """Accept a ledger that came from elsewhere as the newest copy there is.

    To be used when a ledger was moved to this machine, or the files that keep its head were lost.
    If another copy has been debited since, or will be, clients spend more than they were promised,
    and nobody can tell: make sure that this one is the newest, and the only one. The chain will
    say who adopted it and when.
    """
    from fedmuster.cli.ledger import adopt_and_tell

    adopt_and_tell(path)


@ledger.command("accept-clock")
@_LEDGER
def accept_clock(path: Path) -> None:
    """Accept a clock that is behind the ledger's newest entry.

    To be used when that entry was written while the clock was wrong, and it is right now. The
    chain will say who accepted it and when.
    """
    from fedmuster.cli.ledger import accept_clock_and_tell

    accept_clock_and_tell(path)
