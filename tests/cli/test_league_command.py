"""``fedmuster league``: a stranger's file plays, and a changed record is refused."""

from pathlib import Path

import pytest
from claims.league import command
from claims.league.test_contestants import MINE
from claims.league.tiny import PLAN
from click.testing import CliRunner

from fedmuster.cli import cli
from fedmuster.core.errors import ConfigError, DataError


def invoke(*words: str) -> str:
    result = CliRunner().invoke(cli, ["league", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_a_stranger_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "quick", lambda **_: PLAN)
    mine, out = tmp_path / "mine.py", tmp_path / "out"
    mine.write_text(MINE, encoding="utf-8")
    contestant = f"{mine}:Mine:federation=rounds"
    shown = invoke(contestant, "--quick", "--out", str(out), "--processes", "1")
    assert "Mine, rounds" in shown
    record = out / "league-quick.json"
    before = record.read_bytes()
    invoke(contestant, "--quick", "--out", str(out))  # nothing is left to run
    assert record.read_bytes() == before
    assert "Mine, rounds" in invoke("--verify", str(record))
    record.write_bytes(before.replace(b"0.4", b"0.1"))
    with pytest.raises(DataError):
        invoke("--verify", str(record))


def test_who_cannot_play_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        invoke("genie", "--out", str(tmp_path))
