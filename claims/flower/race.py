"""Runs one Flower app with every contestant in turn, in real federations of processes."""

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path

import numpy as np

from fedmuster.core.errors import StateError
from fedmuster.core.records import FloatArray, IntArray

_APP = "claims.flower.app"
_PACKAGE = "digits_race"
_PYPROJECT = f"""\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "digits-race"
version = "1.0.0"
description = "Digits, learned by nodes of different speed"
license = "Apache-2.0"
dependencies = ["fedmuster[flower]"]

[tool.flwr.app]
publisher = "fedmuster"

[tool.flwr.app.components]
serverapp = "{_PACKAGE}.server_app:app"
clientapp = "{_PACKAGE}.client_app:app"

[tool.flwr.app.config]
policy = ""
folder = ""
notes = ""
seed = 0
nodes = 2
cohort-size = 2
rounds = 1
"""
_NOTES, _SETTING = "rounds.jsonl", "setting.json"
_START_SECONDS, _ROUND_SECONDS = 300.0, 60.0
"""What a run may take, beside the slowest node's time in each round, before it is given up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Race:
    """The runs of a race: policies, nodes, rounds and seeds.

    Args:
        policies: who chooses, by label, as ``Muster`` reads it; empty for Flower's own sampling.
        node_seconds: how long training takes at each node.
        cohort_size: m.
        rounds: of each run.
        seeds: of data, model and choices.
    """

    policies: Mapping[str, str]
    node_seconds: tuple[float, ...]
    cohort_size: int
    rounds: int
    seeds: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Track:
    """One run, from the first row, before training, to the last round.

    Args:
        seconds: [R+1], wall-clock, since the initial model was evaluated.
        accuracy: [R+1], on the test set.
        chosen: who trained in each of the R rounds: m nodes, unless one of them failed.
    """

    seconds: FloatArray
    accuracy: FloatArray
    chosen: tuple[IntArray, ...]

    @classmethod
    def read(cls, path: Path) -> "Track":
        """Read a track from the notes of a ServerApp."""
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return cls(
            seconds=np.array([line["seconds"] for line in lines]),
            accuracy=np.array([line["accuracy"] for line in lines]),
            chosen=tuple(np.array(line["clients"], dtype=np.int64) for line in lines[1:]),
        )

    @property
    def rounds(self) -> int:
        """The number of rounds, R."""
        return len(self.chosen)

    @property
    def round_seconds(self) -> FloatArray:
        """[R], how long each round took."""
        return np.diff(self.seconds)

    def rounds_to(self, accuracy: float) -> int | None:
        """The first round that reaches it; None if none does."""
        good = np.flatnonzero(self.accuracy >= accuracy)
        return int(good[0]) if len(good) else None

    def seconds_to(self, accuracy: float) -> float:
        """Until the end of that round; infinite if there is none."""
        first = self.rounds_to(accuracy)
        return np.inf if first is None else float(self.seconds[first])


Tracks = Mapping[str, Sequence[Track]]
"""Of each contestant, by seed."""


def run_race(race: Race, folder: Path) -> Tracks:
    """Run what is not finished yet, and read all.

    Each seed has a federation of its own, in which one run follows the other; the federations are
    side by side, for most of the time their nodes sleep. Each begins with another contestant, so
    that whatever else the machine does at a time is not always to the same one's cost. A run that
    was interrupted starts again: time that stood still would be no wall-clock time.
    """
    labels = list(race.policies)
    cells = {
        seed: {
            label: folder / f"{_slug(label)}-seed-{seed}"
            for label in (*labels[place % len(labels) :], *labels[: place % len(labels)])
        }
        for place, seed in enumerate(race.seeds)
    }
    missing = {
        seed: {
            label: cell
            for label, cell in of_seed.items()
            if not _is_finished(cell, race, label, seed)
        }
        for seed, of_seed in cells.items()
    }
    with ThreadPoolExecutor(len(race.seeds)) as federations:
        list(federations.map(partial(_run, race), missing, missing.values()))
    return {
        label: tuple(Track.read(cells[seed][label] / _NOTES) for seed in race.seeds)
        for label in race.policies
    }


def _run(race: Race, seed: int, cells: Mapping[str, Path]) -> None:
    """One run after the other, in one federation."""
    if not cells:
        return
    from claims.flower.loopback import end_of, loopback
    from fedmuster.flower.strategy_loop import say  # here, because they need Flower

    nodes: list[dict[str, str | float]] = [
        {"partition-id": number, "client-id": f"client-{number + 1}", "seconds": seconds}
        for number, seconds in enumerate(race.node_seconds)
    ]
    most = _START_SECONDS + race.rounds * (_ROUND_SECONDS + max(race.node_seconds))
    # Elsewhere, and not in the folder of the runs: sockets and keys are of no interest later.
    with tempfile.TemporaryDirectory(prefix="fedmuster-race-") as name:
        app = _lay_out_app(Path(name) / "app")
        with loopback(Path(name) / "federation", nodes, seconds=_START_SECONDS) as federation:
            for label, cell in cells.items():
                if cell.exists():
                    shutil.rmtree(cell)
                cell.mkdir(parents=True)
                (cell / _SETTING).write_text(_setting(race, label, seed), encoding="utf-8")
                logged = federation.run(
                    app,
                    {
                        "policy": race.policies[label],
                        "folder": str(cell.absolute()),
                        "notes": _NOTES,
                        "seed": seed,
                        "nodes": len(nodes),
                        "cohort-size": race.cohort_size,
                        "rounds": race.rounds,
                    },
                    seconds=most,
                )
                (cell / "server-app.log").write_text(logged, encoding="utf-8")
                if not _is_finished(cell, race, label, seed):
                    raise StateError(
                        f"{label}, seed {seed}: the ServerApp ended before round {race.rounds}:\n"
                        f"{end_of(logged)}"
                    )
                seconds = Track.read(cell / _NOTES).seconds[-1]
                say(f"{label}, seed {seed}: {race.rounds} rounds in {seconds:.0f} s")


def _lay_out_app(folder: Path) -> Path:
    """The app in a folder of its own, as a user would have it."""
    (folder / _PACKAGE).mkdir(parents=True)
    (folder / "pyproject.toml").write_text(_PYPROJECT, encoding="utf-8")
    for file in resources.files(_APP).iterdir():
        if file.name.endswith(".py"):
            text = file.read_text(encoding="utf-8")
            (folder / _PACKAGE / file.name).write_text(text, encoding="utf-8")
    return folder


def _is_finished(cell: Path, race: Race, label: str, seed: int) -> bool:
    """Whether this very run is there, to its last round."""
    try:
        setting = (cell / _SETTING).read_text(encoding="utf-8")
        rounds = Track.read(cell / _NOTES).rounds
    except (OSError, ValueError, KeyError):  # not begun, or killed in the middle of a line
        return False
    return setting == _setting(race, label, seed) and rounds == race.rounds


def _setting(race: Race, label: str, seed: int) -> str:
    return json.dumps(
        {
            "policy": race.policies[label],
            "node_seconds": race.node_seconds,
            "cohort_size": race.cohort_size,
            "rounds": race.rounds,
            "seed": seed,
        }
    )


def _slug(label: str) -> str:
    return label.lower().replace("'", "").replace(" ", "-")
