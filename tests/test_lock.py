"""What is installed for tests is pinned by hash, in the versions that constraints.txt says."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
_OTHER_SYSTEMS = {"colorama", "pywin32"}
_NOT_LOCKED = {"torch"}


def pins(text: str) -> dict[str, str]:
    return {re.sub(r"[._-]+", "-", name).lower(): version for name, version in _PIN.findall(text)}


def test_the_lock_has_the_versions_of_the_constraints() -> None:
    lock = pins((ROOT / "requirements.lock").read_text())
    constraints = pins((ROOT / "constraints.txt").read_text())
    build = lock.pop("setuptools")
    assert lock.keys() - _OTHER_SYSTEMS == constraints.keys() - _NOT_LOCKED
    assert all(constraints[name] == lock[name] for name in lock.keys() & constraints.keys())
    system = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    assert system["requires"] == [f"setuptools=={build}"]


def test_every_entry_has_a_hash() -> None:
    text = (ROOT / "requirements.lock").read_text()
    entries = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(pins(text)) > 100
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
