"""SuperNodes that start at once: forked from a process that has imported everything they need.

A flower-supernode of its own costs two processes of two seconds of processor time, and every
message another one for its ClientApp. Here a fork server (multiprocessing's own) imports Flower
once; a SuperNode is a fork of it and runs Flower's own code with `--isolation process`, and its
ClientApps are forks again. Only waiting is different: nobody polls less often than every 0.4 s.
"""

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import flwr.supercore.superexec.run_superexec as superexec
import flwr.supernode.start_client_internal as supernode
import numpy as np
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
from flwr.supercore.superexec.executor.types import ExecutionSpec, LaunchResult
from flwr.supernode.cli.flower_supernode import flower_supernode
from flwr.supernode.runtime.run_clientapp import run_clientapp

np.random.default_rng()  # numpy.random is imported lazily, and every app needs it

POLL_SECONDS = 0.4


class ForkExecutor(SubprocessExecutor):
    """Starts a ClientApp as a fork of this process."""

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        """Run the ClientApp of this task in a child."""
        if os.fork() == 0:
            run_clientapp(spec.runtime_api_address, spec.token, insecure=True)
            os._exit(0)
        return LaunchResult.accepted()


def run_supernode(arguments: list[str], port: int, log: Path, environment: dict[str, str]) -> None:
    """Be a SuperNode: to be called in a process of its own, which it never leaves."""
    os.setsid()  # so that a SuperNode and its apps can be killed together
    os.environ.update(environment)
    os.chdir(log.parent)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    if os.fork() == 0:
        with mock.patch.object(superexec, "get_executor", return_value=ForkExecutor()):
            superexec.run_superexec(f"127.0.0.1:{port}", insecure=True, parent_pid=os.getppid())
        os._exit(0)
    sys.argv = ["flower-supernode", *arguments, "--port", str(port), "--isolation", "process"]
    impatient = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, POLL_SECONDS)))
    with mock.patch.object(supernode, "time", impatient):
        flower_supernode()
