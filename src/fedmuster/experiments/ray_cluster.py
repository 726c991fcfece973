"""Sweeps beyond one machine: the cells of an experiment on a Ray cluster, with the same bits.

The machines need no file system in common. A cell travels as its files (:mod:`.cell_images`), is
played in a temporary folder of a worker, and comes home every few seconds while it is played
(:mod:`.ray_journey`). docs/clusters.md has what a user must know.
"""

import logging
import os
import socket
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Self

from fedmuster.core.config import Key, to_table
from fedmuster.core.errors import ConfigError, MissingExtraError, StateError
from fedmuster.experiments.cell_images import bits_here
from fedmuster.experiments.journal import standing
from fedmuster.experiments.ray_journey import Journey
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.sweep import Cells, Progress, unfinished
from fedmuster.training.models import Network

_PATHS: Final = ("path", "folder")
"""Keys of worlds and data sets that name files."""


def check_can_travel(experiment: Experiment) -> None:
    """Refuse what other machines do not have, or must not have."""
    _check_ledger(experiment)
    for table, config in (("world", experiment.world), ("training", experiment.training)):
        for key, path in _paths(to_table(config), (table,)) if config is not None else ():
            if not Path(path).expanduser().is_absolute():
                raise ConfigError(
                    f"{'.'.join(key)} = {path!r} is relative to the working directory, and other "
                    "machines have another: write the absolute path under which every node of the "
                    "cluster has it, or run without --on ray",
                    key=key,
                )


def _check_ledger(experiment: Experiment) -> None:
    privacy = experiment.privacy
    if privacy is None or experiment.unprotected == set(experiment.policies):
        return
    if not privacy.simulated:
        raise ConfigError(
            'noise = "secure" needs a ledger of real privacy, and that does not travel: of two '
            "copies each could spend the same budget. Run it where the ledger is, without --on "
            'ray; or simulate it with noise = "seeded"',
            key=("privacy", "noise"),
        )
    if privacy.ledger is not None:
        raise ConfigError(
            f"ledger = {privacy.ledger!r} stays on this machine, and the run would be on another: "
            "leave ledger out (the run gets its own, which travels with it), or run without "
            "--on ray",
            key=("privacy", "ledger"),
        )


def _paths(table: Mapping[str, Any], key: Key) -> Iterator[tuple[Key, str]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _paths(value, (*key, name))
        elif name in _PATHS and isinstance(value, str):
            yield (*key, name), value


_POLL_SECONDS: Final = 0.2
_KNOCK_SECONDS: Final = 10.0
_RECALL_SECONDS: Final = 2.0
_WAITING: Final = 8
"""Cells that wait in the cluster for a free core, so that none idles and more nodes may come."""


class RayCluster:
    """A cluster that is running already; a context manager.

    Args:
        address: ``host:port`` of its head; None for what RAY_ADDRESS says, or the one that runs
            on this machine.
        mixed_versions: whether nodes may have other versions or processors than this machine, so
            that results may differ in their last bits.
        every_seconds: between the images of a cell that come home.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        mixed_versions: bool = False,
        every_seconds: float = 2.0,
    ) -> None:
        self._address = address or os.environ.get("RAY_ADDRESS") or "auto"
        self._mixed_versions = mixed_versions
        self._every_seconds = every_seconds
        self._ray = _import_ray()

    def __enter__(self) -> Self:
        if self._address.startswith("ray://"):
            raise StateError(
                f"{self._address} is a Ray Client, through which nothing comes home while a cell "
                "is played: run fedmuster on a machine of the cluster (its head will do), with "
                "--ray-address HOST:PORT as ray start printed it"
            )
        try:
            _knock(self._address)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # tips for Ray's own developers
                self._ray.init(
                    address=self._address, log_to_driver=False, logging_level=logging.ERROR
                )
        except (OSError, RuntimeError, ValueError) as error:
            raise StateError(
                f"no Ray cluster at {self._address}: {error}. Start one with `ray start --head`, "
                "let other machines join with `ray start --address HOST:PORT`, and run fedmuster "
                "on one of them, with --ray-address HOST:PORT if it is not found by itself"
            ) from error
        return self

    def __exit__(self, *exception: object) -> None:
        self._ray.shutdown()

    def __str__(self) -> str:
        alive = sum(bool(node["Alive"]) for node in self._ray.nodes())
        return f"a Ray cluster of {alive} nodes with {self._cores()} cores"

    def run_cells(
        self, cells: Cells, *, processes: int | None = None, progress: Progress
    ) -> dict[Path, str]:
        """Run (or continue) all cells that are not finished; which node finished which.

        The same bits as :func:`fedmuster.experiments.sweep.run_cells`, and as safe: a driver, a
        worker or a node that dies costs the cells what they have not sent home, a few seconds.
        Workers and nodes that die are made good for here; after a driver, resume.

        Args:
            cells: their specs by folder.
            processes: how many at a time; None for as many as the cluster has cores.
            progress: see :data:`Progress`.
        """
        todo = unfinished(cells)
        for spec in todo.values():
            spec.require_available()
            check_can_travel(spec)
        trained = [spec.training for spec in todo.values() if spec.training is not None]
        networks = any(isinstance(training.model, Network) for training in trained)
        standings = {cell: standing(cell) for cell in cells}
        waiting = deque(todo)
        bits = None if self._mixed_versions else bits_here(networks=networks)
        journeys: list[Journey] = []
        ended_on: dict[Path, str] = {}
        try:
            while waiting or journeys:
                most = processes or self._cores() + _WAITING
                while waiting and len(journeys) < most:
                    cell = waiting.popleft()
                    journeys.append(
                        Journey(self._ray, cell, bits=bits, every_seconds=self._every_seconds)
                    )
                for journey in self._with_news(journeys):
                    journey.receive()
                    standings[journey.cell] = journey.standing
                    if journey.ended_on is not None:
                        ended_on[journey.cell] = journey.ended_on
                        journeys.remove(journey)
                        journey.close()
                progress(standings)
        finally:
            self._recall(journeys)
        return ended_on

    def _with_news(self, journeys: list[Journey]) -> list[Journey]:
        """The journeys with something to receive; waits a moment for the first."""
        streams = {journey.stream: journey for journey in journeys}
        ready, _ = self._ray.wait(list(streams), num_returns=len(streams), timeout=_POLL_SECONDS)
        return [streams[stream] for stream in ready]

    def _recall(self, journeys: list[Journey]) -> None:
        """Let workers end, and give them a moment to tidy up."""
        for journey in journeys:
            journey.close()
            self._ray.cancel(journey.stream)
        if journeys:
            ends = [journey.stream.completed() for journey in journeys]
            self._ray.wait(ends, num_returns=len(ends), timeout=_RECALL_SECONDS)

    def _cores(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0))


def _knock(address: str) -> None:
    """Refuse an address that does not answer; Ray itself would try for many minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_SECONDS).close()


def _import_ray() -> ModuleType:
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("Ray", extra="ray", purpose="--on ray") from error
    return ray
