"""A world of somebody else: one short file, used in Python, in a spec and on the command line."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmuster import BSFL, Genie, Random
from fedmuster.core.config import named, to_table
from fedmuster.core.errors import ConfigError, UnknownNameError
from fedmuster.core.registry import outside_class
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Simulation
from fedmuster.worlds import WORLDS, Markov

MY_WORLD = '''
"""Clients that are slow in every second half of a day."""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from fedmuster.core.streams import LAYOUT, stream
from fedmuster.worlds import RoundDraw, Setting, WorldRun, speed_groups
from fedmuster.worlds.laws.latency import NormalLatency


@dataclass(frozen=True, kw_only=True, slots=True)
class MyWorld(Setting):
    """By day each client takes its mean; by night, twice as long."""

    name: ClassVar[str] = "my-world"

    num_clients: int = 12
    cohort_size: int = 3
    day_rounds: int = 10

    def start(self, seed: int) -> WorldRun:
        mean = stream(seed, LAYOUT).uniform(1.0, 5.0, self.num_clients)

        def clients(round_number: int, rng: np.random.Generator) -> RoundDraw:
            night = (round_number - 1) % self.day_rounds >= self.day_rounds // 2
            now = mean * (2.0 if night else 1.0)
            law = NormalLatency(mean=now, sd=0.1 * now, floor=0.5)
            return RoundDraw(
                latency_seconds=law.draw(rng), expectation=cache(lambda: self.truth(law, 0.5))
            )

        return self.begin(seed, clients, tau_min_seconds=0.5, groups=speed_groups(mean))
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_world.py").write_text(MY_WORLD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def world(folder: Path) -> Any:
    return outside_class("./my_world.py:MyWorld")


def test_it_is_played_and_judged(world: Any) -> None:
    simulation = Simulation(BSFL(), world(), seed=1, genie=Genie())
    rows = [simulation.step() for _ in range(40)]
    assert all(len(row.clients) == 3 and row.regret >= 0 for row in rows)
    seconds = np.array([row.seconds for row in rows]).reshape(4, 10)
    assert seconds[:, 5:].mean() > 1.5 * seconds[:, :5].mean()
    again: Simulation[Any] = Simulation("bsfl", "./my_world.py:MyWorld", seed=1, genie=Genie())
    assert [again.step().clients.tolist() for _ in range(40)] == [r.clients.tolist() for r in rows]


def test_it_has_the_fields_of_all_worlds(world: Any) -> None:
    mine = world(num_clients=6, dropout=0.5, deadline_seconds=4.0, availability=Markov())
    rows = [Simulation(Random(), mine, seed=seed).step() for seed in range(20)]
    assert min(row.num_available for row in rows) < 6
    assert max(row.seconds for row in rows) == 4.0
    with pytest.raises(ConfigError) as refused:
        world(cohort_size=0)
    assert refused.value.key == ("cohort_size",)


def test_settings_come_back_from_a_table(world: Any, folder: Path) -> None:
    table = to_table(world(day_rounds=4))
    assert table["name"] == f"{folder / 'my_world.py'}:MyWorld"
    assert named(WORLDS, table, key=(), what="world") == world(day_rounds=4)


def test_a_spec_names_its_file(folder: Path, world: Any) -> None:
    spec = folder / "spec.toml"
    table = '[world]\nname = "./my_world.py:MyWorld"\nday_rounds = 2\n'
    spec.write_text(f'rounds = 5\npolicy = ["random"]\n\n{table}')
    experiment = Experiment.load(spec)
    assert experiment.world == world(day_rounds=2)


def test_the_command_line_runs_it(folder: Path) -> None:
    command = ["compare", "random", "bsfl", "--world", "./my_world.py:MyWorld:day_rounds=4"]
    done = subprocess.run(
        [sys.executable, "-m", "fedmuster", *command, "--rounds", "6", "--out", "out"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "my_world.py:MyWorld" in next((folder / "out").rglob("spec.toml")).read_text()


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("./my_world.py:YourWorld", UnknownNameError),
        ("./no_world.py:MyWorld", UnknownNameError),
        ("./my_world.py:speed_groups", ConfigError),
        ("fedmuster.policies.bsfl:BSFL", ConfigError),
    ],
)
def test_a_wrong_address_is_refused(folder: Path, name: str, error: type[ConfigError]) -> None:
    with pytest.raises(error):
        Simulation(BSFL(), name, seed=1)
