"""The runs of an experiment: their folders, and how to run them side by side."""

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import active_children, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeVar

from fedmuster.core.errors import ConfigError, FedmusterWarning, StateError
from fedmuster.core.files import write_file
from fedmuster.experiments.journal import Standing, standing
from fedmuster.experiments.run import SPEC_NAME, execute, prepare
from fedmuster.experiments.spec import Experiment

EXPERIMENT_NAME = "experiment.toml"

T = TypeVar("T")

Cells = Mapping[Path, Experiment]
"""Runs by folder: each an experiment with one policy and one seed."""

Progress = Callable[[dict[Path, Standing]], None]
"""Called now and then with how far the run in each folder is."""

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_GRACE_SECONDS = 3.0
"""How long a worker that must stop may go on with a round before it is ended."""
_LOOK_SECONDS = 1.0
"""After this time a worker notices that its parent has died."""


def lay_out(folder: Path, experiment: Experiment) -> Cells:
    """Write the specs of an experiment and its cells; extend the experiment in the folder, if any.

    Cells that are there stay as they are, and continue where the end is later than before. See
    :meth:`Experiment.extended` for what can be added.
    """
    if (folder / SPEC_NAME).exists():
        raise StateError(
            f"{folder} holds a single run, not an experiment: continue it with `fedmuster resume "
            f"{folder}`, or choose another folder with --out"
        )
    if (folder / EXPERIMENT_NAME).exists():
        try:
            experiment = _load(folder).extended(experiment)
        except ConfigError as error:
            raise ConfigError(
                f"{folder} holds an experiment that does not fit: {error}. Choose another folder "
                "with --out",
                key=error.key,
            ) from error
    return _write(folder, experiment)


def lay_out_or_complete(folder: Path, experiment: Experiment) -> Cells:
    """As :func:`lay_out`, but an experiment that is there must be this very one."""
    if (folder / EXPERIMENT_NAME).exists() and _load(folder) != experiment:
        raise StateError(
            f"{folder} holds another experiment: remove it or choose another folder with --out"
        )
    return _write(folder, experiment)


def find_cells(folder: Path) -> Cells:
    """The runs of an experiment, or a single run, by folder. Writes nothing."""
    if (folder / SPEC_NAME).is_file():
        return {folder: Experiment.load(folder / SPEC_NAME, reading=True)}
    if (folder / EXPERIMENT_NAME).is_file():
        cells = _cells(folder, _load(folder))
        there = {path.parent for path in folder.glob(f"*/*/{SPEC_NAME}")}
        if unknown := sorted(there - cells.keys()):
            raise StateError(
                f"{folder / EXPERIMENT_NAME} does not name the run in {unknown[0]}: restore it, "
                "or move that run away"
            )
        return {path: cell for path, cell in cells.items() if path in there}
    raise StateError(f"{folder} is no run: it holds neither {EXPERIMENT_NAME} nor {SPEC_NAME}")


def complete(folder: Path) -> Cells:
    """As :func:`find_cells`, after writing what is missing if laying out was cut short."""
    if (folder / EXPERIMENT_NAME).is_file():
        return _write_cells(folder, _load(folder))
    return find_cells(folder)


def _load(folder: Path) -> Experiment:
    return Experiment.load(folder / EXPERIMENT_NAME, reading=True)


def _cells(folder: Path, experiment: Experiment) -> dict[Path, Experiment]:
    return {folder / path: cell for path, cell in experiment.cells().items()}


def _write(folder: Path, experiment: Experiment) -> Cells:
    write_file(folder / EXPERIMENT_NAME, experiment.to_toml().encode())
    return _write_cells(folder, experiment)


def _write_cells(folder: Path, experiment: Experiment) -> Cells:
    """Write the specs of cells that have none, or one with an earlier end."""
    cells = _cells(folder, experiment)
    for path, cell in cells.items():
        spec = path / SPEC_NAME
        if spec.exists():
            if spec.read_bytes() == cell.to_toml().encode():
                continue
            try:
                Experiment.load(spec, reading=True).extended(cell)
            except ConfigError as error:
                raise ConfigError(
                    f"{spec} does not fit the experiment: {error}", key=error.key
                ) from error
        prepare(path, cell)
    return cells


