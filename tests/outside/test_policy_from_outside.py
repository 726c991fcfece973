"""A policy in a package of somebody else's works wherever a built-in one does."""

import importlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fedmuster import Problem, Selector
from fedmuster.cli import cli
from fedmuster.core.config import from_text, to_table
from fedmuster.core.errors import ConfigError, UnknownNameError
from fedmuster.core.policy import POLICIES
from fedmuster.core.registry import Registry
from fedmuster.experiments.journal import JournalReader
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.sweep import EXPERIMENT_NAME, lay_out
from fedmuster.testing import check_policy

SOURCE = Path(__file__).parent / "eps_greedy.py"
ONE = ("--processes", "1")  # each imports for a second
WORLD = ("--world", "bsfl-groups:num_clients=20,cohort_size=4")
RUN = (*WORLD, "--rounds", "12", "--seeds", "1", *ONE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the file in it."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(SOURCE, tmp_path / "mine.py")
    return tmp_path


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An installed package that registers the policy through an entry point."""
    site = tmp_path / "site"
    (site / "strangers_policies").mkdir(parents=True)
    shutil.copy(SOURCE, site / "strangers_policies" / "__init__.py")
    info = site / "strangers_policies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: strangers-policies\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text(
        "[fedmuster.policies]\n"
        "eps-greedy = strangers_policies:EpsGreedy\n"
        "gone = strangers_policies:NotThere\n"
    )
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    importlib.invalidate_caches()
    forget_plugins(POLICIES)
    yield str(site)
    forget_plugins(POLICIES)


def forget_plugins(registry: Registry[Any]) -> None:
    """As in a process that has looked for no entry points yet."""
    registry._plugins = None
    registry.broken.clear()
    registry._classes.pop("eps-greedy", None)


def fedmuster(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(cli, list(arguments), catch_exceptions=True)
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.output


COMMANDS = """
import json, sys
from fedmuster.cli import main
if __name__ == "__main__":
    for arguments in json.loads(sys.argv.pop()):
        sys.argv[1:] = arguments
        try:
            main()
        except SystemExit as end:
            print("END", end.code or 0, flush=True)
"""


def in_fresh_process(folder: Path, *commands: list[str]) -> list[tuple[int, str]]:
    """How command lines end, and what they say, in one process that has not imported the file."""
    (folder / "commands.py").write_text(COMMANDS)
    program = [sys.executable, "commands.py", json.dumps(commands)]
    found = subprocess.run(
        program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder
    )
    assert found.returncode == 0, found.stdout
    said = re.findall(r"(.*?)END (\d)\n", found.stdout, flags=re.DOTALL)
    return [(int(code), "".join(text.split())) for text, code in said]


def cohorts(run: Path) -> list[list[int]]:
    return [clients.tolist() for clients in JournalReader(run).cohorts]


def test_it_keeps_the_contract() -> None:
    check_policy(from_text(POLICIES, f"{SOURCE}:EpsGreedy:epsilon=0.2"))


def test_a_file_on_the_command_line(folder: Path) -> None:
    fedmuster("compare", "./mine.py:EpsGreedy:epsilon=0.2", "random", *RUN, "--out", "runs")
    run = folder / "runs" / "EpsGreedy:epsilon=0.2" / "seed-0"
    before = cohorts(run)
    assert len(before) == 12
    fedmuster("report", "runs", "--format", "none")
    assert "EpsGreedy:epsilon=0.2" in (folder / "runs/report/report.html").read_text()
    assert "minus the mean" in " ".join(
        fedmuster("explain", str(run), "--round", "7", "--client", "3").replace("│", " ").split()
    )
    fedmuster("resume", "runs")
    assert cohorts(run) == before


def test_when_the_class_is_gone(folder: Path) -> None:
    fedmuster("compare", "./mine.py:EpsGreedy", "random", *RUN, "--out", "runs")
    experiment = Experiment.load(folder / "runs" / EXPERIMENT_NAME)
    lay_out(folder / "runs", replace(experiment, rounds=20))  # eight rounds are missing
    journal = folder / "runs/EpsGreedy/seed-0/journal.sqlite"
    before = journal.read_bytes()
    (folder / "mine.py").unlink()
    reported, explained, resumed = in_fresh_process(
        folder,
        ["report", "runs", "--format", "none"],
        ["explain", "runs/EpsGreedy/seed-0", "--round", "7"],
        ["resume", "runs"],
    )
    assert reported[0] == 0
    assert "EpsGreedy" in (folder / "runs/report/report.html").read_text()
    assert explained[0] == 0
    assert "mine.py:EpsGreedy" in explained[1]
    assert resumed[0] == 2
    assert "mine.py:EpsGreedy" in resumed[1]
    assert journal.read_bytes() == before
    assert len(cohorts(folder / "runs/EpsGreedy/seed-0")) == 12
    assert len(cohorts(folder / "runs/random/seed-0")) == 20  # whose class is there


def test_module_and_class_in_a_spec(folder: Path, package: str) -> None:
    (folder / "spec.toml").write_text(
        "rounds = 12\n[world]\nname = 'bsfl-groups'\nnum_clients = 20\ncohort_size = 4\n"
        "[[policy]]\nname = 'strangers_policies:EpsGreedy'\nepsilon = 0.2\n"
        "[[policy]]\nname = 'eps-greedy'\nlabel = 'by entry point'\nepsilon = 0.2\n"
        "[[policy]]\nname = 'lifted'\npolicy = { name = './mine.py:EpsGreedy', epsilon = 0.2 }\n"
    )
    fedmuster("run", "spec.toml", "--out", "runs", *ONE)
    runs = [
        cohorts(folder / "runs" / label / "seed-0")
        for label in ("eps-greedy", "by entry point", "lifted")
    ]
    assert runs[0] == runs[1] == runs[2]


def test_an_entry_point_is_listed_and_shown(package: str) -> None:
    assert "eps-greedy" in POLICIES
    assert "eps-greedy" in fedmuster("list", "policies")
    assert "failure_seconds" in fedmuster("show", "eps-greedy")
    assert "NotThere" in POLICIES.broken["gone"]
    with pytest.raises(UnknownNameError):
        from_text(POLICIES, "gone")
    assert to_table(from_text(POLICIES, "eps-greedy"))["name"] == "eps-greedy"


def test_a_selector_takes_text(folder: Path) -> None:
    problem = Problem(num_clients=20, cohort_size=4)
    cohort = Selector("./mine.py:EpsGreedy:epsilon=0.3", problem, seed=5).select()
    same = Selector(f"{SOURCE}:EpsGreedy:epsilon=0.3", problem, seed=5).select()
    assert cohort.clients.tolist() == same.clients.tolist()


@pytest.mark.parametrize(
    "text", ["./mine.py:NotThere", "no_such_module:Policy", "./none.py:Policy", "eps-gredy"]
)
def test_what_cannot_be_found(folder: Path, text: str) -> None:
    with pytest.raises(UnknownNameError) as found:
        from_text(POLICIES, text)
    assert found.value.key == ("name",)


def test_a_policy_without_the_usual_traits_is_refused(folder: Path) -> None:
    (folder / "bare.py").write_text(
        "from dataclasses import dataclass\n@dataclass(frozen=True, kw_only=True)\nclass Bare:\n"
        "    name = 'bare'\n"
        + "".join(f"    def {name}(self, *a): ...\n" for name in ("init", "select", "observe"))
    )
    with pytest.raises(ConfigError, match="PolicyTraits"):
        from_text(POLICIES, "./bare.py:Bare")


def test_an_explanation_admits_what_scores_do_not_explain(folder: Path) -> None:
    """EpsGreedy explores at times: then its cohort is not that of the highest scores."""
    fedmuster("compare", "./mine.py:EpsGreedy:epsilon=0.05", *RUN, "--out", "runs")
    run = str(folder / "runs" / "EpsGreedy:epsilon=0.05" / "seed-0")
    told = [
        " ".join(fedmuster("explain", run, "--round", str(number)).replace("│", " ").split())
        for number in range(6, 13)
    ]
    assert any("not choose by its score alone" in text for text in told)
    assert any("the highest scores are taken" in text for text in told)


def test_what_is_no_policy(folder: Path) -> None:
    for text in ("./mine.py:MeanSeconds", "./mine.py:np"):
        with pytest.raises(ConfigError) as found:
            from_text(POLICIES, text)
        assert found.value.key == ("name",)
