"""``fedmuster claims``: runs the papers' claims again, in a checkout of the repository."""

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import fedmuster
from fedmuster.cli.where import Where, first_seed_option, processes_option
from fedmuster.core.errors import ConfigError

if TYPE_CHECKING:
    from claims.claim import Claim

_PACKAGE: Final = "claims"
_MARK: Final = "claim.py"
"""A file by which the package of this repository is told from others of its name."""


@click.command()
@click.argument("names", nargs=-1, metavar="[CLAIM]...")
@click.option("--quick", is_flag=True, help="Fewer seeds and rounds: a minute instead of an hour.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runs/claims"), show_default=True
)
@click.option(
    "--pages", type=click.Path(path_type=Path), help="Folder for the pages [default: OUT/CLAIM]."
)
@first_seed_option
@processes_option
def claims(
    names: tuple[str, ...],
    quick: bool,
    out: Path,
    pages: Path | None,
    first_seed: int,
    processes: int | None,
) -> None:
    """Re-run what the papers claim.

    Without a name: list the claims. "all" runs all but those that need days (…-full). The claims
    are part of the repository, not of the installed package.
    """
    from fedmuster.cli.display import console, show_table

    known = load_claims()
    if not names:
        rows = [(claim.name, claim.source, claim.statement) for claim in known.values()]
        show_table("Claims", ("name", "source", "the paper's statement"), rows, words=True)
        return
    for name in names:
        if name != "all" and name not in known:
            raise ConfigError(f"unknown claim {name!r}; expected all or: {', '.join(known)}")
    light = [name for name, claim in known.items() if not claim.heavy]
    with Where(processes=processes).start() as play:
        for name in light if "all" in names else names:
            result = known[name].check(out / name, quick=quick, run=play, first_seed=first_seed)
            console.print(result.to_text(), highlight=False, markup=False)
            for path in result.write(pages or out / name):
                console.print(f"wrote {path}", markup=False)


def load_claims() -> "Mapping[str, Claim]":
    """The claims of the checkout, by name."""
    known: Mapping[str, Claim] = import_from_checkout(_PACKAGE).CLAIMS
    return known


def import_from_checkout(module: str) -> Any:
    """Import the package ``claims`` of the checkout, or a module of it.

    The checkout comes first on ``sys.path``, which worker processes inherit.

    Raises:
        ConfigError: there is no checkout.
    """
    beside_the_source, here = Path(fedmuster.__file__).absolute().parents[2], Path.cwd()
    for checkout in (beside_the_source, here):
        if (checkout / _PACKAGE / _MARK).is_file():
            sys.path.insert(0, str(checkout))  # before any other package of this name
            return importlib.import_module(module)
    raise ConfigError(
        f"claims and league are not part of the installed package: neither {beside_the_source} nor "
        f"{here} has a folder {_PACKAGE!r} with {_MARK}; get a checkout of fedmuster's repository "
        "(the version that is installed) and run the same command in its top folder"
    )
