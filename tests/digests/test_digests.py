"""The runs of this source tree give the bits that are on record."""

import os
import sys
from pathlib import Path

import pytest
from tests.digests.__main__ import main
from tests.digests.cases import cases
from tests.forks import FORKS

import fedmuster

_ROOT = Path(__file__).parents[2]
_REST = sorted({case.name.partition("/")[0] for case in cases() if not case.quick})
_PARTS = [_REST[place::6] for place in range(6)]
"""So that none takes long after all other tests have ended."""


def test_quick_cases(tmp_path: Path) -> None:
    _compare(tmp_path, ["*"], "--quick")


@pytest.mark.slow
@pytest.mark.parametrize("groups", _PARTS, ids="-".join)
def test_the_other_cases(tmp_path: Path, groups: list[str]) -> None:
    _compare(tmp_path, [f"{group}/*" for group in groups], "--rest")


def _compare(folder: Path, names: list[str], part: str) -> None:
    """In a process of its own, with one thread, and tables as wide as they are."""
    source = Path(fedmuster.__file__).parents[1]
    arguments = ["--src", str(source), part, "--only", *names]
    process = FORKS.Process(target=_run, args=(arguments, folder / "said.txt"))
    process.start()
    process.join()
    said = (folder / "said.txt").read_text(encoding="utf-8")
    sys.stdout.write(said)
    assert process.exitcode == 0, said


def _run(arguments: list[str], said: Path) -> None:
    """``python -m tests.digests ARGUMENTS``, in a process that has imported torch already."""
    assert "fedmuster.cli.display" not in sys.modules  # it asks once how wide the terminal is
    os.chdir(_ROOT)
    sys.argv = ["tests.digests", *arguments]
    with said.open("w", encoding="utf-8") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
        main()
