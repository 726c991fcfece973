"""The driver: sends cells to a Ray cluster and writes down what comes home."""

import logging
import os
import socket
import warnings
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final, Self

from fedmuster.core.errors import FedmusterError, MissingExtraError, StateError
from fedmuster.experiments.journal import Journal, Standing, standing
from fedmuster.experiments.ray_cluster.images import image_of, put
from fedmuster.experiments.ray_cluster.same_bits import bits_here
from fedmuster.experiments.ray_cluster.travel import check_can_travel
from fedmuster.experiments.ray_cluster.worker import News, play
from fedmuster.experiments.run import SPEC_NAME
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.sweep import ONE_THREAD, Progress
from fedmuster.learning.networks import NETWORKS
from fedmuster.learning.sources.folders import DATA_FOLDER_VARIABLE

_LOG: Final = logging.getLogger("fedmuster")

_POLL_SECONDS: Final = 0.2
_KNOCK_SECONDS: Final = 10.0
_RECALL_SECONDS: Final = 2.0
_WAITING: Final = 8
"""Cells that wait in the cluster for a free core, so that none idles and more nodes may come."""
_MOST_DEATHS: Final = 3
"""Of a cell's workers in a row, none of which came a round further."""


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
        self._address = address or "auto"
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ray.shutdown()

    def __str__(self) -> str:
        alive = sum(bool(node["Alive"]) for node in self._ray.nodes())
        return f"a Ray cluster of {alive} nodes with {self._cores()} cores"

    def run_cells(
        self, cells: Iterable[Path], *, processes: int | None = None, progress: Progress
    ) -> dict[Path, str]:
        """Run (or continue) all cells that are not finished; which node finished which.

        The same bits as :func:`fedmuster.experiments.sweep.run_cells`, and as safe: a driver, a
        worker or a node that dies costs the cells what they have not sent home, a few seconds.
        Workers and nodes that die are made good for here; after a driver, resume.

        Args:
            cells: their folders.
            processes: how many at a time; None for as many as the cluster has cores.
            progress: see :data:`Progress`.
        """
        specs = {cell: Experiment.load(cell / SPEC_NAME) for cell in cells}
        standings = {cell: standing(cell) for cell in specs}
        waiting = deque(cell for cell in specs if not _over(specs[cell], standings[cell]))
        for cell in waiting:
            check_can_travel(specs[cell])
        networks = any(_trains_network(specs[cell]) for cell in waiting)
        bits = None if self._mixed_versions else bits_here(networks=networks)
        journeys: dict[Any, _Journey] = {}
        finished: dict[Path, str] = {}
        try:
            while waiting or journeys:
                most = processes or self._cores() + _WAITING
                while waiting and len(journeys) < most:
                    cell = waiting.popleft()
                    journey = _Journey(cell, Journal(cell))  # nobody else runs it meanwhile
                    journeys[self._send(cell, bits)] = journey
                streams = list(journeys)
                ready, _ = self._ray.wait(streams, num_returns=len(streams), timeout=_POLL_SECONDS)
                for stream in ready:
                    journey = journeys.pop(stream)
                    news = self._receive(stream, journey)
                    if news is None:
                        journeys[self._send(journey.cell, bits)] = journey
                        continue
                    standings[journey.cell] = journey.arrive(news)
                    if "done" in news:
                        finished[journey.cell] = news["node"]
                        journey.journal.__exit__(None, None, None)
                    else:
                        journeys[stream] = journey
                progress(standings)
        finally:
            self._recall(list(journeys))
            for journey in journeys.values():
                journey.journal.__exit__(None, None, None)
        return finished

    def _send(self, cell: Path, bits: dict[str, str] | None) -> Any:
        remote = self._ray.remote(play).options(
            name=f"fedmuster {cell}",
            num_cpus=1,
            num_returns="streaming",
            max_retries=0,  # Ray would begin again with this image, we with the newest
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": _environment()},
        )
        spec = (cell / SPEC_NAME).read_bytes()
        return remote.remote(spec, image_of(cell), bits, self._every_seconds)

    def _receive(self, stream: Any, journey: "_Journey") -> News | None:
        """What a worker tells; None if it died, and another is to take over."""
        errors = self._ray.exceptions
        try:
            news: News = self._ray.get(next(stream))
        except (errors.RayTaskError, errors.TaskCancelledError) as error:
            raise FedmusterError(
                f"{journey.cell}: a worker could not play it. Is fedmuster installed on that node, "
                f"in the version of this one? Ray says: {error}"
            ) from error
        except (errors.RayError, StopIteration) as error:
            journey.die(error)
            return None
        return news

    def _recall(self, streams: list[Any]) -> None:
        """Let workers end, and give those a moment that have something to tidy up."""
        for stream in streams:
            self._ray.cancel(stream)
        if streams:
            ends = [stream.completed() for stream in streams]
            self._ray.wait(ends, num_returns=len(ends), timeout=_RECALL_SECONDS)

    def _cores(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0))


@dataclass(slots=True)
class _Journey:
    """A cell that is in the cluster."""

    cell: Path
    journal: Journal
    """Held, so that nobody else runs the cell."""
    deaths: int = 0

    def arrive(self, news: News) -> Standing:
        """Write down how far it is."""
        if "error" in news:
            raise FedmusterError(f"{self.cell}, on node {news['node']}: {news['error']}")
        before = standing(self.cell)
        if "image" in news:
            put(self.cell, news["image"])
        after = standing(self.cell)
        if after != before:
            self.deaths = 0
        return after

    def die(self, error: Exception) -> None:
        """Its worker, or the whole node, is gone."""
        self.deaths += 1
        if self.deaths == _MOST_DEATHS:
            raise StateError(
                f"{self.cell}: {self.deaths} workers died (killed, out of memory, or their nodes "
                f"are gone) without getting a round further, the last one so: {error}\nNothing is "
                "lost, continue with `fedmuster resume` on the same folder"
            ) from error
        _LOG.warning(
            "%s: its worker died (%s); another one continues after round %d",
            self.cell,
            str(error).partition("\n")[0],
            standing(self.cell).rounds,
        )


def _over(cell: Experiment, run: Standing) -> bool:
    return run.ending is not None or cell.horizon.reached(run.rounds, run.elapsed_seconds)


def _trains_network(cell: Experiment) -> bool:
    return cell.training is not None and cell.training.model.name in NETWORKS


def _environment() -> dict[str, str]:
    """What must be set before a worker loads numpy, and where the data are."""
    variables = dict(ONE_THREAD)
    if folder := os.environ.get(DATA_FOLDER_VARIABLE):
        variables[DATA_FOLDER_VARIABLE] = str(Path(folder).expanduser().resolve())
    return variables


def _knock(address: str) -> None:
    """Complain if nobody is there; Ray itself would try for many minutes."""
    address = os.environ.get("RAY_ADDRESS") or address if address == "auto" else address
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_SECONDS).close()


def _import_ray() -> ModuleType:
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("Ray", extra="ray", purpose="--on ray") from error
    return ray
