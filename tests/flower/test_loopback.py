"""Real processes: a run that never ends is given up, and nothing is left behind."""

import math
from pathlib import Path

import pytest
from claims.flower.loopback import loopback, processes

from fedmuster.core.errors import StateError

pytestmark = [pytest.mark.flower, pytest.mark.slow]

APP = """\
import time

from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

server = ServerApp()
client = ClientApp()


@server.main()
def main(grid, context):
    time.sleep(3600)
"""
PYPROJECT = """\
[project]
name = "endless"
version = "1.0.0"
description = "Never done"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedmuster"

[tool.flwr.app.components]
serverapp = "endless.app:server"
clientapp = "endless.app:client"
"""


def test_what_never_ends_is_given_up_and_killed(tmp_path: Path) -> None:
    app = tmp_path / "app"
    (app / "endless").mkdir(parents=True)
    (app / "pyproject.toml").write_text(PYPROJECT)
    (app / "endless" / "__init__.py").touch()
    (app / "endless" / "app.py").write_text(APP)
    folder = tmp_path / "federation"
    with loopback(folder, []) as federation:
        assert processes(folder / "home", "flower-superlink")
        with pytest.raises(StateError, match="timed out after 8"):
            federation.run(app, {}, seconds=8.0)
    assert processes(folder / "home") == []


def test_a_federation_that_does_not_come_up_says_what_its_processes_said(tmp_path: Path) -> None:
    broken = loopback(tmp_path / "federation", [{"not a number": math.nan}])
    said = r"supernode-0 on loopback ended:\n(.|\n)*invalid format"
    with pytest.raises(StateError, match=said), broken:
        raise AssertionError
    assert processes(tmp_path / "federation" / "home") == []
