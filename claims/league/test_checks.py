"""A record compared with what is here: names of what differs, and runs that are played again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from claims.league import checks, code, software
from claims.league.checks import Replay, code_state, contestant_here, differences, plan_of
from claims.league.contestants import all_contestants, contestants_of, rebuilt
from claims.league.plan import Choice
from claims.league.record import ContestantRecord, LeagueRecord
from claims.league.recording import record_of
from claims.league.runner import Entry, Store, run_league
from claims.league.tiny import MINE, PLAN, Inline, quiet
from fedmuster.core.config import to_table
from fedmuster.core.errors import DataError

pytestmark = pytest.mark.usefixtures("tiny_settings")


def changed_module(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    read = code._read

    def changed(name: str) -> Any:
        found = read(name)
        return found._replace(text=f"{found.text}\nchanged") if name == module else found

    monkeypatch.setattr(code, "_read", changed)
    monkeypatch.setattr(code, "_closure", code._closure.__wrapped__)


def replay(record: LeagueRecord, seed: int = 0, known: Any = ()) -> Replay:
    return Replay(record, known, seed=seed, processes=None, progress=quiet)


def with_seconds(record: LeagueRecord, label: str, by: float) -> LeagueRecord:
    """The times of a contestant are longer by so many seconds."""

    def longer(one: ContestantRecord) -> ContestantRecord:
        runs = {
            name: replace(own, seconds=tuple(None if s is None else s + by for s in own.seconds))
            for name, own in one.runs.items()
        }
        return replace(one, runs=runs)

    contestants = tuple(longer(o) if o.label == label else o for o in record.contestants)
    return replace(record, contestants=contestants)


@pytest.fixture
def with_stranger(
    record: LeagueRecord, tmp_path: Path, store: Store, inline: Inline
) -> tuple[LeagueRecord, str]:
    """The record with contestants of two files from outside, one of them wrapped."""
    file = tmp_path / "mine.py"
    file.write_text(MINE, encoding="utf-8")
    text = f"{file}:Mine:federation=rounds"
    names = [text, f"{file}:Mine:explore=0.1,federation=rounds"]
    entries = run_league(all_contestants(names)[1:], PLAN, store)
    new = record_of(entries, PLAN, "fedmuster league")
    return replace(record, contestants=(*record.contestants, *new.contestants)), text


def test_nothing_differs(record: LeagueRecord) -> None:
    assert differences(record) == []
    assert plan_of(record) == PLAN
    assert [code_state(one, PLAN) for one in record.contestants] == ["same"] * 3


@pytest.mark.parametrize(
    "text",
    [
        *("oort", "bsfl:explore=0.1", "fedbuff", "fedasync", "tempo"),
        *("oort:federation={buffer=5, refill=2}", "fedbuff:federation=rounds"),
        'oort:server={name="fedavgm", learning_rate=0.5}',
    ],
)
def test_contestants_are_rebuilt_from_records(text: str) -> None:
    for one in contestants_of(text):
        tables = to_table(one.policy), to_table(one.federation), map(to_table, one.servers)
        assert rebuilt(one.label, *tables[:2], list(tables[2])) == one


def test_other_settings_and_software_are_named(
    record: LeagueRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    (told,) = differences(replace(record, software={**record.software, "numpy": "0.1"}))
    assert "0.1" in told
    assert plan_of(replace(record, settings_sha256="0" * 64)) is None
    assert len(differences(replace(record, settings_sha256="0" * 64))) == 1
    assert set(record.software) == {"fedmuster", "numpy", "python", "machine", "scipy"}
    monkeypatch.setattr(checks, "installed", lambda: {**software.installed(), "python": "2.7"})
    assert ["2.7" in one for one in differences(record)] == [True]


@pytest.mark.parametrize(
    ("module", "labels"),
    [
        ("fedmuster.policies.oort.scores", ["oort, rounds", "oort, round-less"]),
        ("fedmuster.training.local_sgd", ["random, rounds", "oort, rounds", "oort, round-less"]),
        ("claims.racing.tuning", ["random, rounds", "oort, rounds", "oort, round-less"]),
        ("fedmuster.policies.bsfl", []),
    ],
)
def test_every_contestant_with_other_code_is_named(
    module: str, labels: list[str], record: LeagueRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed_module(monkeypatch, module)
    assert [told.partition(":")[0] for told in differences(record)] == labels


def test_a_wrapped_policy_is_named(
    store: Store, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    contestants = all_contestants(["oort:explore=0.1,federation=rounds"])
    wrapped = record_of(run_league(contestants, PLAN, store), PLAN, "fedmuster league")
    assert differences(wrapped) == []
    changed_module(monkeypatch, "fedmuster.policies.oort.scores")
    (told,) = differences(wrapped)
    assert told.startswith("oort:explore=0.1, rounds")


def test_files_from_outside_are_checked_where_they_are_named(
    with_stranger: tuple[LeagueRecord, str],
) -> None:
    record, text = with_stranger
    wrapped = record.contestants[-1]
    states = [code_state(one, PLAN) for one in record.contestants]
    assert states == ["same"] * 3 + ["not known here"] * 2
    assert len(differences(record)) == len(replay(record).not_checked) == 2
    (told,) = differences(record, contestants_of(text))
    assert told.startswith(wrapped.label)
    assert contestant_here(wrapped, contestants_of(text)) is None


def test_replayed_runs_have_the_same_bits(record: LeagueRecord, inline: Inline) -> None:
    again = replay(record)
    runs = again.some(5)
    assert len(inline.jobs) == 0
    assert len({(run.contestant.label, run.setting, run.place) for run in runs}) == 5
    assert runs == replay(record).some(5)
    assert runs != replay(record, seed=1).some(5)
    found = again.compare(runs)
    assert len(inline.jobs) == 5
    assert not any(found.values())
    assert len(again.some(1000)) == 3 * 2 * 2


def test_every_number_that_differs_is_named(record: LeagueRecord, inline: Inline) -> None:
    edited = with_seconds(record, "oort, rounds", by=1e-9)
    again = replay(edited)
    found = again.compare(again.some(1000))
    told = found.pop("oort, rounds")
    reached = [
        second
        for runs in record.contestants[1].runs.values()
        for second in runs.seconds
        if second is not None
    ]
    assert len(told) == len(reached) > 0
    assert all("seconds is" in one for one in told)
    assert not any(found.values())


def test_strangers_that_are_named_are_replayed(with_stranger: tuple[LeagueRecord, str]) -> None:
    record, text = with_stranger
    again = replay(record, known=contestants_of(text))
    run = again.one_of(record.contestants[-2])
    assert run.contestant.label == "Mine, rounds"
    assert again.compare([run]) == {"Mine, rounds": []}


def test_other_settings_cannot_be_replayed(record: LeagueRecord) -> None:
    with pytest.raises(DataError):
        replay(replace(record, settings_sha256="0" * 64))


def test_a_replay_has_the_chosen_server(store: Store, inline: Inline) -> None:
    (fedbuff,) = contestants_of("fedbuff")
    choices = {s.name: Choice(0.1, fedbuff.servers[-1]) for s in PLAN.settings}
    played = {
        s.name: tuple(store.play(PLAN.judging_cells(fedbuff, s, choices[s.name]), "judging"))
        for s in PLAN.settings
    }
    made = record_of([Entry(contestant=fedbuff, choices=choices, played=played)], PLAN, "x")
    again = replay(made)
    assert again.compare(again.some(2)) == {"fedbuff, published": []}
