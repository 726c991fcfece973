"""What ``fedmuster data`` shows: the data sets, where they are, how to get them."""

import os
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from fedmuster.cli.display import console, show_table
from fedmuster.training.data import DATASETS, Digits, OwnData
from fedmuster.training.data.data_files import DATA_FOLDER_VARIABLE, cache_folder, look_for
from fedmuster.training.data.fetch import fetch
from fedmuster.training.data.public_sets import PUBLIC_SETS
from fedmuster.training.data.spectrograms import convert
from fedmuster.training.training_records import DataSet

_HEADER = ("name", "samples", "shape", "classes", "there?")

_MISSING = "get it"


def show_data_sets() -> None:
    """A table of everything that an experiment can name."""
    rows = [_row(name, kind) for name, kind in DATASETS.items()]
    table = [(*row[:-1], "no" if row[-1].startswith(_MISSING) else "yes") for row in rows]
    show_table(
        "Data sets (samples for training + testing, as published)", _HEADER, table, words=True
    )
    lines = [f"{name}: {place}" for name, *_, place in rows]
    for line in (*lines, _searched()):  # not in the table: a path or command must not be broken
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _searched() -> str:
    named = os.environ.get(DATA_FOLDER_VARIABLE, "not set")
    remark = "" if named == "not set" or Path(named).is_dir() else ", which is not there"
    return (
        f"Files are searched in the folder that {DATA_FOLDER_VARIABLE} names ({named}{remark}), "
        f"then in {cache_folder()}."
    )


def fetch_with_bar(name: str, to: Path | None) -> None:
    """Download, and say what came."""
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
        console.print(f"wrote {path}", highlight=False, markup=False, soft_wrap=True)


def convert_with_bar(recordings: Path, to: Path | None) -> None:
    """Convert AudioMNIST, and say where it is."""
    with Progress(console=console, transient=not console.is_terminal) as bars:
        task = bars.add_task("recordings", total=None)
        path = convert(
            recordings,
            to,
            progress=lambda done, total: bars.update(task, completed=done, total=total),
        )
    console.print(f"wrote {path}", highlight=False, markup=False, soft_wrap=True)


def _row(name: str, kind: type) -> tuple[str, ...]:
    if name in PUBLIC_SETS:
        public = PUBLIC_SETS[name]
        found = look_for(public, None).found
        place = f"{_MISSING}: {public.how_to_get}" if found is None else found.describe()
        return _described(name, public.samples, public.shape, public.num_classes, place)
    if kind is OwnData:
        return (
            name,
            "yours",
            "yours",
            "yours",
            'data = { name = "own", factory = "module:function" }',
        )
    place = "in this package" if kind is Digits else "drawn from the seed"
    data: DataSet = kind().load(0)
    samples = len(data.train_targets), len(data.test_targets)
    return _described(name, samples, data.train_inputs.shape[1:], data.num_classes, place)


def _described(
    name: str, samples: tuple[int, int], shape: tuple[int, ...], num_classes: int, place: str
) -> tuple[str, ...]:
    train, test = samples
    return (
        name,
        f"{train:,} + {test:,}",
        " × ".join(map(str, shape)),
        str(num_classes) if num_classes else "regression",
        place,
    )
