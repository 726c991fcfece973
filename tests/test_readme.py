"""The examples of README and docs run as they stand."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedmuster.experiments.spec import Experiment

ROOT = Path(__file__).parent.parent


def blocks(language: str, page: str = "README.md") -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_the_python_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(blocks("python")[0], names)
    assert names["selector"].round == 101
    assert (tmp_path / "selector.npz").is_file()


def test_the_spec() -> None:
    assert len(Experiment.from_table(tomllib.loads(blocks("toml")[0])).cells()) == 15


def test_the_spec_of_a_training() -> None:
    experiment = Experiment.from_table(tomllib.loads(blocks("toml", "docs/training.md")[0]))
    experiment.rehearse()
    assert experiment.training is not None


def test_your_own_model() -> None:
    in_a_file, in_a_simulation, by_hand, *_ = blocks("python", "docs/own-model.md")
    names: dict[str, Any] = {}
    exec(in_a_file, names)
    assert names["make"]((1, 8, 8), 10) is not None
    exec(in_a_simulation, names)
    assert names["rows"][-1].learning.accuracy > 0.6
    exec(by_hand, names)
    assert names["engine"].evaluate(names["model"]).accuracy > 0.8
