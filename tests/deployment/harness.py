"""A real federation on loopback: a SuperLink, SuperNodes and their apps as processes of their own.

Everything lives in one folder (database, keys, logs, FLWR_HOME) and on free ports, so federations
do not meet. What Flower starts by itself is known by its environment, which names the folder, or by
its process group; all of it is killed at the end.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from claims.flower import loopback
from claims.flower.loopback import as_option, free_ports, kill_all, processes
from flwr.proto.control_pb2 import ListRunsRequest, StreamLogsRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from tests.forks import FORKS

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# Tasks are picked up soon, by processes that do not spend their time on asking for them.
SETTINGS = {
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ADDRESS": "local",  # whatever cluster somebody else may have started here
    "PYTHONUNBUFFERED": "1",
}


def environment(home: Path) -> dict[str, str]:
    """What every process of the federation that lives in `home` finds in its environment."""
    state = str(home.parent / "state")  # what fedmuster keeps of ledgers outside of them
    return {**loopback.environment(home), **SETTINGS, "FEDMUSTER_STATE": state}


def wait_until(condition: Callable[[], bool], *, seconds: float, what: str) -> float:
    """Wait for something to happen; how long it took."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > seconds:
            raise TimeoutError(f"no {what} within {seconds:.0f} s")
        time.sleep(0.4)
    return time.monotonic() - start


def settings_line(settings: Mapping[str, str | float]) -> str:
    """As Flower's command line takes settings: `client-id="a" slowness=0.5`."""
    return as_option({key.replace("_", "-"): value for key, value in settings.items()})


