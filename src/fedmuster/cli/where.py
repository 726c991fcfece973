"""Where runs are played: on this machine, or on a Ray cluster."""

import functools
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from fedmuster.experiments.spec import Experiment
    from fedmuster.experiments.sweep import Cells

Play = Callable[["Cells"], None]
"""Runs (or continues) these runs and shows the progress."""

processes_option = click.option(
    "--processes", type=click.IntRange(min=1), help="Runs at a time [default: one per core]."
)
first_seed_option = click.option(
    "--first-seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Run with other seeds, from this one on: was it luck?",
)
_OPTIONS = (
    processes_option,
    click.option(
        "--on",
        type=click.Choice(["local", "ray"]),
        default="local",
        show_default=True,
        help="Run on this machine, or on all machines of a Ray cluster.",
    ),
    click.option("--ray-address", help="HOST:PORT of the cluster [default: found by itself]."),
    click.option(
        "--mixed-versions",
        is_flag=True,
        help="Use machines that may round otherwise, because their versions or processors differ.",
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Where:
    """The options that say where runs are played."""

    processes: int | None = None
    on: str = "local"
    ray_address: str | None = None
    mixed_versions: bool = False

    @contextmanager
    def start(self, experiment: "Experiment | None" = None) -> Iterator[Play]:
        """A function that plays runs; refuses before a folder is made for ``experiment``."""
        if self.on == "local":
            from fedmuster.experiments.sweep import run_cells

            yield functools.partial(_play, functools.partial(run_cells, processes=self.processes))
            return
        from fedmuster.cli.display import tell
        from fedmuster.experiments.ray_cluster import RayCluster, check_can_travel

        if experiment is not None:
            check_can_travel(experiment)
        with RayCluster(self.ray_address, mixed_versions=self.mixed_versions) as cluster:
            tell(f"on {cluster}")

            def run_and_tell(cells: "Cells", **settings: Any) -> None:
                nodes = cluster.run_cells(cells, processes=self.processes, **settings)
                for node, runs in sorted(Counter(nodes.values()).items()):
                    tell(f"{runs} runs ended on {node}")

            yield functools.partial(_play, run_and_tell)


def where_to_run(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options, packed into its parameter ``where``."""

    @functools.wraps(command)
    def packed(**options: Any) -> None:
        where = Where(**{item.name: options.pop(item.name) for item in fields(Where)})
        command(where=where, **options)

    for option in reversed(_OPTIONS):
        packed = option(packed)
    return packed


def _play(run_cells: Callable[..., None], cells: "Cells") -> None:
    """Run the cells whose classes can be imported; then refuse the others that are not over."""
    from fedmuster.cli.display import counted_in, progress_shown
    from fedmuster.experiments.sweep import unfinished

    folders = list(cells)
    folder = folders[0] if len(folders) == 1 else folders[0].parent.parent
    horizon, step = cells[folders[0]].horizon, counted_in(cells.values())
    with progress_shown(horizon, step) as progress, interruptible(f"fedmuster resume {folder}"):
        playable = {path: cell for path, cell in cells.items() if not cell.unavailable}
        run_cells(playable, progress=progress)
    for cell in unfinished(cells).values():
        cell.require_available()


@contextmanager
def interruptible(how_to_continue: str) -> Iterator[None]:
    """On Ctrl-C say how to continue, exit code 130; a second Ctrl-C ends this process."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(number, signal.SIG_DFL)
        sys.stderr.write(f"\ninterrupted, saving …; continue with: {how_to_continue}\n")
        sys.stderr.flush()
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:  # a background job of a script
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        signal.signal(signal.SIGINT, before)
