"""The README's example runs as it stands."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedmuster.experiments.spec import Experiment

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)
    assert found is not None
    return found[1]


def test_the_python_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(block("python"), names)
    assert names["selector"].round == 101
    assert (tmp_path / "selector.npz").is_file()


def test_the_spec() -> None:
    assert len(Experiment.from_table(tomllib.loads(block("toml"))).cells()) == 15
