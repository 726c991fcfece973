"""The key of a run and the fingerprint of a contestant change with all that decides numbers."""

import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from claims.league import code, plan, software
from claims.league.cells import Cell, job_of, play_job
from claims.league.contestants import base, contestants_of
from claims.league.plan import Choice, cell_of, fingerprint
from claims.league.tiny import MINE, PLAN, TINY
from fedmuster.core.errors import ConfigError
from fedmuster.experiments.spec import Experiment
from fedmuster.training.aggregation import FedAvg, FedAvgM

CHILD = """
from dataclasses import dataclass
from typing import ClassVar

{how}


@dataclass(frozen=True, kw_only=True, slots=True)
class Mine({parent}):
    name: ClassVar[str] = "mine"
"""
CHOICE = Choice(0.4, FedAvg())


def cell_named(text: str) -> Cell:
    return cell_of(contestants_of(text)[0], TINY, TINY.judging, CHOICE, 0)


def written(folder: Path, text: str) -> Path:
    file = folder / "mine.py"
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_the_key_is_of_what_decides_the_run(tmp_path: Path) -> None:
    def key(folder: str, text: str) -> str:
        return cell_named(f"{written(tmp_path / folder, text)}:Mine").key()

    first = key("a", MINE)
    assert key("b", MINE) == first  # the same file elsewhere
    assert key("c", MINE.replace('"""The available', '"""Those')) == first  # only words
    assert key("d", MINE.replace("-self.first", "self.first")) != first
    own = cell_named("random:federation=rounds")
    named_otherwise = replace(base(), label="another label")
    assert cell_of(named_otherwise, TINY, TINY.judging, CHOICE, 0).key() == own.key()
    for other in (
        replace(own, target=0.6),
        replace(own, to_target=True),
        cell_of(base(), TINY, TINY.tuning, CHOICE, 0),
        cell_of(base(), TINY, TINY.judging, CHOICE, 1),
        cell_of(base(), TINY, TINY.judging, Choice(0.2, FedAvg()), 0),
    ):
        assert other.key() != own.key()


def test_a_file_within_another_policy_may_lie_anywhere(tmp_path: Path) -> None:
    one, other = (written(tmp_path / folder, MINE) for folder in ("a", "b"))
    assert (
        cell_named(f"{one}:Mine:explore=0.1").key() == cell_named(f"{other}:Mine:explore=0.1").key()
    )


@pytest.mark.parametrize(
    ("how", "parent"),
    [
        ("from fedmuster import BSFL", "BSFL"),
        ("import fedmuster as fm", "fm.BSFL"),
        ("import fedmuster", "fedmuster.policies.BSFL"),
        ("from fedmuster.policies import BSFL", "BSFL"),
    ],
)
def test_the_code_of_a_parent_counts(tmp_path: Path, how: str, parent: str) -> None:
    file = written(tmp_path, CHILD.format(how=how, parent=parent))
    found = cell_named(f"{file}:Mine").code().modules
    assert {"fedmuster.policies.bsfl", "fedmuster.bandits.speed"} <= found
    assert "fedmuster.policies.pause" not in found


def test_a_policy_that_is_only_used_counts(tmp_path: Path) -> None:
    """No base class tells of Oort here, only an import does."""
    inner = MINE.replace("import numpy as np", "import numpy as np\nimport fedmuster as fm")
    inner += "\n\ndef helper():\n    return fm.Oort()\n"
    found = cell_named(f"{written(tmp_path, inner)}:Mine").code()
    assert "fedmuster.policies.oort.policy" in found.modules
    assert found.libraries == {"numpy"}


@pytest.mark.parametrize("statement", ["import helper_beside", "from helper_beside import by"])
def test_a_second_file_is_refused(
    tmp_path: Path, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "helper_beside.py").write_text("by = 1\n", encoding="utf-8")
    file = written(tmp_path, f"{statement}\n{MINE}")
    with pytest.raises(ConfigError) as caught:
        cell_named(f"{file}:Mine").key()
    assert caught.value.key == ("name",)
    assert "helper_beside" in str(caught.value)