def unfinished(cells: Cells) -> dict[Path, Experiment]:
    """The runs that are not over, neither by their horizon nor before it."""

    def goes_on(cell: Experiment, run: Standing) -> bool:
        return run.ending is None and not cell.horizon.reached(run.rounds, run.elapsed_seconds)

    return {path: cell for path, cell in cells.items() if goes_on(cell, standing(path))}


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


def run_cells(cells: Cells, *, processes: int | None = None, progress: Progress) -> None:
    """Run (or continue) all cells that are not finished, in processes of one thread each.

    When this is interrupted or a cell fails, the others commit the rounds that they have played
    and stop.
    """
    todo = unfinished(cells)
    for cell in todo.values():
        cell.require_available()
    try:
        run_side_by_side(
            _execute,
            list(todo),
            processes=processes,
            tick=lambda: progress({path: standing(path) for path in cells}),
        )
    except BrokenProcessPool as error:
        raise StateError(
            "a worker process died (killed, or out of memory): nothing is lost, continue with "
            "`fedmuster resume` on the same folder"
        ) from error


def run_side_by_side(
    work: Callable[[T], object],
    jobs: Sequence[T],
    *,
    processes: int | None = None,
    tick: Callable[[], None],
) -> None:
    """Call ``work`` with each job, in processes of one thread each.

    When this is interrupted or a job fails, the worker processes stop: a job that can be cut short
    asks :func:`still_wanted`, others are ended after a moment.

    Args:
        work: a function that another process can import.
        jobs: what it is called with, one after the other; they are pickled.
        processes: how many; None for one per core.
        tick: called now and then, to show progress.

    Raises:
        BrokenProcessPool: a worker process died.
    """
    if not jobs:
        return
    context = get_context("spawn")
    leash, ours = context.Pipe(duplex=False)
    workers = min(processes or os.cpu_count() or 1, len(jobs))
    pool = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_obey, initargs=(leash, os.getpid())
    )
    others = set(active_children())
    with pool, leash, ours:
        try:
            with one_thread_for_children(), _no_interrupts_for_children():
                waiting = {pool.submit(work, job) for job in jobs}  # starts the workers
            while waiting:
                done, waiting = wait(waiting, timeout=0.2, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                tick()
        except BaseException:
            ours.close()
            pool.shutdown(wait=False, cancel_futures=True)
            _end(set(active_children()) - others)
            raise


def _end(workers: Iterable[BaseProcess]) -> None:
    """Wait a moment until these have stopped by themselves, and kill those that have not.

    In a long call of a library, a worker hears nothing. What it has committed is safe.
    """
    until = time.monotonic() + _GRACE_SECONDS
    for worker in workers:
        worker.join(max(0.0, until - time.monotonic()))
        worker.kill()


@contextmanager
def _no_interrupts_for_children() -> Iterator[None]:
    """Ctrl-C reaches the whole process group; workers stop when their parent says so."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# In a worker.

_told_to_stop = threading.Event()


def still_wanted() -> bool:
    """Whether anybody waits for what this worker process does."""
    return not _told_to_stop.is_set()


def _obey(leash: Connection, parent: int) -> None:
    """Stop when the other end of ``leash`` is closed, or when the parent has died.

    A process that the parent has started may hold that end, too, and live on.
    """

    def stop() -> None:
        with suppress(EOFError, OSError):
            while os.getppid() == parent and not leash.poll(_LOOK_SECONDS):
                pass
        _told_to_stop.set()
        time.sleep(_GRACE_SECONDS)
        os._exit(1)  # committed rounds are safe

    threading.Thread(target=stop, daemon=True).start()


def _execute(folder: Path) -> None:
    warnings.simplefilter("ignore", FedmusterWarning)  # the rehearsal has said it
    execute(folder, wanted=still_wanted)
