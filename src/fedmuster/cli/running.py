"""``fedmuster run``, ``compare``, ``resume`` and ``report``: experiments and what came of them."""

import datetime
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedmuster.cli.where import Where, where_to_run

if TYPE_CHECKING:
    from fedmuster.experiments.spec import Experiment
    from fedmuster.experiments.sweep import Cells
    from fedmuster.report.summary import Summary

_FOLDER = click.Path(path_type=Path)
_ROUNDS = 1000
_BASELINE = click.option(
    "--baseline", help="Compare with this policy [default: random, or the first]."
)


@click.command()
@click.argument("spec", type=_FOLDER)
@click.option("--out", type=_FOLDER, help="Run folder [default: runs/SPEC].")
@where_to_run
def run(spec: Path, out: Path | None, where: Where) -> None:
    """Run the experiment that SPEC (a TOML file) describes.

    If the run folder holds the experiment already, only what SPEC adds is run: more policies, more
    seeds, more rounds.
    """
    from fedmuster.experiments.spec import Experiment

    experiment = Experiment.load(spec, rehearse=True)
    _run_and_show(experiment, out or Path("runs") / spec.stem, where, baseline=None)


@click.command()
@click.argument("policies", nargs=-1, required=True, metavar="POLICY...")
@click.option("--world", required=True, help="A world, for example bsfl-groups:num_clients=100.")
@click.option("--rounds", type=int, help="[default: 1000; with --seconds, no limit]")
@click.option("--seconds", type=float, help="End each run at this simulated time, if earlier.")
@click.option("--seeds", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--training", help="For example data=digits,partition=shards,model=logistic.")
@click.option("--privacy", help='For example epsilon=40,mechanism={name="laplace", clip=1.0}.')
@click.option(
    "--federation",
    help="Without rounds, for example concurrency=20,buffer=5,refill=1 [default: rounds].",
)
@click.option("--reward", default="", help="Of the regret, for example alpha=3,beta=1.2.")
@_BASELINE
@click.option("--out", type=_FOLDER, help="Run folder [default: a new one].")
@where_to_run
def compare(
    policies: tuple[str, ...],
    world: str,
    rounds: int | None,
    seconds: float | None,
    seeds: int,
    training: str | None,
    privacy: str | None,
    federation: str | None,
    reward: str,
    baseline: str | None,
    out: Path | None,
    where: Where,
) -> None:
    """Compare policies in one world: same luck for all, paired over seeds.

    A POLICY is a name with settings, for example bsfl:alpha=3,beta=1.2. With --privacy, a policy
    with private=false among them runs without. With --federation, a policy with federation=rounds
    runs in rounds, with the same number of clients at work. If the run folder (--out) holds an
    experiment in the same world, the policies, seeds and rounds that it lacks are added to it.
    """
    from fedmuster.core.config import from_table, named, parse, parse_settings
    from fedmuster.core.errors import ConfigError
    from fedmuster.experiments.spec import Experiment, reward_kind
    from fedmuster.experiments.spec_tables import parse_policies
    from fedmuster.federation import UNLIMITED, Federation
    from fedmuster.privacy.budget import Privacy
    from fedmuster.training.training import Training
    from fedmuster.worlds import WORLDS
    from fedmuster.worlds.world import World

    contestants = parse_policies(policies)
    chosen = contestants.policies
    if baseline is not None and baseline not in chosen:
        raise ConfigError(f"--baseline {baseline} is none of the policies: {', '.join(chosen)}")
    chosen_world: World = named(WORLDS, parse(world), key=(), what="world")
    experiment = Experiment(
        **contestants._asdict(),
        world=chosen_world,
        rounds=(_ROUNDS if seconds is None else UNLIMITED) if rounds is None else rounds,
        seconds=seconds,
        seeds=tuple(range(seeds)),
        reward=from_table(reward_kind(chosen_world), parse_settings(reward)),
        training=None if training is None else from_table(Training, parse_settings(training)),
        privacy=None if privacy is None else from_table(Privacy, parse_settings(privacy)),
        federation=None
        if federation is None
        else from_table(Federation, parse_settings(federation)),
    ).beside(Path.cwd() / "here")
    experiment.rehearse()
    now = datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S")
    _run_and_show(experiment, out or Path("runs") / f"compare-{now}", where, baseline)


@click.command()
@click.argument("folder", metavar="RUN", type=_FOLDER)
@where_to_run
def resume(folder: Path, where: Where) -> None:
    """Continue an interrupted run (or all runs of an experiment), bit for bit."""
    from fedmuster.experiments.sweep import complete
    from fedmuster.worlds.real_federation import RealFederation

    cells = complete(folder)
    for cell in cells.values():
        if isinstance(cell.world, RealFederation):
            cell.world.start(seed=0)  # says that only its framework can continue it
    _say_what_is_over(cells)
    _warn_of_other_versions(cells)
    with where.start() as play:
        play(cells)
    show_comparison(cells)


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="RUN...", type=_FOLDER)
@click.option("--out", type=_FOLDER, help="Folder [default: RUN/report].")
@_BASELINE
@click.option(
    "--target",
    type=float,
    help="Accuracy (or loss) to time [default: what the baseline reaches in every seed].",
)
@click.option(
    "--format",
    "formats",
    type=click.Choice(["png", "svg", "pdf", "none"]),
    multiple=True,
    default=("png", "svg"),
    show_default=True,
    help="Of the figures; none does without matplotlib.",
)
@click.option("--parquet", is_flag=True, help="Write the numbers as Parquet, too.")
@click.option("--tensorboard", is_flag=True, help="Write event files for TensorBoard.")
def report(
    folders: tuple[Path, ...],
    out: Path | None,
    baseline: str | None,
    target: float | None,
    formats: tuple[str, ...],
    parquet: bool,
    tensorboard: bool,
) -> None:
    """Write a page with charts (report.html), figures for papers, tables and numbers."""
    from fedmuster.cli.display import say
    from fedmuster.report.write import write_summary

    summary = show_comparison(folders, baseline, target)
    for path in write_summary(
        summary,
        out or folders[0] / "report",
        formats=[kind for kind in formats if kind != "none"],
        parquet=parquet,
        tensorboard=tensorboard,
    ):
        say(f"wrote {path}")


