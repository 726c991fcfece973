"""Run many cells side by side, in processes of one thread each."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from fedmuster.core.errors import StateError
from fedmuster.core.files import write_file
from fedmuster.experiments.journal import Standing, standing
from fedmuster.experiments.run import SPEC_NAME, execute, prepare
from fedmuster.experiments.spec import Experiment

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@contextmanager
def one_thread_for_children() -> Iterator[None]:
    """For processes that start meanwhile; our other children keep what they had."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# Run many cells side by side, in processes of one thread each.

EXPERIMENT_NAME = "experiment.toml"

Progress = Callable[[dict[Path, Standing]], None]
"""Called now and then with how far the run in each folder is."""


def lay_out(folder: Path, experiment: Experiment) -> list[Path]:
    """Write the spec of an experiment and of each of its cells; the cells' folders."""
    if (folder / EXPERIMENT_NAME).exists() or (folder / SPEC_NAME).exists():
        raise StateError(
            f"{folder} already holds an experiment: continue it with `fedmuster resume {folder}`, "
            "or choose another folder with --out"
        )
    write_file(folder / EXPERIMENT_NAME, experiment.to_toml().encode())
    return complete(folder)


def lay_out_or_complete(folder: Path, experiment: Experiment) -> list[Path]:
    """The same, but the folder may hold this very experiment already, finished or not."""
    if not (folder / EXPERIMENT_NAME).exists():
        return lay_out(folder, experiment)
    if Experiment.load(folder / EXPERIMENT_NAME) != experiment:
        raise StateError(
            f"{folder} holds another experiment: remove it or choose another folder with --out"
        )
    return complete(folder)


def find_cells(folder: Path) -> list[Path]:
    """The run folders of an experiment, or of a single run. Writes nothing."""
    if (folder / SPEC_NAME).is_file():
        return [folder]
    if (folder / EXPERIMENT_NAME).is_file():
        cells = Experiment.load(folder / EXPERIMENT_NAME).cells()
        return [folder / path for path in cells if (folder / path / SPEC_NAME).is_file()]
    raise StateError(f"{folder} is no run: it holds neither {EXPERIMENT_NAME} nor {SPEC_NAME}")


def complete(folder: Path) -> list[Path]:
    """As :func:`find_cells`, after writing what is missing if laying out was cut short."""
    if (folder / EXPERIMENT_NAME).is_file():
        for path, cell in Experiment.load(folder / EXPERIMENT_NAME).cells().items():
            if not (folder / path / SPEC_NAME).exists():
                prepare(folder / path, cell)
    return find_cells(folder)


def run_cells(cells: Iterable[Path], *, processes: int | None = None, progress: Progress) -> None:
    """Run (or continue) all cells that are not finished."""
    cells = list(cells)
    workers = min(processes or os.cpu_count() or 1, len(cells))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        with one_thread_for_children():  # they are started with the first of these
            waiting = {pool.submit(_execute_for, os.getpid(), cell) for cell in cells}
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=0.2, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                progress({cell: standing(cell) for cell in cells})
        except BrokenProcessPool as error:
            raise StateError(
                "a worker process died (killed, or out of memory): nothing is lost, continue with "
                "`fedmuster resume` on the same folder"
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _execute_for(parent: int, cell: Path) -> None:
    """Not for longer than that process lives: ``resume`` could not have the journal."""
    execute(cell, wanted=lambda: os.getppid() == parent)
