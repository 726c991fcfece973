"""The commands. Each says what it will do, does it with the library, and shows the result."""

import datetime
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

import fedmuster
from fedmuster.cli.claims import claims
from fedmuster.cli.explain import explain
from fedmuster.cli.flower import flower
from fedmuster.cli.ledger import ledger
from fedmuster.cli.where import Where, processes_option, where_to_run
from fedmuster.core.config import from_table, named
from fedmuster.core.errors import ConfigError

if TYPE_CHECKING:
    from fedmuster.experiments.spec import Experiment
    from fedmuster.worlds.world import World


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(fedmuster.__version__, prog_name="fedmuster")
def cli() -> None:
    """Which clients should train next? Client selection for federated learning."""


cli.add_command(claims)
cli.add_command(ledger)
cli.add_command(flower)
cli.add_command(explain)


@cli.command("list")
def list_command() -> None:
    """List policies, worlds and what can be trained, with papers."""
    from fedmuster.cli.display import console, show_table
    from fedmuster.cli.summaries import paper, summary
    from fedmuster.policies import POLICIES
    from fedmuster.training.aggregation import SERVERS
    from fedmuster.training.data import DATASETS
    from fedmuster.training.partition import PARTITIONS
    from fedmuster.training.training import MODELS
    from fedmuster.worlds import WORLDS

    lists: dict[str, Mapping[str, type]] = {
        "Policies": POLICIES,
        "Worlds": WORLDS,
        "Training: data": DATASETS,
        "Training: partition": PARTITIONS,
        "Training: model": MODELS,
        "Training: server": SERVERS,
    }
    for title, kinds in lists.items():
        rows = [(name, summary(kind), paper(kind)) for name, kind in kinds.items()]
        show_table(title, ("name", "what it does", "paper"), rows, words=True)
    console.print(
        "Settings: fedmuster compare bsfl:alpha=3,beta=1.2 random --world bsfl-rates:num_clients=50"
    )


@cli.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Run folder [default: runs/SPEC].")
@where_to_run
def run(spec: Path, out: Path | None, where: Where) -> None:
    """Run the experiment that SPEC (a TOML file) describes."""
    from fedmuster.experiments.spec import Experiment

    experiment = Experiment.load(spec, rehearse=True)
    _run_and_show(experiment, out or Path("runs") / spec.stem, where, baseline=None)


@cli.command()
@click.argument("policies", nargs=-1, required=True, metavar="POLICY...")
@click.option("--world", required=True, help="A world, for example bsfl-groups:num_clients=100.")
@click.option("--rounds", type=int, default=1000, show_default=True)
@click.option("--seconds", type=float, help="End each run at this simulated time, if earlier.")
@click.option("--seeds", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--training", help="For example data=digits,partition=shards,model=logistic.")
@click.option("--privacy", help='For example epsilon=40,mechanism={name="laplace", clip=1.0}.')
@click.option("--reward", default="", help="Of the regret, for example alpha=3,beta=1.2.")
@click.option("--baseline", help="Compare with this policy [default: random, or the first].")
@click.option("--out", type=click.Path(path_type=Path), help="Run folder [default: a new one].")
@where_to_run
def compare(
    policies: tuple[str, ...],
    world: str,
    rounds: int,
    seconds: float | None,
    seeds: int,
    training: str | None,
    privacy: str | None,
    reward: str,
    baseline: str | None,
    out: Path | None,
    where: Where,
) -> None:
    """Compare policies in one world: same luck for all, paired over seeds.

    A POLICY is a name with settings, for example bsfl:alpha=3,beta=1.2. With --privacy, a policy
    with private=false among them runs without.
    """
    from fedmuster.core.config import parse, parse_settings
    from fedmuster.experiments.spec import Experiment, reward_kind
    from fedmuster.experiments.spec_tables import parse_policies
    from fedmuster.privacy.budget import Privacy
    from fedmuster.training.training import Training
    from fedmuster.worlds import WORLDS

    chosen, unprotected = parse_policies(policies)
    if baseline is not None and baseline not in chosen:
        raise ConfigError(f"--baseline {baseline} is none of the policies: {', '.join(chosen)}")
    chosen_world: World = named(WORLDS, parse(world), key=(), what="world")
    experiment = Experiment(
        policies=chosen,
        world=chosen_world,
        rounds=rounds,
        seconds=seconds,
        seeds=tuple(range(seeds)),
        reward=from_table(reward_kind(chosen_world), parse_settings(reward)),
        training=None if training is None else from_table(Training, parse_settings(training)),
        privacy=None if privacy is None else from_table(Privacy, parse_settings(privacy)),
        unprotected=unprotected,
    ).beside(Path.cwd() / "here")
    experiment.rehearse()
    now = datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S")
    _run_and_show(experiment, out or Path("runs") / f"compare-{now}", where, baseline)


@cli.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@where_to_run
def resume(folder: Path, where: Where) -> None:
    """Continue an interrupted run (or all runs of an experiment), bit for bit."""
    from fedmuster.experiments.sweep import complete

    _refuse_federations(cells := complete(folder))
    _say_what_is_over(cells)
    _warn_of_other_versions(cells)
    with where.start() as play:
        play(cells)
    _show_comparison([folder], baseline=None)


@cli.command()
@click.argument(
    "folders", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path)
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder [default: RUN/report].")
@click.option("--baseline", help="Compare with this policy [default: random, or the first].")
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
    from fedmuster.cli.display import console
    from fedmuster.report.write import write_report

    _show_comparison(list(folders), baseline, target)
    for path in write_report(
        list(folders),
        out or folders[0] / "report",
        formats=[kind for kind in formats if kind != "none"],
        baseline=baseline,
        target=target,
        parquet=parquet,
        tensorboard=tensorboard,
    ):
        console.print(f"wrote {path}", markup=False)


@cli.command()
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runs/demo"), show_default=True
)
@processes_option
def demo(out: Path, processes: int | None) -> None:
    """See it work: seven policies train on handwritten digits, about a minute, one page."""
    from fedmuster.cli.demo import LESSON, demo_experiment
    from fedmuster.cli.display import console
    from fedmuster.experiments.sweep import lay_out_or_complete
    from fedmuster.report.write import write_report

    # A demo that is there is shown again, or finished if it was interrupted.
    with Where(processes=processes).start() as play:
        play(lay_out_or_complete(out, demo_experiment()))
    _show_comparison([out], baseline="random")
    write_report([out], out / "report", formats=("png",), baseline="random")
    console.print(f"\nThe page: {out / 'report' / 'report.html'}")
    console.print(LESSON)


