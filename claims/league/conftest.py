"""Shared by tests of the league: a store, runs without processes, and the record of a league."""

from pathlib import Path

import pytest

from claims.league import runner
from claims.league import settings as frozen
from claims.league.contestants import all_contestants
from claims.league.record import LeagueRecord
from claims.league.recording import record_of
from claims.league.runner import Store, run_league
from claims.league.tiny import PLAN, Inline, quiet


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Inline:
    """Runs take place in this process."""
    played = Inline()
    monkeypatch.setattr(runner, "run_side_by_side", played)
    return played


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(folder=tmp_path / "runs", processes=None, progress=quiet)


@pytest.fixture
def tiny_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The frozen settings are the tiny ones."""
    monkeypatch.setattr(frozen, "SETTINGS", PLAN.settings)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> LeagueRecord:
    """The record of a tiny league of Oort."""
    store = Store(folder=tmp_path_factory.mktemp("runs"), processes=None, progress=quiet)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "run_side_by_side", Inline())
        entries = run_league(all_contestants(["oort"]), PLAN, store)
    return record_of(entries, PLAN, "fedmuster league oort")
