"""``fedmuster data`` and ``fedmuster partition``: data sets, and who would have what of them."""

import os
from pathlib import Path

import click

_FOLDER_OPTION = click.option(
    "--to", type=click.Path(path_type=Path), help="Data folder [default: the user's cache]."
)


@click.group(invoke_without_command=True)
@click.pass_context
def data(context: click.Context) -> None:
    """List the data sets: what they hold, where they are, how to get them."""
    if context.invoked_subcommand is None:
        _show_data_sets()


@data.command("fetch")
@click.argument("name")
@_FOLDER_OPTION
def fetch_data(name: str, to: Path | None) -> None:
    """Download a data set and check it. A folder other than the default must be named by
    FEDMUSTER_DATA, or as folder in an experiment."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from fedmuster.cli.display import console, say
    from fedmuster.training.data.public_sets import fetch

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=not console.is_terminal) as bars:
        tasks = {}

        def progress(url: str, done: int, total: int | None) -> None:
            if url not in tasks:
                tasks[url] = bars.add_task(url.rpartition("/")[2], total=total)
            bars.update(tasks[url], completed=done)

        paths = fetch(name, to, progress=progress)
    for path in paths:
        say(f"wrote {path}")


@data.command("convert")
@click.argument("recordings", type=click.Path(path_type=Path))
@_FOLDER_OPTION
def convert_data(recordings: Path, to: Path | None) -> None:
    """Make spectrograms of the AudioMNIST recordings in the folder RECORDINGS."""
    from rich.progress import Progress

    from fedmuster.cli.display import console, say
    from fedmuster.training.data.public_sets import convert

    with Progress(console=console, transient=not console.is_terminal) as bars:
        task = bars.add_task("recordings", total=None)
        path = convert(
            recordings,
            to,
            progress=lambda done, total: bars.update(task, completed=done, total=total),
        )
    say(f"wrote {path}")


@click.command()
@click.option("--partition", "partition", help="For example dirichlet-labels:alpha=0.3.")
@click.option("--data", "data_set", default="digits", show_default=True, help="A data set.")
@click.option("--clients", type=click.IntRange(min=1), default=30, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("who-has-what.png"), show_default=True
)
def partition(partition: str | None, data_set: str, clients: int, seed: int, out: Path) -> None:
    """Draw which client gets which samples. Without --partition: list the partitions."""
    from fedmuster.cli.display import say

    if partition is None:
        from fedmuster.cli.list_command import show_kind

        show_kind("partitions")
        say(
            "Try: fedmuster partition --data digits --partition dirichlet-labels:alpha=0.3 "
            "--clients 30 --out who-has-what.png"
        )
        return
    from fedmuster.core.config import named, parse
    from fedmuster.report.figures import save
    from fedmuster.report.figures.partition_figure import describe, partition_figure
    from fedmuster.training.data import DATASETS
    from fedmuster.training.partition import PARTITIONS, split

    chosen = named(PARTITIONS, parse(partition), key=(), what="partition")
    loaded = named(DATASETS, parse(data_set), key=(), what="data set").load(seed)
    shares = split(chosen, loaded, clients, seed=seed)
    targets, classes = loaded.train_targets[shares.rows], loaded.num_classes
    say(describe(targets, shares.offsets, classes, shares.quality))
    figure = partition_figure(
        targets,
        shares.offsets,
        num_classes=classes,
        quality=shares.quality,
        title=f"Who has what: {data_set}, {partition}, seed {seed}",
    )
    save(figure, out)
    say(f"wrote {out}")


_MISSING = "get it"


def _show_data_sets() -> None:
    from fedmuster.cli.display import say, show_table
    from fedmuster.training.data import DATASETS
    from fedmuster.training.data.data_files import DATA_FOLDER_VARIABLE, cache_folder

    rows = [_row(name, kind) for name, kind in DATASETS.items()]
    show_table(
        "Data sets (samples for training + testing, as published)",
        ("name", "samples", "shape", "classes", "there?"),
        [(*row[:-1], "no" if row[-1].startswith(_MISSING) else "yes") for row in rows],
        words=True,
    )
    for name, *_, place in rows:  # not in the table: a path or command must not be broken
        say(f"{name}: {place}")
    named = os.environ.get(DATA_FOLDER_VARIABLE, "not set")
    remark = "" if named == "not set" or Path(named).is_dir() else ", which is not there"
    say(
        f"Files are searched in the folder that {DATA_FOLDER_VARIABLE} names ({named}{remark}), "
        f"then in {cache_folder()}."
    )


def _row(name: str, kind: type) -> tuple[str, str, str, str, str]:
    from fedmuster.training.data import Digits, OwnData
    from fedmuster.training.data.data_files import look_for
    from fedmuster.training.data.public_sets import PUBLIC_SETS
    from fedmuster.training.training_records import DataSet

    if kind is OwnData:
        how = 'data = { name = "own", factory = "module:function" }'
        return name, "yours", "yours", "yours", how
    if name in PUBLIC_SETS:
        public = PUBLIC_SETS[name]
        found = look_for(public, None).found
        place = f"{_MISSING}: {public.how_to_get}" if found is None else found.describe()
        (train, test), shape, classes = public.samples, public.shape, public.num_classes
    else:
        place = "in this package" if kind is Digits else "drawn from the seed"
        loaded: DataSet = kind().load(0)
        train, test = len(loaded.train_targets), len(loaded.test_targets)
        shape, classes = loaded.train_inputs.shape[1:], loaded.num_classes
    return (
        name,
        f"{train:,} + {test:,}",
        " × ".join(map(str, shape)),
        str(classes) if classes else "regression",
        place,
    )
