"""A cell's way through the cluster, from its folder and back into it."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from fedmuster.core.errors import FedmusterError, StateError
from fedmuster.experiments.journal import Journal, Standing, standing
from fedmuster.experiments.one_thread import ONE_THREAD
from fedmuster.experiments.ray_cluster.images import image_of, put
from fedmuster.experiments.ray_cluster.worker import News, play
from fedmuster.experiments.run import SPEC_NAME
from fedmuster.learning.sources.folders import DATA_FOLDER_VARIABLE

_LOG: Final = logging.getLogger("fedmuster")
_MOST_DEATHS: Final = 3
"""Of a cell's workers in a row, none of which came a round further."""


class Journey:
    """Begins at once; until it is closed, nobody else can run the cell.

    Args:
        ray: the library, connected.
        cell: its folder.
        bits: see :func:`play`.
        every_seconds: see :func:`play`.
    """

    def __init__(
        self, ray: ModuleType, cell: Path, *, bits: Mapping[str, str] | None, every_seconds: float
    ) -> None:
        self.cell = cell
        self.standing: Standing = standing(cell)
        self.ended_on: str | None = None
        """The node where the cell was finished, when it is."""
        self._ray = ray
        self._bits = bits
        self._every_seconds = every_seconds
        self._deaths = 0
        self._journal = Journal(cell)
        try:
            self.stream = self._send()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others run the cell."""
        self._journal.__exit__(None, None, None)

    def receive(self) -> None:
        """Write down what its worker tells; if that has died, go on with another."""
        errors = self._ray.exceptions
        try:
            news: News = self._ray.get(next(self.stream))
        except (errors.RayTaskError, errors.TaskCancelledError) as error:
            raise FedmusterError(
                f"{self.cell}: a worker could not play it. Is fedmuster installed on that node, "
                f"in the version of this one? Ray says: {error}"
            ) from error
        except (errors.RayError, StopIteration) as error:
            self._note_death(error)
            self.stream = self._send()
            return
        if "error" in news:
            raise FedmusterError(f"{self.cell}, on node {news['node']}: {news['error']}")
        if "image" in news:
            put(self.cell, news["image"])
            before, self.standing = self.standing, standing(self.cell)
            if self.standing != before:
                self._deaths = 0
        if "done" in news:
            self.ended_on = news["node"]

    def _send(self) -> Any:
        remote = self._ray.remote(play).options(
            name=f"fedmuster {self.cell}",
            num_cpus=1,
            num_returns="streaming",
            max_retries=0,  # Ray would begin again with this image, we with the newest
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": _environment()},
        )
        spec = (self.cell / SPEC_NAME).read_bytes()
        return remote.remote(spec, image_of(self.cell), self._bits, self._every_seconds)

    def _note_death(self, error: Exception) -> None:
        self._deaths += 1
        if self._deaths >= _MOST_DEATHS:
            raise StateError(
                f"{self.cell}: {self._deaths} workers died (killed, out of memory, or their nodes "
                f"are gone) without getting a round further, the last one so: {error}\nNothing is "
                "lost, continue with `fedmuster resume` on the same folder"
            ) from error
        _LOG.warning(
            "%s: its worker died (%s); another one continues after round %d",
            self.cell,
            str(error).partition("\n")[0],
            self.standing.rounds,
        )


def _environment() -> dict[str, str]:
    """What must be set before a worker loads numpy, and where the data are."""
    variables = dict(ONE_THREAD)
    if folder := os.environ.get(DATA_FOLDER_VARIABLE):
        variables[DATA_FOLDER_VARIABLE] = str(Path(folder).expanduser().resolve())
    return variables
