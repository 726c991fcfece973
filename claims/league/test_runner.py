"""A policy that fails: named before the first run, or reported as failed without ending others."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from claims.league import tables
from claims.league.cells import Cell
from claims.league.contestants import all_contestants, contestants_of
from claims.league.plan import Choice, cell_of
from claims.league.recording import record_of
from claims.league.runner import Store, run_league
from claims.league.score import Score
from claims.league.settings import Arena
from claims.league.tiny import MINE, PLAN, TINY, Inline
from fedmuster.core.errors import ConfigError, DataError, StateError
from fedmuster.training.aggregation import FedAvg
from fedmuster.training.data import Digits
from fedmuster.worlds import DeviceWorld

SELECT = "        there = np.flatnonzero(view.available)"


def fails(tmp_path: Path, when: str) -> str:
    file = tmp_path / "mine.py"
    lines = f'        if {when}:\n            raise ValueError("lost")\n{SELECT}'
    file.write_text(MINE.replace(SELECT, lines), encoding="utf-8")
    return f"{file}:Mine:federation=rounds"


@pytest.fixture
def empty(tmp_path: Path) -> str:
    """A policy that chooses nobody after the second round."""
    file = tmp_path / "mine.py"
    text = MINE.replace(SELECT, f"{SELECT}[: 100 if view.round < 3 else 0]")
    rule = '    name: ClassVar[str] = "mine"\n'
    file.write_text(
        text.replace(rule, f'{rule}    cohort_rule: ClassVar[str] = "at most"\n'), encoding="utf-8"
    )
    return f"{file}:Mine"


def test_a_policy_that_does_not_fit_is_named_before_any_run(
    tmp_path: Path, store: Store, inline: Inline
) -> None:
    contestants = all_contestants([fails(tmp_path, "len(view.available) == 30")])
    with pytest.raises(ConfigError) as caught:
        run_league(contestants, PLAN, store)
    for told in ("Mine, rounds", "tiny, groups", "ValueError", "lost"):
        assert told in str(caught.value)
    assert inline.jobs == []


@pytest.mark.parametrize("use", ["judging", "tuning"])
def test_every_setting_is_rehearsed(use: str, tmp_path: Path, store: Store, inline: Inline) -> None:
    """The policy does not fit one world of the last setting, which has 31 clients."""
    arena = getattr(TINY, use)
    larger = replace(arena, world=replace(arena.world, num_clients=31))
    last = replace(TINY, name="larger", **{use: larger})
    contestants = all_contestants([fails(tmp_path, "len(view.available) == 31")])
    with pytest.raises(ConfigError) as caught:
        run_league(contestants, replace(PLAN, settings=(TINY, last)), store)
    assert "larger" in str(caught.value)
    assert inline.jobs == []


def test_what_was_rehearsed_is_not_rehearsed_again(
    store: Store, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_league(all_contestants([]), PLAN, store)
    monkeypatch.setattr(Cell, "simulation", None)  # would not be called
    run_league(all_contestants([]), PLAN, store)


def test_missing_data_are_named_before_any_run(
    store: Store, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(self: Digits, seed: int) -> Any:
        raise DataError("digits are not there")

    monkeypatch.setattr(Digits, "load", missing)
    with pytest.raises(ConfigError) as caught:
        run_league(all_contestants(["random"]), PLAN, store)
    assert caught.value.key == ("data",)
    assert "tiny, groups" in str(caught.value)
    assert inline.jobs == []


def test_a_run_that_fails_ends_no_other(tmp_path: Path, store: Store, inline: Inline) -> None:
    """Mine raises an error in the third round."""
    contestants = all_contestants([fails(tmp_path, "view.round == 3"), "oort:federation=rounds"])
    base, mine, oort = run_league(contestants, PLAN, store)
    assert not base.failed
    assert not oort.failed
    judged = [run for run in mine.failed if run.use == "judging"]
    assert [(run.setting, run.seed) for run in judged] == [
        (setting.name, seed) for setting in PLAN.settings for seed in PLAN.judging_seeds
    ]
    assert {run.failure for run in judged} == {(3, "ValueError: lost")}
    # Both rates on the first tuning seed and one on the second.
    assert len(mine.failed) - len(judged) == len(PLAN.settings) * 3
    assert {one.seconds for own in mine.played.values() for one in own} == {np.inf}
    record = record_of([base, mine, oort], PLAN, "fedmuster league")
    score = Score(record)
    (standing,) = (one for one in score.standings(score.labels) if one.label == "Mine, rounds")
    assert (standing.missed, standing.failed, standing.runs) == (4, 4, 4)
    assert standing.time.mean > 1
    assert np.isnan(standing.client_updates.mean)
    table = tables.failed_runs(record)
    assert table is not None
    assert len(table.rows) == len(mine.failed)
    assert tables.failed_runs(record_of([base, oort], PLAN, "fedmuster league")) is None


def test_a_policy_that_cannot_begin_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = contestants_of(fails(tmp_path, "False"))
    cell = cell_of(one, TINY, TINY.judging, Choice(0.1, FedAvg()), 0)

    def begin(self: Any, problem: Any) -> Any:
        raise ZeroDivisionError("nothing")

    monkeypatch.setattr(type(one.policy), "init", begin)
    assert cell.play().failure == (0, "ZeroDivisionError: nothing")


PHONES = Arena(
    world=DeviceWorld(num_clients=60, cohort_size=10, local_steps=5, deadline_seconds=36.0),
    seconds=2000.0,
    about="phones that come and go",
)


@pytest.mark.parametrize("arena", [TINY.judging, PHONES], ids=["always there", "phones"])
@pytest.mark.parametrize("mode", ["rounds", "round-less"])
def test_a_policy_that_chooses_nobody_ends(empty: str, mode: str, arena: Arena) -> None:
    (one,) = contestants_of(f"{empty}:federation={mode}")
    played = cell_of(one, TINY, arena, Choice(0.1, FedAvg()), 0).play()
    assert played.seconds == np.inf
    assert (played.failure is None) == (mode == "round-less")  # there the simulation ends the run


@pytest.mark.parametrize("error", [OSError("no space left"), MemoryError()])
def test_a_fault_of_the_machine_is_no_failure(
    error: Exception, store: Store, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = cell_of(all_contestants([])[0], TINY, TINY.judging, Choice(0.1, FedAvg()), 0)

    def faulty(self: Cell) -> Any:
        raise error

    monkeypatch.setattr(Cell, "play", faulty)
    with pytest.raises(StateError):
        store.play([cell], "judging")
    assert not store.has(cell)
