import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedmuster import BSFL, Random
from fedmuster.core.errors import ConfigError, StateError
from fedmuster.core.policy import Policy
from fedmuster.experiments.run import SPEC_NAME
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.sweep import (
    EXPERIMENT_NAME,
    complete,
    find_cells,
    lay_out,
    lay_out_or_complete,
)
from fedmuster.federation import UNLIMITED, Horizon
from fedmuster.policies.genie import Genie
from fedmuster.solvers.annealing import Annealing

GOOD = """\
    rounds = 100
    seeds = [0, 1]

    [world]
    name = "bsfl-groups"
    num_clients = 50
    cohort_size = 5
    availability = { name = "bernoulli", probability = 0.5 }

    [reward]
    alpha = 3

    [[policy]]
    name = "bsfl"
    alpha = 3
    solver = { name = "annealing", steps = 50 }

    [[policy]]
    name = "bsfl"
    label = "exact"

    [[policy]]
    name = "random"
    """


def load(tmp_path: Path, text: str) -> Experiment:
    path = tmp_path / "spec.toml"
    path.write_text(textwrap.dedent(text))
    return Experiment.load(path)


def test_a_good_spec(tmp_path: Path) -> None:
    experiment = load(tmp_path, GOOD)
    expected: dict[str, Policy[Any]] = {
        "bsfl": BSFL(alpha=3.0, solver=Annealing(steps=50)),
        "exact": BSFL(),
        "random": Random(),
    }
    assert experiment.policies == expected
    assert experiment.seeds == (0, 1)
    assert isinstance(experiment.genie, Genie)
    assert experiment.genie.alpha == 3.0
    assert len(experiment.cells()) == 6


def test_runs_that_end_by_time_need_no_number_of_rounds(tmp_path: Path) -> None:
    experiment = load(tmp_path, GOOD.replace("rounds = 100", "seconds = 30.0"))
    assert experiment.horizon == Horizon(rounds=UNLIMITED, seconds=30.0)
    assert "rounds" not in experiment.to_table()
    assert load(tmp_path, experiment.to_toml()) == experiment


def test_written_and_read_back(tmp_path: Path) -> None:
    experiment = load(tmp_path, GOOD)
    assert load(tmp_path, experiment.to_toml()) == experiment


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("rounds = 100", "rounds = 0", 1, "rounds = 0, expected an integer >= 1"),
        ("rounds = 100", "rounds = 'many'", 1, "expected a whole number"),
        ("rounds = 100", "rounds = 100\n    colour = 1", 2, "unknown key 'colour'"),
        ("seeds = [0, 1]", "seeds = [0, 0]", 2, "distinct"),
        ("seeds = [0, 1]", "seeds = [-1]", 2, "integers >= 0"),
        ("seeds = [0, 1]", "seeds = []", 2, "distinct integers"),
        ("seeds = [0, 1]", "seed = 1\n    seeds = [0]", 2, "seed or seeds, not both"),
        ('name = "bsfl-groups"', 'name = "bsfl-grups"', 5, "did you mean 'bsfl-groups'"),
        ("num_clients = 50", "num_clients = -50", 6, "num_clients"),
        ("num_clients = 50", "num_clientss = 50", 6, "did you mean 'num_clients'"),
        ("probability = 0.5", "probability = 2", 8, "probability"),
        ("probability = 0.5", "chance = 0.5", 8, "unknown key 'chance'"),
        ("alpha = 3\n\n    [[policy]]", "alpha = nan\n\n    [[policy]]", 11, "alpha"),
        ("steps = 50", "steps = 0", 16, "steps"),
        ('label = "exact"', 'label = "bsfl"', 20, "two policies are called 'bsfl'"),
        ('label = "exact"', "label = 3", 20, "expected a string"),
        ('name = "random"', 'name = "randon"', 23, "did you mean 'random'"),
        ('name = "random"', "by_data = true", 22, "has no name"),
    ],
)
def test_errors_name_line_key_and_expectation(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    assert GOOD.count(old) == 1
    with pytest.raises(ConfigError, match=message) as caught:
        load(tmp_path, GOOD.replace(old, new))
    assert f"spec.toml, line {line}: " in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "missing key 'rounds'"),
        ("rounds = 1\n[world]\nname = 'bsfl-groups'", "missing key 'policy'"),
        ("rounds = = 1", "not valid TOML.*line 1"),
        ("rounds = 1\npolicy = 3\nworld = 'bsfl-groups'", "line 2: policy: expected a table"),
        ("rounds = 1\npolicy = []\nworld = 'bsfl-groups'", "no policy"),
        ("rounds = 1\npolicy = 'bsfl'\nworld = 'bsfl-groups'\nreward = 3", "line 4: reward"),
    ],
)
def test_specs_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, text)


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        Experiment.load(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError):
        Experiment.load(tmp_path / "binary.toml")


def test_an_experiment_is_laid_out_once(tmp_path: Path) -> None:
    experiment = load(tmp_path, GOOD)
    cells = lay_out(tmp_path / "run", experiment)
    assert len(cells) == 6
    assert lay_out(tmp_path / "run", experiment) == cells
    with pytest.raises(StateError):
        lay_out(next(iter(cells)), experiment)


def test_a_folder_of_another_experiment_is_not_taken_over(tmp_path: Path) -> None:
    experiment = load(tmp_path, GOOD)
    cells = lay_out_or_complete(tmp_path / "run", experiment)
    assert lay_out_or_complete(tmp_path / "run", experiment) == cells
    with pytest.raises(StateError):
        lay_out_or_complete(tmp_path / "run", replace(experiment, rounds=7))


@pytest.mark.parametrize("label", ["", ".", "..", "report", "a/b", "a\\b"])
def test_labels_cannot_leave_their_folder(tmp_path: Path, label: str) -> None:
    with pytest.raises(ConfigError, match="without slashes"):
        replace(load(tmp_path, GOOD), policies={label: BSFL()})


def test_an_experiment_cut_short_while_laid_out_is_completed(tmp_path: Path) -> None:
    experiment = load(tmp_path, GOOD)
    cells = lay_out(tmp_path / "run", experiment)
    first, *others = cells
    (others[2] / SPEC_NAME).unlink()
    assert len(find_cells(tmp_path / "run")) == 5  # reading writes nothing
    assert complete(tmp_path / "run") == cells
    assert find_cells(tmp_path / "run") == cells
    assert find_cells(first) == {first: cells[first]}
    with pytest.raises(StateError, match=EXPERIMENT_NAME):
        find_cells(tmp_path / "elsewhere")
