"""``fedmuster list`` and ``fedmuster show``."""

import itertools
import shlex
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from fedmuster import BSFL, POLICIES
from fedmuster.cli import cli, display
from fedmuster.cli.list_command import registries
from fedmuster.core.config import named, parse_settings
from fedmuster.core.errors import UnknownNameError

OUTSIDE = '''
from dataclasses import dataclass
from typing import ClassVar
from fedmuster import Random

@dataclass(frozen=True, kw_only=True)
class EpsGreedy(Random):
    """Mostly the best.

    Args:
        epsilon: how often not.
    """
    name: ClassVar[str] = "eps-greedy"
    epsilon: float = 0.25
'''


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "console", Console(width=80))


def told(*arguments: str) -> str:
    return CliRunner().invoke(cli, arguments, catch_exceptions=False).output


def test_the_overview_is_short_and_names_everything() -> None:
    out = told("list")
    assert len(out.splitlines()) < 40
    for kind, classes in registries().items():
        assert f"{kind} ({len(classes)}):" in out
        for name in classes:
            assert name in out  # in one piece


@pytest.mark.parametrize("kind", list(registries()))
def test_a_kind_is_listed_with_a_line_on_each(kind: str) -> None:
    out = told("list", kind)
    rows = [line.split("│")[1].strip() for line in out.splitlines() if line.startswith("│")]
    assert [row for row in rows if row] == list(registries()[kind])
    assert max(map(len, out.splitlines())) <= 80


def test_papers_are_listed() -> None:
    shown = told("list", "policies")
    assert "Ben Ami" in " ".join(shown.split())
    assert "2025" in shown


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, classes in registries().items() for name in classes]
)
def test_what_is_shown_can_be_written(kind: str, name: str) -> None:
    """The TOML of ``show``, where nothing is left to fill in, is the default."""
    out = told("show", name)
    assert "Settings" in out or "(" in out
    if kind == "policies":
        shown = out.split("In a spec (TOML)\n")[1].splitlines()
        spec = itertools.takewhile(lambda line: line.startswith("  "), shown)
        lines = [line.strip() for line in spec if "…" not in line]
        (table,) = tomllib.loads("\n".join(lines))["policy"]
        assert named(POLICIES, table, key=(), what="policy") == POLICIES[name]()


def test_a_policy_is_shown_with_settings_paper_and_deviations() -> None:
    out = " ".join(told("show", "bsfl").split())
    assert f"alpha: a number; default {BSFL().alpha}" in out
    for word in ("Deviations 1. ", "References D. Ben Ami", "compare bsfl:alpha=2.0,beta=1.0"):
        assert word in out


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("triggers", {"buffer", "interval", "pace"}),
        ("staleness", {"constant", "discard", "hinge", "polynomial"}),
    ],
)
def test_parts_of_a_federation_are_listed(kind: str, names: set[str]) -> None:
    assert names <= set(registries()[kind])
    out = told("list", kind)
    assert all(name in out for name in names)


@pytest.mark.parametrize("name", ["buffer", "pace", "interval", "polynomial", "hinge"])
def test_parts_of_a_federation_are_shown_as_they_are_written(name: str) -> None:
    """The command line of ``show`` is one that ``compare`` reads."""
    (command,) = (line for line in told("show", name).splitlines() if "--federation" in line)
    settings = shlex.split(command)[-1]
    (part,) = (key for key in parse_settings(settings) if key in ("trigger", "staleness"))
    table = parse_settings(settings)[part]
    config = registries()["triggers" if part == "trigger" else "staleness"][name]
    assert named({name: config}, table, key=(), what=part) == config()


def test_a_class_from_a_file_is_shown(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OUTSIDE)
    out = told("show", f"{tmp_path / 'mine.py'}:EpsGreedy")
    assert "a policy" in out
    assert "epsilon: a number; default 0.25" in out


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="'bsfl'"):
        told("show", "bsfll")
