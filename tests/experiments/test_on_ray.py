"""Sweeps on a Ray cluster: what travels, what is refused, and two nodes that are killed."""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedmuster import PAUSE
from fedmuster.core.errors import ConfigError, MissingExtraError, StateError
from fedmuster.experiments import cell_images, ray_journey, run
from fedmuster.experiments.cell_images import bits_here, image_of, put
from fedmuster.experiments.journal import Journal, JournalReader, rounds_done
from fedmuster.experiments.ray_cluster import RayCluster, check_can_travel
from fedmuster.experiments.ray_journey import News, play
from fedmuster.experiments.run import SPEC_NAME, execute, prepare
from fedmuster.experiments.spec import LEDGER_NAME, Experiment
from fedmuster.experiments.sweep import find_cells
from fedmuster.privacy.budget import Privacy
from fedmuster.privacy.ledger import verify
from fedmuster.training.data import MNIST
from fedmuster.training.models import MLP
from fedmuster.training.networks import BSFLCNN
from fedmuster.training.training import Training
from fedmuster.worlds import BSFLRates, PauseGroups, TraceWorld

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROUNDS = 30

SPEC = """
rounds = 250
seeds = [0, 1, 2]

[world]
name = "pause-groups"

[training]
model = { name = "mlp", hidden = [8] }

[privacy]
epsilon = 40.0
mechanism = { name = "laplace", clip = 0.01 }

[[policy]]
name = "pause"
"""

RESUME = """
import sys
from pathlib import Path
from fedmuster.experiments.ray_cluster import RayCluster
from fedmuster.experiments.sweep import complete
with RayCluster(sys.argv[1], every_seconds=0.1) as cluster:
    cluster.run_cells(complete(Path("cut")), progress=lambda _: None)
"""


def private_cell(**changes: Any) -> Experiment:
    settings: dict[str, Any] = {
        "policies": {"pause": PAUSE()},
        "world": PauseGroups(),
        "rounds": ROUNDS,
        "privacy": Privacy(epsilon=40.0),
        "training": Training(model=MLP(hidden=(4,))),
    }
    return Experiment(**{**settings, **changes})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("undisturbed")
    prepare(folder, private_cell())
    execute(folder)
    return JournalReader(folder).digest()


@pytest.fixture(autouse=True)
def frequent_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_COMMIT_SECONDS", 0.0)


