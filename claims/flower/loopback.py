"""A federation of real processes on this machine: SuperLink, SuperNodes, and the apps they start.

Flower's own commands with Flower's own waiting, unencrypted over loopback. Everything is in one
folder and on free ports, so that federations side by side never meet.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from fedmuster.core.errors import StateError

Settings = Mapping[str, str | float]
"""Of a node or a run, as in ``--node-config`` and ``--run-config``."""

_ENVIRONMENT: Final = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_CONNECTED = "SuperNode ID"
"""What a SuperNode logs once the SuperLink knows it."""
_LOOK_SECONDS = 0.2
_PORTS = threading.Lock()
_given_out: set[int] = set()
_SHOWN_LINES = 20


class Loopback:
    """A running federation, see :func:`loopback`."""

    def __init__(self, folder: Path, ports: Sequence[int]) -> None:
        self._folder = folder
        self._home = folder / "home"
        self._port, *self._node_ports = ports
        self._environment = environment(self._home)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        write_connection(self._home, self._port, "insecure = true")

    def start(self, nodes: Sequence[Settings], *, seconds: float) -> None:
        """Start everything, and wait until all SuperNodes are connected."""
        until = time.monotonic() + seconds
        self._spawn("superlink", ["flower-superlink", "--insecure", "--port", str(self._port)])
        self._await("superlink", self._listens, until)
        for number, (node, port) in enumerate(zip(nodes, self._node_ports, strict=True)):
            superlink = ["--superlink", f"127.0.0.1:{self._port}", "--insecure"]
            own = ["--port", str(port), "--node-config", as_option(node)]
            self._spawn(f"supernode-{number}", ["flower-supernode", *superlink, *own])
        for number in range(len(nodes)):
            self._await(f"supernode-{number}", self._is_connected, until)

    def run(self, app: Path, settings: Settings, *, seconds: float) -> str:
        """``flwr run`` an app until it ends, well or badly; what the ServerApp logged.

        Raises:
            StateError: if it cannot be run, or is not done after so many seconds.
        """
        command = ["flwr", "run", str(app), "here", "--stream"]
        try:
            done = subprocess.run(
                [*command, "--run-config", as_option(settings)],
                cwd=self._folder,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=seconds,
                check=True,
            )
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
            said = end_of((error.stdout or b"").decode(errors="replace"))
            raise StateError(f"a run on loopback: {error}\n{said}") from error
        return done.stdout.decode(errors="replace")

    def close(self) -> None:
        """Kill whatever is left, also what Flower has started by itself."""
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self._processes.values():
            process.wait()
        # The SuperLink's SuperExec has a session of its own and may outlive its parent.
        while kill_all(self._home):
            time.sleep(_LOOK_SECONDS)

    def _spawn(self, name: str, command: Sequence[str]) -> None:
        with self._log_of(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=self._environment,
                start_new_session=True,
            )

    def _await(self, name: str, ready: Callable[[str], bool], until: float) -> None:
        while not ready(name):
            ended = self._processes[name].poll() is not None
            if ended or time.monotonic() > until:
                said = self._log_of(name).read_text(encoding="utf-8", errors="replace")
                what = "ended" if ended else "is not ready in time"
                raise StateError(f"the {name} on loopback {what}:\n{end_of(said)}")
            time.sleep(_LOOK_SECONDS)

    def _listens(self, _: str) -> bool:
        return listens(self._port)

    def _is_connected(self, name: str) -> bool:
        return _CONNECTED in self._log_of(name).read_text(encoding="utf-8", errors="replace")

    def _log_of(self, name: str) -> Path:
        return self._folder / f"{name}.log"


@contextmanager
def loopback(
    folder: Path, nodes: Sequence[Settings], *, seconds: float = 120.0
) -> Iterator[Loopback]:
    """A federation whose processes do not outlive the block.

    Args:
        folder: for its logs and what Flower keeps; it must not exist yet.
        nodes: the ``--node-config`` of each SuperNode.
        seconds: how long it may take until all are connected.

    Example::

        with loopback(folder, [{"partition-id": 0}, {"partition-id": 1}]) as federation:
            federation.run(Path("my-app"), {"num-server-rounds": 3}, seconds=300)
    """
    federation = Loopback(folder, free_ports(1 + len(nodes)))
    try:
        federation.start(nodes, seconds=seconds)
        yield federation
    finally:
        federation.close()


def as_option(settings: Settings) -> str:
    """As Flower's command line takes settings.

    Example:
        >>> as_option({"client-id": "a", "seconds": 0.5})
        'client-id="a" seconds=0.5'
    """
    return " ".join(f"{key}={json.dumps(value)}" for key, value in settings.items())


def environment(home: Path) -> dict[str, str]:
    """The environment of every process of the federation that lives in ``home``."""
    home.mkdir(parents=True, exist_ok=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, **_ENVIRONMENT, "PATH": path, "FLWR_HOME": str(home)}


def write_connection(home: Path, port: int, safety: str) -> None:
    """Tell the ``flwr`` command where the SuperLink is, and how the connection is protected."""
    (home / "config.toml").write_text(
        '[superlink]\ndefault = "here"\n\n'
        f'[superlink.here]\naddress = "127.0.0.1:{port}"\n{safety}\n',
        encoding="utf-8",
    )


def listens(port: int) -> bool:
    """Whether a process listens on a port of this machine."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def processes(home: Path, command: str = "") -> list[int]:
    """Ids of processes with this home in their environment and ``command`` in their command line.

    Found where /proc tells.
    """
    mark = f"FLWR_HOME={home}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile, or belongs to somebody else
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if line and command in line:  # a zombie has no line
                    found.append(int(entry.name))
    return found


def kill_all(home: Path, command: str = "") -> list[int]:
    """Kill the :func:`processes` with SIGKILL; their ids."""
    victims = processes(home, command)
    for victim in victims:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    return victims


def free_ports(count: int) -> list[int]:
    """Ports that no process listens on at this moment, and no other federation of ours will."""
    ports: list[int] = []
    with _PORTS, ExitStack() as probes:
        while len(ports) < count:
            probe = probes.enter_context(socket.socket())  # all stay open: none can come twice
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
            if port not in _given_out:
                ports.append(port)
        _given_out.update(ports)
    return ports


def end_of(said: str) -> str:
    """The last lines of a log, for messages."""
    return "\n".join(said.splitlines()[-_SHOWN_LINES:])
