"""A run folder may come from somebody else: its code, its labels, and media that are read-only."""

import csv
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fedmuster.cli import cli
from fedmuster.core.errors import ConfigError, FedmusterError
from fedmuster.core.words import harmless_cell
from fedmuster.experiments.journal import FILE_NAME, JournalReader, standing
from fedmuster.experiments.run import SPEC_NAME, execute, prepare
from fedmuster.experiments.spec import Experiment
from fedmuster.report.runs import load

WORLD = {"name": "bsfl-rates", "num_clients": 8, "cohort_size": 3}
_NOBODY = 65534

CODE = """
from pathlib import Path
from fedmuster.training.data import Digits

Path(__file__).with_name("imported").touch()

def data(seed):
    return Digits(train_limit=200).load(seed)
"""


def run(*arguments: str | Path) -> None:
    done = CliRunner().invoke(cli, [str(each) for each in arguments])
    if isinstance(done.exception, FedmusterError):
        raise done.exception
    assert done.exit_code == 0, done.output


def experiment(**more: Any) -> Experiment:
    return Experiment.from_table({"rounds": 5, "world": WORLD, "policy": "bsfl", **more})


def test_a_factory_is_not_imported_without_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code_of_others.py").write_text(CODE)
    own = {"name": "own", "factory": "code_of_others:data"}
    prepare(tmp_path / "run", experiment(training={"data": own, "model": {"name": "logistic"}}))
    execute(tmp_path / "run")
    mark = tmp_path / "imported"
    mark.unlink()
    monkeypatch.delitem(__import__("sys").modules, "code_of_others")
    with pytest.raises(ConfigError, match=r"code_of_others:data.*--trust"):
        run("explain", "run", "--round", "3")
    run("explain", "run", "--round", "3", "--from", "journal")
    assert not mark.exists()
    run("explain", "run", "--round", "3", "--trust")
    assert mark.exists()


def test_code_inside_the_folder_is_not_imported_without_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    prepare(folder, experiment())
    execute(folder)
    (folder / "evil.py").write_text(CODE)
    spec = folder / SPEC_NAME
    spec.write_text(spec.read_text().replace('name = "bsfl"', 'name = "run/evil.py:BSFL"'))
    with pytest.raises(ConfigError, match=r"evil\.py.*--trust"):
        run("explain", "run", "--round", "3")
    assert not (folder / "imported").exists()


@pytest.mark.parametrize(
    "label", ["a\x1b[31mb", "a\nb", "a\tb", "a\u202eb", "\x7f", "a\x9bb", "a\ud800"]
)
def test_labels_have_no_control_characters(label: str) -> None:
    with pytest.raises(ConfigError):
        experiment(policy=[{"name": "bsfl", "label": label}])


@pytest.mark.parametrize("start", ["=", "+", "-", "@"])
def test_no_cell_of_a_report_is_a_formula(tmp_path: Path, start: str) -> None:
    label = f"{start}HYPERLINK(1)"
    (tmp_path / "spec.toml").write_text(
        experiment(policy=[{"name": "bsfl", "label": label}, "random"]).to_toml()
    )
    run("run", tmp_path / "spec.toml", "--out", tmp_path / "runs", "--processes", "1")
    run("report", tmp_path / "runs", "--format", "none")
    for path in (tmp_path / "runs/report").glob("*.csv"):
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
        assert f"'{label}" in {row[0] for row in rows}
        for cell in (cell for row in rows for cell in row if cell[:1] in tuple("=+-@\t\r")):
            float(cell)  # a number, of which a spreadsheet makes nothing else


def test_cells() -> None:
    assert [harmless_cell(text) for text in ("\t=1", "\r=1", "a=1", "", "-")] == [
        *("'\t=1", "'\r=1", "a=1", "", "'-")
    ]
    assert harmless_cell(-1.5) == -1.5


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder that anybody may read, and only root may write to."""
    folder = Path(tempfile.mkdtemp())
    yield folder
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755)
    shutil.rmtree(folder)


def as_nobody(act: Callable[[], object]) -> int:
    """Exit code of a process of a user without rights; 0 if ``act`` raised nothing."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(_NOBODY)
                os.setuid(_NOBODY)
            act()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("with_log", [False, True], ids=["whole", "with a log"])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_runs_on_read_only_media_are_read(tmp_path: Path, read_only: Path, with_log: bool) -> None:
    prepare(tmp_path, experiment())
    execute(tmp_path)
    names = [FILE_NAME, SPEC_NAME]
    if with_log:  # as a process leaves it that is killed
        import sqlite3

        database = sqlite3.connect(tmp_path / FILE_NAME)
        database.execute("PRAGMA wal_autocheckpoint = 0")
        database.execute("PRAGMA user_version = 8")
        database.commit()
        names.append(f"{FILE_NAME}-wal")
    for name in names:
        if (tmp_path / name).exists():
            shutil.copyfile(tmp_path / name, read_only / name)
    if with_log:
        database.close()
    for path in (*read_only.iterdir(), read_only):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = sorted(path.name for path in read_only.iterdir())
    digest = JournalReader(tmp_path).digest()

    def act() -> None:
        assert standing(read_only).rounds == 5
        assert JournalReader(read_only).digest() == digest
        assert load([read_only]).rounds == 5

    assert as_nobody(act) == 0
    assert sorted(path.name for path in read_only.iterdir()) == before

    def report() -> None:
        with pytest.raises(ConfigError, match="--out"):
            run("report", read_only, "--format", "none")

    assert as_nobody(report) == 0