class TestImages:
    def test_an_image_fits_together_though_the_run_goes_on_meanwhile(
        self, tmp_path: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home, away = tmp_path / "home", tmp_path / "away"
        for folder in (home, away):
            prepare(folder, private_cell())
        snapshot = cell_images._snapshot

        def snapshot_and_go_on(path: Path) -> bytes:
            image = snapshot(path)
            rounds = rounds_done(home)
            execute(home, wanted=lambda: rounds_done(home) == rounds)
            return image

        execute(home, wanted=lambda: rounds_done(home) == 0)
        monkeypatch.setattr(cell_images, "_snapshot", snapshot_and_go_on)
        image = image_of(home)
        monkeypatch.undo()
        put(away, image)
        assert rounds_done(away) < rounds_done(home)
        execute(away)
        assert JournalReader(away).digest() == undisturbed
        assert verify(away / LEDGER_NAME).faults == []

    @pytest.mark.parametrize(
        ("first", "survived"),
        [*((True, steps) for steps in range(6)), *((False, steps) for steps in range(4))],
    )
    def test_a_driver_that_dies_between_two_files_leaves_a_run_that_goes_on(
        self,
        tmp_path: Path,
        undisturbed: str,
        monkeypatch: pytest.MonkeyPatch,
        first: bool,
        survived: int,
    ) -> None:
        home, away = tmp_path / "home", tmp_path / "away"
        for folder in (home, away):
            prepare(folder, private_cell())
        with Journal(home):
            put(away, image_of(home))
        execute(away, wanted=lambda: False)
        newer = image_of(away)
        if not first:
            put(home, newer)
            execute(away, wanted=lambda: rounds_done(away) < ROUNDS // 2)
            newer = image_of(away)
            assert 0 < rounds_done(away) < ROUNDS

        steps = iter(range(survived))
        for name in ("write_file", "_replace"):
            whole = getattr(cell_images, name)

            def step(*arguments: Any, whole: Any = whole) -> None:
                if next(steps, None) is None:
                    raise InterruptedError
                whole(*arguments)

            monkeypatch.setattr(cell_images, name, step)
        try:
            put(home, newer)
            assert survived == (5 if first else 3)
        except InterruptedError:
            assert survived < (5 if first else 3)
        monkeypatch.undo()
        execute(home)
        assert JournalReader(home).digest() == undisturbed
        assert verify(home / LEDGER_NAME).faults == []

    def test_a_log_that_a_killed_process_left_is_part_of_the_image(self, tmp_path: Path) -> None:
        code = (
            "import os, sys; from pathlib import Path; from fedmuster.experiments.run import *;"
            "from fedmuster.experiments.journal import standing;"
            "folder = Path(sys.argv[1]); prepare.__globals__.update(_COMMIT_SECONDS=0.0);"
            "execute(folder, wanted=lambda: standing(folder).rounds < 2 or os._exit(0))"
        )
        prepare(tmp_path / "home", private_cell())
        subprocess.run([sys.executable, "-c", code, str(tmp_path / "home")], check=True)
        assert (tmp_path / "home" / "journal.sqlite-wal").stat().st_size > 0
        image = image_of(tmp_path / "home")
        put(tmp_path / "home", image)  # onto the file that the log belongs to
        (tmp_path / "away").mkdir()
        put(tmp_path / "away", image)
        away, home = (JournalReader(tmp_path / name) for name in ("away", "home"))
        assert len(away) == len(home) > 0
        assert away.digest() == home.digest()


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"privacy": Privacy(noise="secure")}, "does not travel"),
            ({"privacy": Privacy(ledger="/somewhere/ledger.sqlite")}, "leave ledger out"),
            ({"world": TraceWorld(path="traces/latency.csv")}, "world.path = .* absolute path"),
            ({"training": Training(data=MNIST(folder="mnist"))}, "training.data.folder"),
        ],
    )
    def test_what_other_machines_do_not_have(self, changes: dict[str, Any], said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            check_can_travel(private_cell(**changes))

    def test_what_does_travel(self) -> None:
        check_can_travel(private_cell())
        check_can_travel(private_cell(training=Training(data=MNIST(folder="~/mnist"))))
        unprotected = frozenset({"pause"})
        check_can_travel(private_cell(privacy=Privacy(noise="secure"), unprotected=unprotected))
        check_can_travel(replace(private_cell(), training=None, world=BSFLRates(), privacy=None))

    def test_without_ray(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "ray", None)
        with pytest.raises(MissingExtraError, match=r"pip install 'fedmuster\[ray\]'"):
            RayCluster()

    @pytest.mark.parametrize(
        ("address", "said"),
        [("ray://head:10001", "on a machine of the cluster"), ("127.0.0.1:1", "ray start --head")],
    )
    def test_without_a_cluster(self, address: str, said: str) -> None:
        with pytest.raises(StateError, match=said), RayCluster(address):
            pass


class TestWorker:
    @pytest.fixture(autouse=True)
    def node(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Path]:
        """Its temporary folder, which must be empty afterwards."""
        temporary = tmp_path_factory.mktemp("node")
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        monkeypatch.setattr(ray_journey, "_name_of_this_node", lambda: "node-7")
        monkeypatch.setattr(ray_journey, "_POLL_SECONDS", 0.01)
        yield temporary
        assert list(temporary.iterdir()) == []

    def told(
        self, cell: Experiment, bits: dict[str, str] | None = None, *, every_seconds: float = 0.02
    ) -> list[News]:
        return list(play(cell.to_toml().encode(), {}, bits, every_seconds))

    def test_what_killed_workers_left_is_removed(self, node: Path) -> None:
        for name in ("of-a-killed-worker", "new", "in-use"):
            (node / f"fedmuster-cell-{name}" / "cell").mkdir(parents=True)
            (node / f"fedmuster-cell-{name}" / "in-use").touch()
        for name in ("of-a-killed-worker", "in-use"):
            os.utime(node / f"fedmuster-cell-{name}" / "in-use", (0, 0))
        with (node / "fedmuster-cell-in-use" / "in-use").open() as mark:
            fcntl.flock(mark, fcntl.LOCK_EX)
            self.told(private_cell(rounds=1))
        left = sorted(folder.name for folder in node.iterdir())
        assert left == ["fedmuster-cell-in-use", "fedmuster-cell-new"]
        for folder in node.iterdir():
            shutil.rmtree(folder)

    def test_images_come_while_it_plays(self, tmp_path: Path, undisturbed: str) -> None:
        *played, end = self.told(private_cell(), bits_here(networks=False))
        assert end == {"node": "node-7", "done": True}
        rounds = []
        prepare(tmp_path, private_cell())
        for news in played:
            put(tmp_path, news["image"])
            rounds.append(rounds_done(tmp_path))
        assert rounds == sorted(rounds)
        assert any(0 < number < ROUNDS for number in rounds)
        assert JournalReader(tmp_path).digest() == undisturbed

    def test_the_first_image_is_from_before_anybody_is_debited(self, tmp_path: Path) -> None:
        first, last, _ = self.told(private_cell(), every_seconds=600.0)
        for news, rounds in ((first, 0), (last, ROUNDS)):
            put(tmp_path, news["image"])
            assert rounds_done(tmp_path) == rounds
            assert (verify(tmp_path / LEDGER_NAME).debits > 0) == (rounds > 0)

    def test_another_version_is_refused(self) -> None:
        bits = {**bits_here(networks=True), "numpy": "1.0", "torch": "1.0"}
        (news,) = self.told(private_cell(), bits)
        assert news["node"] == "node-7"
        for part in ("numpy ", "(here: 1.0)", "torch", "--mixed-versions"):
            assert part in news["error"]
        assert "python" not in news["error"]

    def test_data_that_the_node_does_not_have(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FEDMUSTER_DATA", str(tmp_path))
        training = Training(data=MNIST(folder=str(tmp_path / "nothing")), model=BSFLCNN())
        *_, news = self.told(private_cell(training=training))
        assert "nothing (no such folder)" in news["error"]

    def test_an_unforeseen_error_comes_with_its_trace(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(folder: Path, **_: Any) -> None:
            raise ZeroDivisionError(f"in {folder / SPEC_NAME}")

        monkeypatch.setattr(ray_journey, "execute", fail)
        *_, news = self.told(private_cell())
        assert news["error"].endswith("ZeroDivisionError: in spec.toml\n")
        assert "Traceback" in news["error"]


ENVIRONMENT = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "COLUMNS": "160"}


class Node:
    """``ray start``, and everything that it starts, in a process group of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.log = folder / "log"
        command = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", *options),
            *("--num-cpus=1", f"--temp-dir={folder}/ray", "--object-store-memory=100000000"),
            *("--include-log-monitor=false", "--block"),
        ]
        folder.mkdir()
        environment = {**ENVIRONMENT, "TMPDIR": str(folder)}  # where killed workers leave things
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, start_new_session=True, stdout=log, stderr=log, env=environment
            )

    def wait_until_up(self) -> str:
        """What it printed."""
        while "Ray runtime started" not in (text := self.log.read_text()):
            assert self.process.poll() is None, text
            time.sleep(0.1)
        return text

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@contextmanager
def two_nodes() -> Iterator[tuple[str, Node]]:
    """The address of a cluster on loopback, and the one of its nodes that is not its head."""
    with (
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as name,
        ExitStack() as stack,
    ):  # not in tmp_path: sockets need short names
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        head = Node(
            Path(name) / "a",
            *("--head", "--port=0", "--include-dashboard=false"),
            f"--ray-client-server-port={port}",
        )
        stack.callback(head.kill)
        address = head.wait_until_up().partition("--address='")[2].partition("'")[0]
        second = Node(Path(name) / "b", f"--address={address}")
        stack.callback(second.kill)
        second.wait_until_up()
        yield address, second


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def python(tmp_path: Path) -> Iterator[Start]:
    """Starts Python with such arguments; what still runs in the end is killed."""
    with ExitStack() as stack:

        def start(*arguments: str) -> "subprocess.Popen[str]":
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=tmp_path,
                env=ENVIRONMENT,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return process

        yield start


def succeed(process: "subprocess.Popen[str]") -> str:
    out, complaint = process.communicate(timeout=600)
    assert process.returncode == 0, complaint
    return out


def wait_for(process: "subprocess.Popen[str]", condition: Callable[[], bool]) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def played_by(node: Node) -> Path | None:
    """The folder of the cell that is there just now: Ray calls the worker by it."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            title = (process / "cmdline").read_text().strip("\0")
            if "::fedmuster " in title and os.getpgid(int(process.name)) == node.process.pid:
                return Path(title.partition(" ")[2])
    return None


def test_two_nodes_give_the_bits_of_one_machine_whoever_is_killed(
    tmp_path: Path, python: Start
) -> None:
    (tmp_path / "sweep.toml").write_text(SPEC)
    local = python("-m", "fedmuster", "run", "sweep.toml", "--out=local")
    with two_nodes() as (address, second):
        succeed(local)
        on_ray = ("--on=ray", f"--ray-address={address}")

        short = ("bsfl", "random", "--world=bsfl-rates", "--rounds=80", "--seeds=3", "--out=short")
        out = succeed(python("-m", "fedmuster", "compare", *short, *on_ray))
        assert "a Ray cluster of 2 nodes with 2 cores" in out
        assert out.count("runs ended on") == 2
        for cell in find_cells(tmp_path / "short"):
            again = tmp_path / "again" / cell.relative_to(tmp_path / "short")
            prepare(again, Experiment.load(cell / SPEC_NAME))
            execute(again)
            assert JournalReader(cell).digest() == JournalReader(again).digest()

        driver = python("-m", "fedmuster", "run", "sweep.toml", "--out=cut", *on_ray)
        cells = [tmp_path / "cut" / "pause" / f"seed-{seed}" for seed in range(3)]
        wait_for(driver, lambda: any(map(rounds_done, cells)))
        driver.kill()
        driver.communicate()
        before = {cell: rounds_done(cell) for cell in cells}

        def second_came_further() -> bool:
            cell = played_by(second)
            return cell is not None and rounds_done(tmp_path / cell) > before[tmp_path / cell]

        resumed = python("-c", RESUME, address)
        wait_for(resumed, second_came_further)
        second.kill()
        _, complaints = resumed.communicate(timeout=600)
        assert resumed.returncode == 0, complaints
        assert "another one continues after round" in complaints

    for whole, cell in zip(find_cells(tmp_path / "local"), cells, strict=True):
        assert JournalReader(cell).digest() == JournalReader(whole).digest()
        assert verify(cell / LEDGER_NAME).faults == []
