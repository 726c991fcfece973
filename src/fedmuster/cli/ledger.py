"""The commands of ``fedmuster ledger``."""

from pathlib import Path

import click


@click.group()
def ledger() -> None:
    """Look into a ledger of privacy budgets, check it, and mend what an operator may mend."""


_LEDGER = click.argument("path", metavar="LEDGER", type=click.Path(path_type=Path))


@ledger.command("show")
@_LEDGER
@click.option("--client", help="One client's debits, in order.")
@click.option("--delta", type=float, help="The ε that a client's debits are together at this δ.")
@click.option(
    "--method",
    help="With --delta: how to compose the debits. Laplace noise: rdp (default) or pld, which is "
    "tighter and needs the extra accounting. Gaussian noise: rdp.",
)
@click.option(
    "--mechanism",
    help="The mechanism that the ledger belongs to, as module:Class or file.py:Class, where "
    "fedmuster does not know what its currency means.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs; amounts in billionths.")
def show_ledger(
    path: Path,
    client: str | None,
    delta: float | None,
    method: str | None,
    mechanism: str | None,
    as_json: bool,
) -> None:
    """Show how much each client has spent."""
    from fedmuster.cli import ledger_views

    if client is not None:
        ledger_views.show_client(
            path, client, delta=delta, method=method, mechanism=mechanism, as_json=as_json
        )
    else:
        ledger_views.show_ledger(
            path, delta=delta, method=method, mechanism=mechanism, as_json=as_json
        )


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
    from fedmuster.cli.ledger_views import export

    export(path, out)


@ledger.command("verify")
@_LEDGER
def verify_ledger(path: Path) -> None:
    """Check every digest, balance and cap. Exit code 1 if anything is wrong."""
    from fedmuster.cli.ledger_views import show_faults
    from fedmuster.privacy.ledger import verify

    verification = verify(path)
    show_faults(path, verification, verification.remarks, [])


@ledger.command("audit")
@_LEDGER
@click.option(
    "--journal",
    "run_folders",
    multiple=True,
    metavar="RUN",
    type=click.Path(path_type=Path),
    help="A run folder: was every client debited that the run asked? May be given many times.",
)
@click.option(
    "--client-name",
    default="client-{}",
    show_default=True,
    help="What a simulation's client {} is called in the ledger; federations say it themselves.",
)
@click.option(
    "--receipts",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A client's receipt, or the file of its releases: does the ledger still say so?",
)
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A checkpoint that was kept elsewhere: does the ledger still begin like that?",
)
@click.option("--key", help="The ledger's public key; without it, the one beside the ledger.")
@click.option(
    "--witness-key",
    "witness_keys",
    multiple=True,
    help="The public key of a witness that must have signed every checkpoint.",
)
def audit_ledger(
    path: Path,
    run_folders: tuple[Path, ...],
    client_name: str,
    receipts: tuple[Path, ...],
    checkpoints: tuple[Path, ...],
    key: str | None,
    witness_keys: tuple[str, ...],
) -> None:
    """Verify; list what is odd; compare with runs, receipts and witnesses. Exit code 1 if wrong."""
    from fedmuster.cli.ledger_views import show_faults
    from fedmuster.privacy.ledger import Evidence, VerifierKey, audit

    evidence = Evidence(
        receipts=receipts,
        checkpoints=checkpoints,
        key=None if key is None else VerifierKey.of(key),
        witnesses=[VerifierKey.of(each) for each in witness_keys],
    )
    found = audit(path, run_folders, client_name=client_name, evidence=evidence)
    show_faults(path, found.verification, found.remarks, found.faults)


@ledger.command("checkpoint")
@_LEDGER
@click.option("--since", default=0, help="How many leaves the witness has signed before.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="For the request.")
def sign_checkpoint(path: Path, since: int, out: Path) -> None:
    """Sign what the ledger holds now, and write the request that a witness is to sign it, too."""
    from fedmuster.cli.display import say
    from fedmuster.privacy.ledger.log import checkpoint_request
    from fedmuster.privacy.ledger.notes import Checkpoint

    request = checkpoint_request(path, since=since)
    out.write_text(str(request), encoding="utf-8")
    say(f"signed {Checkpoint.of(request.note).size:,} leaves; for a witness: {out}")


@ledger.command("witness")
@click.argument("request", metavar="REQUEST", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--folder",
    required=True,
    type=click.Path(path_type=Path),
    help="The witness's own, with its key and what it has signed; never the operator's.",
)
@click.option("--name", default="witness", show_default=True, help="Of a new witness's key.")
@click.option("--trust", "key", help="The public key of a ledger that is new to the witness.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="For the signed note.")
def witness_checkpoint(request: Path, folder: Path, name: str, key: str | None, out: Path) -> None:
    """As a witness, sign a checkpoint, if it adds to the one that was signed before."""
    from fedmuster.cli.display import say
    from fedmuster.privacy.ledger import VerifierKey, Witness, WitnessRequest

    witness = Witness(folder, name=name)
    if key is not None:
        witness.trust(VerifierKey.of(key))
    note = witness.cosign(WitnessRequest.parse(request.read_text(encoding="utf-8")))
    out.write_text(str(note), encoding="utf-8")
    say(f"signed: {out}; this witness's public key is {witness.verifier}")


@ledger.command("adopt")
@_LEDGER
def adopt_ledger(path: Path) -> None:
    """Accept a ledger that came from elsewhere as the newest copy there is.

    To be used when a ledger was moved to this machine, or the files that keep its head were lost.
    If another copy has been debited since, or will be, clients spend more than they were promised,
    and nobody can tell: make sure that this one is the newest, and the only one. The chain will
    say who adopted it and when.
    """
    from fedmuster.cli.display import say
    from fedmuster.privacy.ledger import adopt

    say(f"adopted: {adopt(path)}")
    say(
        "From now on this copy counts. Other copies must never be written to again: what they "
        "debit, this one does not know. The chain says that it was adopted."
    )


@ledger.command("accept-clock")
@_LEDGER
def accept_ledger_clock(path: Path) -> None:
    """Accept a clock that is behind the ledger's newest entry.

    To be used when that entry was written while the clock was wrong, and it is right now. The
    chain will say who accepted it and when.
    """
    from fedmuster.cli.display import say
    from fedmuster.privacy.ledger import accept_clock

    say(f"accepted: {accept_clock(path)}")
