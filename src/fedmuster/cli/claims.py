"""``fedmuster claims``: runs the papers' claims again."""

from pathlib import Path

import click

from fedmuster.cli.where import Where, processes_option
from fedmuster.core.errors import ConfigError


@click.command()
@click.argument("names", nargs=-1, metavar="[CLAIM]...")
@click.option("--quick", is_flag=True, help="Fewer seeds and rounds: a minute instead of an hour.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runs/claims"), show_default=True
)
@click.option(
    "--pages", type=click.Path(path_type=Path), help="Folder for the pages [default: OUT/CLAIM]."
)
@click.option(
    "--first-seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Run with other seeds, from this one on: was it luck?",
)
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

    Without a name: list the claims. "all" runs all but those that need days (…-full).
    """
    from fedmuster.claims import CLAIMS
    from fedmuster.cli.display import console, show_table

    if not names:
        rows = [(claim.name, claim.source, claim.statement) for claim in CLAIMS.values()]
        show_table("Claims", ("name", "source", "the paper's statement"), rows, words=True)
        return
    for name in names:
        if name != "all" and name not in CLAIMS:
            raise ConfigError(f"unknown claim {name!r}; expected all or: {', '.join(CLAIMS)}")
    light = [name for name, claim in CLAIMS.items() if not claim.heavy]
    with Where(processes=processes).start() as play:
        for name in light if "all" in names else names:
            result = CLAIMS[name].check(out / name, quick=quick, run=play, first_seed=first_seed)
            console.print(result.to_text(), highlight=False, markup=False)
            for path in result.write(pages or out / name):
                console.print(f"wrote {path}", markup=False)