def show_comparison(
    runs: "tuple[Path, ...] | Cells", baseline: str | None = None, target: float | None = None
) -> "Summary":
    """Print the tables that compare runs: those in folders, or runs whose specs are known."""
    from fedmuster.cli.display import show_table, tell
    from fedmuster.report.runs import load
    from fedmuster.report.summary import summarise
    from fedmuster.report.tables import tables

    summary = summarise(load(runs), baseline, target)
    for table in tables(summary):
        show_table(table.title, table.columns, table.rows)
        for footnote in table.footnotes:
            tell(footnote)
    return summary


def _run_and_show(experiment: "Experiment", out: Path, where: Where, baseline: str | None) -> None:
    from fedmuster.cli.display import horizon_in_words, say
    from fedmuster.experiments.sweep import lay_out

    with where.start(experiment) as play:
        cells = lay_out(out, experiment)
        say(f"{len(cells)} runs of {horizon_in_words(experiment)} in {out}")
        _say_what_is_kept(cells, experiment)
        _say_what_is_over(cells)
        _warn_of_other_versions(cells)
        play(cells)
    show_comparison(cells, baseline)
    say(f"Pictures: fedmuster report {out}")


def _say_what_is_kept(cells: "Cells", wanted: "Experiment") -> None:
    """Policies and seeds that the folder had before, and this spec does not name."""
    from fedmuster.cli.display import tell

    policies = {label: None for cell in cells.values() for label in cell.policies}
    seeds = {seed: None for cell in cells.values() for seed in cell.seeds}
    kept = [f"policy {label}" for label in policies if label not in wanted.policies]
    kept += [f"seed {seed}" for seed in seeds if seed not in wanted.seeds]
    if kept:
        tell(f"Kept from before, although not asked for now: {', '.join(kept)}.")


def _say_what_is_over(cells: "Cells") -> None:
    """Continuing does not help a run that privacy ended, nor one that is complete."""
    from fedmuster.cli.display import tell
    from fedmuster.experiments.journal import standing
    from fedmuster.experiments.sweep import unfinished

    for folder in cells:
        if (ending := standing(folder).ending) is not None:
            tell(f"{folder} is over: {ending}")
    if not unfinished(cells):
        tell("Nothing to continue: every run is over.")


def _warn_of_other_versions(cells: "Cells") -> None:
    from fedmuster.experiments.journal import JournalReader, rounds_done
    from fedmuster.experiments.run import versions
    from fedmuster.experiments.sweep import unfinished

    now = versions()
    for folder in unfinished(cells):
        if rounds_done(folder):
            begun = JournalReader(folder).versions[-1]
            # A process that has trained nothing yet does not name PyTorch.
            if any(begun[name] != now[name] for name in begun.keys() & now.keys()):
                sys.stderr.write(
                    f"warning: {folder} was begun with {begun}, this is {now}: the continued "
                    "rounds may differ in their last bits\n"
                )