def test_all_files_of_a_package_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "some_league_package"
    folder.mkdir()
    for name, text in {
        "__init__.py": "",
        "helper.py": "BY = 1\n",
        "policies.py": MINE.replace(
            "import numpy as np", "import numpy as np\nfrom . import helper"
        ),
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    found = cell_named("some_league_package.policies:Mine").code().modules
    assert "some_league_package.helper" in found


def test_only_whole_names_of_packages_are_unused() -> None:
    assert code._is_unused("fedmuster.report")
    assert code._is_unused("fedmuster.report.page")
    assert not code._is_unused("fedmuster.reporting")


@pytest.mark.parametrize("name", ["machine", "python", "numpy"])
def test_versions_count(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cell_named("oort").key()
    monkeypatch.setattr(
        "claims.league.cells.versions",
        lambda libraries: {**software.versions(libraries), name: "another"},
    )
    assert cell_named("oort").key() != before


def test_scipy_counts_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cell_named("divfl").code().libraries == {"scipy"}
    assert cell_named("oort").code().libraries == set()
    assert software.versions(["scipy"])["scipy"]
    assert "scipy" not in software.versions()


@pytest.mark.parametrize(
    "module", ["claims.league.runner", "claims.racing.tuning", "claims.league.plan"]
)
def test_the_fingerprint_is_of_the_tuning_rule(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, read = fingerprint(base(), PLAN), code._read
    assert fingerprint(base(), PLAN) == before

    def changed(name: str) -> Any:
        found = read(name)
        return found._replace(text=f"{found.text}\nchanged") if name == module else found

    monkeypatch.setattr(code, "_read", changed)
    assert fingerprint(base(), PLAN) != before


def test_the_fingerprint_is_of_plan_and_servers() -> None:
    prints = {
        fingerprint(contestant, one)
        for contestant in (base(), replace(base(), servers=(FedAvgM(),)))
        for one in (PLAN, replace(PLAN, finalists=2), replace(PLAN, rates=(0.1, 0.3)))
    }
    assert len(prints) == 6
    assert plan.QUICK_SETTINGS


@pytest.fixture
def parented(tmp_path: Path) -> str:
    file = written(tmp_path, CHILD.format(how="from fedmuster import BSFL", parent="BSFL"))
    return f"{file}:Mine:federation=round-less"


def run_modules(work: Any, argument: Any) -> set[str]:
    """The modules of fedmuster and the claims of which a function has run."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            found.add(frame.f_globals.get("__name__", ""))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work(argument)
    finally:
        sys.setprofile(before)
    return {name for name in found if name.partition(".")[0] in ("fedmuster", "claims")}


KINDS = (
    *("random:federation=rounds", "oort:federation=round-less", "tempo:federation=rounds"),
    *("tempo:federation=round-less", "fedbuff", "fedasync", "pisces", "refl:federation=rounds"),
    *(
        "bsfl:explore=0.1,federation=round-less",
        "divfl:federation=rounds",
        "tifl:federation=rounds",
    ),
    'fedcs:federation=rounds,server={name="fedavgm", learning_rate=0.5}',
)


def jobs(texts: tuple[str, ...]) -> Iterator[Cell]:
    for text in texts:
        (one,) = contestants_of(text)
        for to_target in (True, False):
            cell = cell_of(one, TINY, TINY.judging, Choice(0.1, one.servers[-1]), 0)
            yield replace(cell, to_target=to_target)


@pytest.mark.parametrize("kind", [*KINDS, "parented"])
def test_all_modules_that_run_count(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    text = request.getfixturevalue(kind) if kind == "parented" else kind
    for cell in jobs((text,)):
        path = tmp_path / f"{cell.key()}.json"
        job = job_of(cell, path)
        Experiment.from_table(tomllib.loads(job.experiment))  # registries import all they know
        assert run_modules(play_job, job) <= cell.code().modules