@cli.group(invoke_without_command=True)
@click.pass_context
def data(context: click.Context) -> None:
    """List the data sets: what they hold, where they are, how to get them."""
    if context.invoked_subcommand is None:
        from fedmuster.cli.data import show_data_sets

        show_data_sets()


_DATA_FOLDER = click.option(
    "--to", type=click.Path(path_type=Path), help="Data folder [default: the user's cache]."
)


@data.command("fetch")
@click.argument("name")
@_DATA_FOLDER
def fetch_data(name: str, to: Path | None) -> None:
    """Download a data set and check it. A folder other than the default must be named by
    FEDMUSTER_DATA, or as folder in an experiment."""
    from fedmuster.cli.data import fetch_with_bar

    fetch_with_bar(name, to)


@data.command("convert")
@click.argument("recordings", type=click.Path(path_type=Path))
@_DATA_FOLDER
def convert_data(recordings: Path, to: Path | None) -> None:
    """Make spectrograms of the AudioMNIST recordings in the folder RECORDINGS."""
    from fedmuster.cli.data import convert_with_bar

    convert_with_bar(recordings, to)


@cli.command()
@click.option("--partition", "partition", help="For example dirichlet-labels:alpha=0.3.")
@click.option("--data", "data_set", default="digits", show_default=True, help="A data set.")
@click.option("--clients", type=click.IntRange(min=1), default=30, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("who-has-what.png"), show_default=True
)
def partition(partition: str | None, data_set: str, clients: int, seed: int, out: Path) -> None:
    """Draw who would have what. Without --partition: list the partitions."""
    from fedmuster.cli.partition import list_partitions, show_partition

    if partition is None:
        list_partitions()
    else:
        show_partition(partition, data_set, clients, seed, out)


def _run_and_show(experiment: "Experiment", out: Path, where: Where, baseline: str | None) -> None:
    from fedmuster.cli.display import console
    from fedmuster.experiments.sweep import lay_out

    with where.start(experiment) as play:
        cells = lay_out(out, experiment)
        console.print(f"{len(cells)} runs of {experiment.horizon} in {out}", markup=False)
        play(cells)
    _show_comparison([out], baseline)
    console.print(f"Pictures: fedmuster report {out}")


def _show_comparison(
    folders: list[Path], baseline: str | None, target: float | None = None
) -> None:
    from fedmuster.cli.display import console, show_table
    from fedmuster.report.runs import load
    from fedmuster.report.summary import summarise
    from fedmuster.report.tables import tables

    for table in tables(summarise(load(folders), baseline, target)):
        show_table(table.title, table.columns, table.rows)
        for footnote in table.footnotes:
            console.print(footnote, highlight=False, markup=False)


def _refuse_federations(cells: list[Path]) -> None:
    """Nobody but Flower can continue them, and their worlds say so."""
    from fedmuster.experiments.run import SPEC_NAME
    from fedmuster.experiments.spec import Experiment
    from fedmuster.worlds.real_federation import Federation

    for cell in cells:
        world = Experiment.load(cell / SPEC_NAME).world
        if isinstance(world, Federation):
            world.start(seed=0)


def _say_what_is_over(cells: list[Path]) -> None:
    """Resuming does not help a run that privacy ended, nor one that is complete."""
    from fedmuster.cli.display import console
    from fedmuster.experiments.journal import standing
    from fedmuster.experiments.run import SPEC_NAME
    from fedmuster.experiments.spec import Experiment

    horizon, complete = Experiment.load(cells[0] / SPEC_NAME).horizon, 0
    for cell in cells:
        run = standing(cell)
        if run.ending is not None:
            console.print(f"{cell} is over: {run.ending}", highlight=False, markup=False)
        complete += run.ending is not None or horizon.reached(run.rounds, run.elapsed_seconds)
    if complete == len(cells):
        console.print("Nothing to continue: every run is over.")


def _warn_of_other_versions(cells: list[Path]) -> None:
    from fedmuster.experiments.journal import JournalReader, rounds_done
    from fedmuster.experiments.run import versions

    for cell in cells:
        if rounds_done(cell) and _differ(JournalReader(cell).versions[-1], versions()):
            sys.stderr.write(
                f"warning: {cell} was begun with {JournalReader(cell).versions[-1]}, this is "
                f"{versions()}: the continued rounds may differ in their last bits\n"
            )


def _differ(begun: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """In what both name: a process that has trained nothing yet does not name PyTorch."""
    return any(begun[name] != now[name] for name in begun.keys() & now.keys())