class Simulator:
    """`flwr run --stream` of apps with simulated nodes, as their READMEs say.

    With the first one Flower starts a local SuperLink, which serves the later ones too.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = ("FLWR_LOCAL_SUPERLINK_HTTP_API_PORT", "FLWR_LOCAL_CONTROL_API_PORT")
        ports = dict(zip(names, map(str, free_ports(2)), strict=True))
        self.environment = environment(folder / "home") | ports

    def run(self, app: Path, *, nodes: int, seconds: float) -> str:
        """Run an app to its end; what was printed."""
        # Of all cores Ray would make use, with a process for each that imports everything.
        resources = "client-resources-num-cpus=1 init-args-num-cpus=1"
        command = ["flwr", "run", str(app), "--stream"]
        command += ["--federation-config", f"num-supernodes={nodes} {resources}"]
        return _output(command, self.folder, self.environment, seconds=seconds)

    def close(self) -> None:
        """Kill the SuperLink, and whatever else is left."""
        while kill_all(self.folder / "home"):
            time.sleep(0.05)


def _output(
    command: Sequence[str], folder: Path, surroundings: dict[str, str], *, seconds: float
) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=surroundings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}")
    return done.stdout


class Federation:
    """One SuperLink and its SuperNodes. `secure`: TLS, and only registered keys may connect."""

    def __init__(self, folder: Path, *, secure: bool = False) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.keys = folder / "keys"
        self.secure = secure
        self.environment = environment(self.home)
        (self.port,) = free_ports(1)
        self.superlink: subprocess.Popen[bytes] | None = None
        self.supernodes: dict[str, ForkServerProcess] = {}
        how = f'root-certificates = "{self.keys}/ca.crt"' if secure else "insecure = true"
        loopback.write_connection(self.home, self.port, how)
        if secure:
            maker = EXAMPLES / "flower-deployment" / "make_keys.py"
            subprocess.run([sys.executable, maker, self.keys, "8"], check=True)

    def close(self) -> None:
        """Kill whatever is left."""
        for name in self.supernodes:
            self.kill_supernode(name)
        while kill_all(self.home):
            time.sleep(0.05)
        if self.superlink is not None:
            self.superlink.wait()
        self._control.close()

    # ── SuperLink ────────────────────────────────────────────────────────────────────────────

    def start_superlink(self, *, seconds: float = 60.0) -> None:
        """Start the SuperLink (again, on the same database), and wait until it answers."""
        certificates = ["--ssl-ca-certfile", f"{self.keys}/ca.crt"]
        certificates += ["--ssl-certfile", f"{self.keys}/server.pem"]
        certificates += ["--ssl-keyfile", f"{self.keys}/server.key", "--enable-supernode-auth"]
        command = ["flower-superlink", "--port", str(self.port)]
        command += ["--database", str(self.folder / "state.db")]
        with (self.folder / "superlink.log").open("ab") as log:
            self.superlink = subprocess.Popen(
                [*command, *(certificates if self.secure else ["--insecure"])],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=self.environment,
                start_new_session=True,
            )
        wait_until(self._answers, seconds=seconds, what="answer of the SuperLink")

    def _answers(self) -> bool:
        assert self.superlink is not None
        assert self.superlink.poll() is None, self.log("superlink")
        return loopback.listens(self.port)

    def kill_superlink(self) -> None:
        """`kill -9` the SuperLink."""
        assert self.superlink is not None
        self.superlink.kill()
        self.superlink.wait()

    # ── SuperNodes ───────────────────────────────────────────────────────────────────────────

    def register(self, name: str) -> None:
        """Tell the SuperLink that the holder of this key may connect."""
        self.flwr("supernode", "register", f"{self.keys}/{name}.pub")

    def start_supernode(self, name: str, **config: str | float) -> None:
        """Start a SuperNode with this node config."""
        key = ["--auth-supernode-private-key", f"{self.keys}/{name}"]
        safety = ["--root-certificates", f"{self.keys}/ca.crt", *key]
        arguments = ["--superlink", f"127.0.0.1:{self.port}"]
        arguments += ["--node-config", settings_line(config)]
        arguments += safety if self.secure else ["--insecure"]
        from tests.deployment.warm import run_supernode  # imports half of Flower

        self.supernodes[name] = FORKS.Process(
            target=run_supernode,
            args=(arguments, free_ports(1)[0], self.folder / f"{name}.log", self.environment),
        )
        self.supernodes[name].start()

    def stop_supernode(self, name: str) -> None:
        """Stop a SuperNode as an operator would; the SuperLink knows at once."""
        self.supernodes[name].terminate()
        self.supernodes[name].join(timeout=30)
        self.kill_supernode(name)  # what may be left of it

    def kill_supernode(self, name: str) -> None:
        """`kill -9` a SuperNode and the processes that it started."""
        process = self.supernodes[name]
        assert process.pid is not None
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()  # it may not have had the time to become the head of a group
        process.join()

    def wait_for_supernodes(self, *, seconds: float = 60.0) -> float:
        """Wait until all SuperNodes are connected; since its last start every one says so."""

        def everybody() -> bool:
            last = (
                self.log(name).split("Starting Flower SuperNode")[-1] for name in self.supernodes
            )
            return all("SuperNode ID" in said for said in last)

        return wait_until(everybody, seconds=seconds, what="connection of all SuperNodes")

    # ── runs ─────────────────────────────────────────────────────────────────────────────────

    def flwr(self, *arguments: str, seconds: float = 60.0) -> str:
        """Run a flwr command; what it printed."""
        return _output(["flwr", *arguments], self.folder, self.environment, seconds=seconds)

    def submit(self, app: Path, **config: str | float) -> int:
        """`flwr run` the app in this folder; the id of the run."""
        options = ["--run-config", settings_line(config)] if config else []
        said = self.flwr("run", str(app), "here", "--format", "json", *options)
        return int(json.loads(said[said.index("{") :])["run-id"])

    @cached_property
    def _control(self) -> ControlHttpClient:
        """What the flwr command uses; to start that costs two seconds of processor time."""
        return ControlHttpClient.from_server_address(
            f"127.0.0.1:{self.port}",
            not self.secure,
            (self.keys / "ca.crt").read_bytes() if self.secure else None,
            [RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )

    def status(self, run: int) -> str:
        """What the SuperLink says about a run: pending, running, finished:completed, …"""
        status = self._control.ListRuns(ListRunsRequest(run_id=run)).run_dict[run].status
        return f"{status.status}:{status.sub_status}" if status.sub_status else str(status.status)

    def run_log(self, run: int) -> str:
        """What the ServerApp of a run has logged so far, as `flwr log` shows it."""
        if not self.status(run).startswith(("running", "finished")):
            return ""
        request = StreamLogsRequest(run_id=run, after_timestamp=0.0)
        with closing(self._control.StreamLogs(request)) as answers:
            return str(next(answers).log_output)

    def log(self, name: str) -> str:
        """What a process said: "superlink", or the name of a SuperNode."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def serverapp(self) -> int:
        """The id of the process of the ServerApp that runs now."""
        (only,) = processes(self.home, "flwr-serverapp")
        return only

    def wait_for_log(self, run: int, text: str, *, seconds: float = 300.0) -> None:
        """Wait until the ServerApp of a run has logged this."""

        def said() -> bool:
            over = self.status(run).startswith("finished")
            log = self.run_log(run)
            if over and text not in log:
                raise RuntimeError(f"run {run} ended without {text!r} in its log:\n{log}")
            return text in log

        wait_until(said, seconds=seconds, what=f"{text!r} in the log")

    def wait_for_run(self, run: int, *, seconds: float) -> str:
        """Wait for the end of a run; its status."""

        def finished() -> bool:
            return self.status(run).startswith("finished")

        wait_until(finished, seconds=seconds, what="end of the run")
        return self.status(run)


@contextmanager
def federation(folder: Path, *, secure: bool = False) -> Iterator[Federation]:
    """A federation whose processes do not outlive the block."""
    one = Federation(folder, secure=secure)
    try:
        one.start_superlink()
        yield one
    finally:
        one.close()
