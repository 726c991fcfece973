"""Processes that share the clients of a round. Needs PyTorch."""

import math
import os
import pickle
import signal
import traceback
from collections.abc import Iterator
from contextlib import suppress
from ctypes import c_char
from dataclasses import dataclass, fields
from multiprocessing import connection, get_context
from multiprocessing.process import BaseProcess
from typing import Any, Final, NoReturn

import numpy as np
import torch

from fedmuster.core.arrays import IntArray
from fedmuster.core.errors import ConfigError, StateError
from fedmuster.training.engines.torch_models import Build, Replica, Task
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.training_records import FederatedData, Parameters

_LOOK_SECONDS: Final = 1.0
"""After this time a worker notices that its parent has died."""

_Array = np.ndarray[Any, np.dtype[Any]]


class Workers:
    """Processes with a replica each, over data and parameters that all of them share.

    They are spawned, since a fork of a process with threads may hang. The shared memory is
    anonymous (:mod:`multiprocessing.sharedctypes`), so nothing is left behind however a process
    ends; and a worker ends by itself when its parent is gone. Another process must be able to
    import ``build``; ``size`` is that of the parameter vector.
    """

    def __init__(
        self, count: int, build: Build, data: FederatedData, local: LocalSGD, seed: int, size: int
    ) -> None:
        _require_importable(build)
        context = get_context("spawn")
        arrays = {item.name: _share(getattr(data, item.name)) for item in fields(data)}
        # What nobody here holds is given to the next engine, whose data would overwrite it.
        self._held = arrays
        start = _share(np.zeros(size, dtype=np.float32))
        self._start = start.array()
        self._deltas: list[Parameters] = []
        self._pipes: list[connection.Connection[Any, Any]] = []
        self._processes: list[BaseProcess] = []
        try:
            for number in range(count):
                delta = _share(np.zeros(size, dtype=np.float32))
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=_work,
                    args=(theirs, build, arrays, local, seed, start, delta),
                    name=f"fedmuster-worker-{number}",
                    daemon=True,
                )
                process.start()
                theirs.close()  # so that we hear of it when the worker dies
                self._deltas.append(delta.array())
                self._pipes.append(ours)
                self._processes.append(process)
            for number in range(count):
                self._receive(number)  # it is ready
        except BaseException:
            self.close()
            raise

    def run(
        self, parameters: Parameters, tasks: list[Task], order: IntArray
    ) -> Iterator[tuple[int, list[float], Parameters]]:
        """Position, result and update of each task, begun in this ``order``, in any order of ends.

        The update is to be copied before going on.
        """
        if not self._processes:
            raise StateError("TorchEngine: its workers were closed; make a new engine")
        self._start[:] = parameters
        waiting = order.tolist()[::-1]
        busy: dict[int, int] = {}  # worker: position of its task
        finished = False
        try:
            for number in range(min(len(self._pipes), len(waiting))):
                busy[number] = waiting.pop()
                self._send(number, tasks[busy[number]])
            while busy:
                ready = connection.wait([self._pipes[number] for number in busy])
                for number in [n for n in busy if self._pipes[n] in ready]:
                    result = self._receive(number)
                    yield busy.pop(number), result, self._deltas[number]
                    if waiting:
                        busy[number] = waiting.pop()
                        self._send(number, tasks[busy[number]])
            finished = True
        finally:
            if not finished:  # a late result must not be taken for that of the next task
                self.close()

    def close(self) -> None:
        """End the processes. May be called again."""
        processes, self._processes = self._processes, []
        for pipe in self._pipes:
            pipe.close()
        for process in processes:
            # One that is idle ends by itself, one that calculates would keep us waiting.
            process.join(timeout=0.1)
            process.terminate()
            process.join()
            process.close()
        self._pipes = []

    def _send(self, number: int, task: Task) -> None:
        try:
            self._pipes[number].send(task)
        except OSError:
            self._mourn(number)

    def _receive(self, number: int) -> list[float]:
        try:
            answer = self._pipes[number].recv()
        except (EOFError, OSError):
            self._mourn(number)
        if isinstance(answer, Exception):
            raise answer
        result: list[float] = answer
        return result

    def _mourn(self, number: int) -> NoReturn:
        process = self._processes[number]
        process.join(timeout=5)
        raise StateError(
            f"TorchEngine: worker process {number} died (exit code {process.exitcode}; killed, or "
            "out of memory?): make a new engine, with fewer workers if memory is short. A script "
            "that uses workers must start them below `if __name__ == '__main__':`"
        ) from None


@dataclass(frozen=True, slots=True, eq=False)
class _Shared:
    """An array in memory that spawned processes share."""

    memory: Any
    dtype: str
    shape: tuple[int, ...]

    def array(self) -> _Array:
        return np.frombuffer(self.memory, dtype=self.dtype, count=math.prod(self.shape)).reshape(
            self.shape
        )


def _share(value: Any) -> Any:
    """``value``, if it is an array in shared memory."""
    if not isinstance(value, np.ndarray):
        return value
    memory = get_context("spawn").RawArray(c_char, max(value.nbytes, 1))
    shared = _Shared(memory, value.dtype.str, value.shape)
    shared.array()[...] = value
    return shared


def _require_importable(build: Build) -> None:
    try:
        pickle.dumps(build)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"TorchEngine: workers > 1 need a network that other processes can import; {build!r} "
            f"is not ({error}). Give a network of fedmuster.training.networks (OwnModel for your "
            "own) or a function at the top level of a module, or set workers = 1",
            key=("workers",),
        ) from None


def _work(
    pipe: "connection.Connection[Any, Any]",
    build: Build,
    arrays: dict[str, Any],
    local: LocalSGD,
    seed: int,
    start: _Shared,
    delta: _Shared,
) -> None:
    """The loop of a worker: say that it is ready, then do tasks until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and ends us
    torch.set_num_threads(1)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone
        try:
            values: dict[str, Any] = {
                name: value.array() if isinstance(value, _Shared) else value
                for name, value in arrays.items()
            }
            replica = Replica(build, FederatedData(**values), local, seed)
            replica.use(start.array(), delta.array())
            pipe.send([])
            parent = os.getppid()
            while True:
                while not pipe.poll(_LOOK_SECONDS):  # other processes may hold its other end
                    if os.getppid() != parent:
                        return
                pipe.send(replica.run(pipe.recv()))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:
            pipe.send(_portable(error))


def _portable(error: Exception) -> Exception:
    """The error, if it comes out of a pipe as it went in; otherwise its text."""
    text = f"in a worker process:\n{traceback.format_exc()}"
    error.add_note(text)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(text)
    return error
