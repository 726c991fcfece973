"""Where runs are played: on this machine, or on a Ray cluster."""

import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fedmuster.experiments.spec import Experiment

Play = Callable[[list[Path]], None]
"""Runs (or continues) all cells in these folders, with progress bars."""

processes_option = click.option(
    "--processes", type=click.IntRange(min=1), help="Runs at a time [default: one per core]."
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
    """What the options say."""

    processes: int | None = None
    on: str = "local"
    ray_address: str | None = None
    mixed_versions: bool = False

    @contextmanager
    def start(self, experiment: "Experiment | None" = None) -> Iterator[Play]:
        """Be ready to play, or complain before a folder is made for ``experiment``."""
        if self.on == "local":
            from fedmuster.experiments.sweep import run_cells

            yield functools.partial(_play, functools.partial(run_cells, processes=self.processes))
            return
        from fedmuster.cli.display import console
        from fedmuster.experiments.ray_cluster import RayCluster, check_can_travel

        if experiment is not None:
            check_can_travel(experiment)
        with RayCluster(self.ray_address, mixed_versions=self.mixed_versions) as cluster:
            console.print(f"on {cluster}", markup=False, highlight=False)

            def run_and_tell(cells: list[Path], **settings: Any) -> None:
                nodes = cluster.run_cells(cells, processes=self.processes, **settings)
                for node, runs in sorted(Counter(nodes.values()).items()):
                    console.print(f"{runs} runs ended on {node}", markup=False, highlight=False)

            yield functools.partial(_play, run_and_tell)


def where_to_run(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options, packed into its parameter ``where``."""

    @functools.wraps(command)
    def packed(
        *arguments: Any,
        processes: int | None,
        on: str,
        ray_address: str | None,
        mixed_versions: bool,
        **others: Any,
    ) -> None:
        where = Where(
            processes=processes, on=on, ray_address=ray_address, mixed_versions=mixed_versions
        )
        command(*arguments, where=where, **others)

    for option in reversed(_OPTIONS):
        packed = option(packed)
    return packed


def _play(run_cells: Callable[..., None], cells: list[Path]) -> None:
    from fedmuster.cli.display import progress_bars
    from fedmuster.experiments.run import SPEC_NAME
    from fedmuster.experiments.spec import Experiment

    horizon = Experiment.load(cells[0] / SPEC_NAME).horizon
    try:
        with progress_bars(horizon) as progress:
            run_cells(cells, progress=progress)
    except KeyboardInterrupt:
        folder = cells[0] if len(cells) == 1 else cells[0].parent.parent
        sys.stderr.write(f"\ninterrupted: continue with fedmuster resume {folder}\n")
        sys.exit(130)
