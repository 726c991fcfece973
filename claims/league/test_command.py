"""The command: copies of an earlier record, what it is told to repeat, and runs played again."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from claims.league.command import Options, play, rerun, verify
from claims.league.record import LeagueRecord
from claims.league.test_checks import with_seconds
from claims.league.tiny import MINE, PLAN, Inline, quiet

pytestmark = pytest.mark.usefixtures("tiny_settings")


def options(tmp_path: Path, *names: str, **changes: Any) -> Options:
    given = Options(
        names=names, quick=True, first_seed=0, seeds=None, processes=None, folder=tmp_path
    )
    return replace(given, **changes)


@pytest.fixture
def tiny_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Options, "plan", PLAN)


def outdated(record: LeagueRecord, *labels: str) -> LeagueRecord:
    """The record, as if the code of some contestants had changed since."""
    contestants = tuple(
        replace(one, fingerprint="0" * 64) if one.label in labels else one
        for one in record.contestants
    )
    return replace(record, contestants=contestants)


@pytest.mark.usefixtures("tiny_plan")
def test_a_contestant_of_an_earlier_record_is_not_run_again(
    record: LeagueRecord, tmp_path: Path, inline: Inline
) -> None:
    """Oort in rounds has changed since; the others are as they were."""
    path = tmp_path / "earlier.json"
    earlier = outdated(record, "oort, rounds")
    earlier.write(path)
    given = options(tmp_path, "bsfl:federation=rounds", beside=str(path))
    told: list[str] = []
    added = play(given, quiet, told.append)
    assert [(one.label, one.copied_from) for one in added.contestants] == [
        ("random, rounds", earlier.checksum),
        ("oort, round-less", earlier.checksum),
        ("bsfl, rounds", ""),
    ]
    assert [replace(one, copied_from="") for one in added.contestants[:2]] == [
        record.contestants[0],
        record.contestants[2],
    ]
    # BSFL's runs, and one of each contestant that is copied.
    assert len(inline.jobs) == 2 * (2 + 1 + 2) + 2
    (line,) = told
    assert "oort, rounds" in line
    assert "changed since" in line
    named = play(replace(given, names=("oort",)), quiet, told.append)
    assert {one.label: replace(one, copied_from="") for one in named.contestants} == {
        one.label: one for one in record.contestants
    }
    assert len(told) == 1
    added.write(path)
    again = play(given, quiet, told.append)
    assert again.contestants[0].copied_from == earlier.checksum  # where its runs come from


@pytest.mark.usefixtures("tiny_plan")
def test_a_contestant_that_is_not_known_here_is_left_out(
    record: LeagueRecord, tmp_path: Path, inline: Inline
) -> None:
    path, file = tmp_path / "earlier.json", tmp_path / "mine.py"
    file.write_text(MINE, encoding="utf-8")
    mine = f"{file}:Mine:federation=rounds"
    first = play(options(tmp_path, mine), quiet, print)
    contestants = (*first.contestants, replace(record.contestants[1], policy={"name": "gone"}))
    replace(first, contestants=contestants).write(path)
    told: list[str] = []
    given = options(tmp_path, "random:federation=rounds", beside=str(path))
    assert [one.label for one in play(given, quiet, told.append).contestants] == ["random, rounds"]
    assert ["not known here" in line for line in told] == [True, True]
    found = play(replace(given, names=(mine,)), quiet, told.append)
    assert [bool(one.copied_from) for one in found.contestants] == [True, True]


@pytest.mark.usefixtures("tiny_plan")
def test_a_copy_whose_numbers_differ_is_refused(
    record: LeagueRecord, tmp_path: Path, inline: Inline
) -> None:
    path = tmp_path / "earlier.json"
    with_seconds(record, "oort, round-less", by=-0.01).write(path)
    told: list[str] = []
    given = options(tmp_path, "bsfl:federation=rounds", beside=str(path))
    found = play(given, quiet, told.append)
    assert [one.label for one in found.contestants] == [
        *("random, rounds", "oort, rounds", "bsfl, rounds")
    ]
    (line,) = told
    assert "oort, round-less" in line
    assert "seconds" in line
    named = play(replace(given, names=("oort:federation=round-less",)), quiet, told.append)
    (again,) = (one for one in named.contestants if one.label == "oort, round-less")
    assert again == record.contestants[2]


@pytest.mark.usefixtures("tiny_plan")
def test_failed_contestants_are_told(tmp_path: Path, inline: Inline) -> None:
    file = tmp_path / "mine.py"
    select = "        there = np.flat"
    broken = f"        if view.round == 3:\n            raise KeyError('lost')\n{select}"
    file.write_text(MINE.replace(select, broken), encoding="utf-8")
    told: list[str] = []
    play(options(tmp_path, f"{file}:Mine:federation=rounds"), quiet, told.append)
    (line,) = told
    for part in ("Mine, rounds", "runs failed", "tiny, groups", "seed 900", "round 3", "KeyError"):
        assert part in line


def test_the_command_is_recorded_as_it_was_written(tmp_path: Path) -> None:
    given = options(
        tmp_path,
        "./my policies/mine.py:Mine",
        "oort:federation={buffer=5, refill=2}",
        seeds=2,
        first_seed=7,
        beside="../earlier/league.json",
    )
    assert shlex.split(given.command) == [
        *("fedmuster", "league", "./my policies/mine.py:Mine"),
        *("oort:federation={buffer=5, refill=2}", "--quick", "--first-seed", "7"),
        *("--seeds", "2", "--beside", "../earlier/league.json"),
    ]
    assert options(tmp_path, quick=False).command == "fedmuster league"
    assert options(tmp_path, beside="./x.json").command.endswith("--beside ./x.json")


def test_verify_and_rerun(record: LeagueRecord, tmp_path: Path, inline: Inline) -> None:
    path = tmp_path / "league.json"
    record.write(path)
    read, differences = verify(path, ())
    assert (read, differences) == (record, [])
    settings: dict[str, Any] = {"seed": 0, "processes": None, "progress": quiet}
    assert rerun(read, (), count=3, **settings) == ([], [])
    assert len(inline.jobs) == 3
    edited = with_seconds(record, "oort, rounds", by=1e-9)
    found, not_checked = rerun(edited, (), count=100, **settings)
    assert found
    assert not_checked == []
