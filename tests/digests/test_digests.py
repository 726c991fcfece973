"""The runs of this source tree give the bits that are on record."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.digests.cases import cases

import fedmuster

_ROOT = Path(__file__).parents[2]
_REST = sorted({case.name.partition("/")[0] for case in cases() if not case.quick})
_PARTS = [_REST[place::6] for place in range(6)]
"""So that none takes long after all other tests have ended."""


def test_quick_cases() -> None:
    _compare(["*"], "--quick")


@pytest.mark.slow
@pytest.mark.parametrize("groups", _PARTS, ids="-".join)
def test_the_other_cases(groups: list[str]) -> None:
    _compare([f"{group}/*" for group in groups], "--rest")


def _compare(names: list[str], part: str) -> None:
    """In a process of its own, which chooses its kernels before it loads NumPy."""
    source = Path(fedmuster.__file__).parents[1]
    command = [sys.executable, "-m", "tests.digests", "--src", str(source), part, "--only", *names]
    done = subprocess.run(
        command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
