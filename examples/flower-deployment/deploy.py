"""Run this app in a federation of separate processes on this machine: python deploy.py FOLDER.

A SuperLink with TLS, a database and node authentication; three SuperNodes of different speeds. In
the second round a SuperNode that trains is killed with `kill -9`, and started again until the
SuperLink takes it back (it holds the old connection for alive for up to a minute). A second `flwr
run` goes on where the first has ended, once all nodes are there again. README.md has the same by
hand.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from make_keys import make_certificates, make_node_key

APP = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
SLOWNESS = (0.0, 1.0, 2.0)  # seconds that each client needs more


class Federation:
    """The processes of a federation, whose files are all in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys = folder / "keys"
        self.closing = False
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.keys.mkdir(parents=True)
        make_certificates(self.keys)
        for node in range(len(SLOWNESS)):
            make_node_key(self.keys / f"node-{node}")
        self.address = f"127.0.0.1:{free_port()}"
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",  # where flwr and fedmuster are
            "FLWR_HOME": str(folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # all is installed
        }
        (folder / "flwr").mkdir()
        (folder / "flwr" / "config.toml").write_text(
            f'[superlink.here]\naddress = "{self.address}"\n'
            f'root-certificates = "{self.keys}/ca.crt"\n'
        )

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start a process in a group of its own; what it says goes to NAME.log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=self.environment,
                start_new_session=True,
            )
        return self.processes[name]

    def start_superlink(self) -> None:
        """Start the SuperLink, and wait until it answers."""
        host, port = self.address.split(":")
        certificates = ["--ssl-ca-certfile", f"{self.keys}/ca.crt"]
        certificates += ["--ssl-certfile", f"{self.keys}/server.pem"]
        certificates += ["--ssl-keyfile", f"{self.keys}/server.key"]
        options = ["--enable-supernode-auth", "--database", f"{self.folder}/state.db"]
        process = self.start(
            "superlink", "flower-superlink", "--port", port, *certificates, *options
        )
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
            except OSError:
                if process.poll() is not None:
                    sys.exit(f"the SuperLink did not start: see {self.folder}/superlink.log")
                time.sleep(0.2)
            else:
                return

    def register_nodes(self) -> None:
        """Tell the SuperLink whose keys it may trust; all at once, for it is slow."""
        for node in range(len(SLOWNESS)):
            key = f"{self.keys}/node-{node}.pub"
            self.start(f"register-{node}", "flwr", "supernode", "register", key, "here")
        for node in range(len(SLOWNESS)):
            if self.processes.pop(f"register-{node}").wait() != 0:
                sys.exit(f"node {node} was not registered: see {self.folder}/register-{node}.log")

    def start_supernode(self, node: int) -> subprocess.Popen[bytes]:
        """Start one SuperNode."""
        config = f"partition-id={node} num-partitions={len(SLOWNESS)} slowness={SLOWNESS[node]}"
        key = ["--auth-supernode-private-key", f"{self.keys}/node-{node}"]
        link = ["--superlink", self.address, "--root-certificates", f"{self.keys}/ca.crt"]
        options = ["--port", str(free_port()), "--node-config", config]
        return self.start(f"node-{node}", "flower-supernode", *link, *key, *options)

    def kill_supernode(self, node: int) -> None:
        """`kill -9` a SuperNode with all that it started."""
        process = self.processes[f"node-{node}"]
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def keep_alive(self, node: int) -> None:
        """Start a SuperNode again and again, as systemd would (Restart=always)."""
        while not self.closing:
            time.sleep(20)
            self.start_supernode(node).wait()

    def close(self) -> None:
        """Stop everything."""
        self.closing = True
        for process in list(self.processes.values()):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            process.wait()


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tell(text: str) -> None:
    """Say what this script does."""
    sys.stdout.write(f"── {text}\n")
    sys.stdout.flush()


def run_app(federation: Federation, *, rounds: int, kill_in: int | None = None) -> int:
    """Submit the run and show its log; kill a SuperNode that was chosen in this round."""
    tell(f"flwr run, to round {rounds}")
    run = subprocess.Popen(
        [
            "flwr",
            "run",
            str(APP),
            "here",
            "--stream",
            "--run-config",
            f"num-server-rounds={rounds}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=federation.folder,
        env=federation.environment,
    )
    assert run.stdout is not None
    node_of: dict[str, int] = {}
    for line in run.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        for name, partition in re.findall(r"(key-\w+) \(partition-(\d+)\)", line):
            node_of[name] = int(partition)
        chosen = re.search(rf"fedmuster: round {kill_in}: \w+ chose .*: (key-\w+)", line)
        if chosen:
            victim = node_of[chosen[1]]
            tell(f"kill -9 of node {victim}, and start it again until it is taken back")
            federation.kill_supernode(victim)
            threading.Thread(target=federation.keep_alive, args=(victim,), daemon=True).start()
    return run.wait()


def main() -> None:
    """Tell the whole story."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "federation").absolute()
    tell(f"keys and certificates in {folder}/keys")
    federation = Federation(folder)
    try:
        tell(f"SuperLink at {federation.address}")
        federation.start_superlink()
        tell(f"{len(SLOWNESS)} SuperNodes: registered, and started")
        federation.register_nodes()
        for node in range(len(SLOWNESS)):
            federation.start_supernode(node)
        run_app(federation, rounds=3, kill_in=2)
        run_app(federation, rounds=4)  # waits for all nodes, as before the first round
    finally:
        federation.close()
    tell(f"the run is in {folder}/run")
    report = ["fedmuster", "report", f"{folder}/run"]
    sys.exit(subprocess.run(report, env=federation.environment, check=False).returncode)


if __name__ == "__main__":
    main()
