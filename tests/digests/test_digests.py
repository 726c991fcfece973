"""The runs of this source tree give the bits that are on record."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.digests.cases import cases

import fedmuster

_ROOT = Path(__file__).parents[2]
_REST = sorted({case.name.partition("/")[0] for case in cases() if not case.quick})
_QUICK = sorted({case.name.partition("/")[0] for case in cases() if case.quick})


@pytest.mark.parametrize("group", _QUICK)
def test_quick_cases(group: str) -> None:
    _compare(group, "--quick")


@pytest.mark.slow
@pytest.mark.parametrize("group", _REST)
def test_the_other_cases(group: str) -> None:
    _compare(group, "--rest")


def _compare(group: str, part: str) -> None:
    """In a process of its own, with one thread, and tables as wide as they are."""
    source = Path(fedmuster.__file__).parents[1]
    command = [sys.executable, "-m", "tests.digests", "--src", str(source), "--only", f"{group}/*"]
    done = subprocess.run([*command, part], cwd=_ROOT, capture_output=True, text=True, check=False)
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
