"""The runs of this source tree give the bits that are on record."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.digests.cases import cases

import fedmuster

_ROOT = Path(__file__).parents[2]
_REST = sorted({case.name.partition("/")[0] for case in cases() if not case.quick})
_PARTS = [_REST[place::3] for place in range(3)]
"""Few: each is a process that imports for some seconds."""


def test_quick_cases() -> None:
    _compare(["*"], "--quick")


@pytest.mark.slow
@pytest.mark.parametrize("groups", _PARTS, ids="-".join)
def test_the_other_cases(groups: list[str]) -> None:
    _compare([f"{group}/*" for group in groups], "--rest")


def _compare(names: list[str], part: str) -> None:
    """In a process of its own, with one thread, and tables as wide as they are."""
    source = Path(fedmuster.__file__).parents[1]
    command = [sys.executable, "-m", "tests.digests", "--src", str(source), part, "--only", *names]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
