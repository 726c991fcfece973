"""A tiny league: bits, resuming, tuning apart from judging, the record and its page."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from claims.league import runner
from claims.league.cells import Cell, Job, Played, job_of, play_job
from claims.league.command import Options, play
from claims.league.contestants import all_contestants, base, contestants_of
from claims.league.page import write_page
from claims.league.plan import Choice, cell_of
from claims.league.record import LeagueRecord, differences, read_record, record_of
from claims.league.runner import Store, run_league, tune
from claims.league.test_contestants import MINE
from claims.league.tiny import PLAN, TINY
from fedmuster.core.errors import DataError
from fedmuster.training.aggregation import FedAvg

CHOICE = Choice(0.4, FedAvg())


def quiet(what: str, done: int, whole: int) -> None:
    """No progress."""


def cells() -> list[Cell]:
    oort = contestants_of("oort")
    return [
        cell_of(one, TINY, TINY.judging, CHOICE, seed) for one in [base(), *oort] for seed in (0, 1)
    ]


class Inline:
    """Plays jobs in this process and keeps them."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def __call__(
        self, work: Callable[[Job], None], jobs: Sequence[Job], *, tick: Any, processes: Any
    ) -> None:
        self.jobs += jobs
        for job in jobs:
            work(job)


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Inline:
    played = Inline()
    monkeypatch.setattr(runner, "run_side_by_side", played)
    return played


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(folder=tmp_path / "runs", processes=None, progress=quiet)


def test_bits_do_not_depend_on_processes_and_order(tmp_path: Path) -> None:
    apart = Store(folder=tmp_path / "apart", processes=2, progress=quiet)
    assert len(apart.play(cells(), "judging")) == 6
    for number, cell in reversed(list(enumerate(cells()))):
        here = tmp_path / f"{number}.json"
        play_job(job_of(cell, here))
        key = cell.key()
        assert here.read_bytes() == (apart.folder / key[:2] / f"{key}.json").read_bytes()


def test_a_run_that_stops_at_the_target_gets_there_at_the_same_time() -> None:
    for cell in cells()[:4:2]:
        whole, part = cell.play(), replace(cell, to_target=True).play()
        assert 0 < whole.seconds < cell.horizon_seconds
        assert (part.seconds, part.costs) == (whole.seconds, whole.costs)
        assert np.isnan(part.end)
        assert whole.end > TINY.target
    missed = replace(cells()[0], target=1.1, to_target=True).play()
    assert missed.seconds == np.inf
    assert missed.end == cells()[0].play().end


def test_a_played_run_survives_its_file() -> None:
    played = replace(cells()[0], target=1.1).play()
    assert Played.from_json(played.to_json()).to_json() == played.to_json()  # NaN is not NaN


def test_the_key_is_of_what_decides_the_run(tmp_path: Path) -> None:
    def key(folder: str, text: str) -> str:
        file = tmp_path / folder / "mine.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        (one, _) = contestants_of(f"{file}:Mine")
        return cell_of(one, TINY, TINY.judging, CHOICE, 0).key()

    first = key("a", MINE)
    assert key("b", MINE) == first  # the same file elsewhere
    assert key("c", MINE.replace('"""The available', '"""Those')) == first  # only words
    assert key("d", MINE.replace("-self.first", "self.first")) != first
    own = cells()[0]
    named_otherwise = replace(base(), label="another label")
    assert cell_of(named_otherwise, TINY, TINY.judging, CHOICE, 0).key() == own.key()
    for other in (
        replace(own, target=0.6),
        replace(own, to_target=True),
        cell_of(base(), TINY, TINY.tuning, CHOICE, 0),
        cell_of(base(), TINY, TINY.judging, CHOICE, 1),
        cell_of(base(), TINY, TINY.judging, Choice(0.2, FedAvg()), 0),
    ):
        assert other.key() != own.key()


def test_only_what_is_missing_is_run(store: Store, inline: Inline) -> None:
    some = all_contestants(["oort:federation=rounds"])
    first = run_league(some, PLAN, store)
    # Two settings: both rates on one tuning seed, the better on the other, two judging seeds.
    assert len(inline.jobs) == len(some) * 2 * (2 + 1 + 2)
    inline.jobs.clear()
    assert run_league(some, PLAN, store) == first
    assert inline.jobs == []
    more = run_league(all_contestants(["oort"]), PLAN, store)
    assert len(inline.jobs) == 2 * (2 + 1 + 2)
    assert more[:2] == first
    interrupted = Path(inline.jobs[-1].path)
    kept = interrupted.read_bytes()
    interrupted.unlink()
    inline.jobs.clear()
    run_league(all_contestants(["oort"]), PLAN, store)
    assert [Path(job.path) for job in inline.jobs] == [interrupted]
    assert interrupted.read_bytes() == kept


def test_tuning_never_sees_what_judges(store: Store, inline: Inline) -> None:
    chosen = tune(all_contestants(["oort"]), PLAN, store)
    assert chosen["oort, rounds"].keys() == {"tiny, groups", "tiny, rates"}
    assert {job.to_target for job in inline.jobs} == {True}
    for job in inline.jobs:
        groups = 'name = "bsfl-groups"' in job.experiment
        assert ("seconds = 8.0" in job.experiment) == groups  # the twin of each setting
        assert "seeds = [\n    900,\n]" in job.experiment or "901" in job.experiment


def test_the_soonest_rate_wins(store: Store, inline: Inline) -> None:
    chosen = tune([base()], PLAN, store)["random, rounds"]["tiny, groups"]
    trials = {
        choice: next(iter(PLAN.tuning_cells(base(), TINY, choice))).play().seconds
        for choice in PLAN.choices(base())
    }
    assert trials[chosen] == min(trials.values())


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> LeagueRecord:
    store = Store(folder=tmp_path_factory.mktemp("runs"), processes=None, progress=quiet)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "run_side_by_side", Inline())
        entries = run_league(all_contestants(["oort"]), PLAN, store)
    return record_of(entries, PLAN, "fedmuster league oort")


def test_a_record_is_read_back_and_cannot_be_changed(record: LeagueRecord, tmp_path: Path) -> None:
    path = tmp_path / "league.json"
    record.write(path)
    assert read_record(path) == record
    assert read_record(path).to_json() == record.to_json()
    changed = json.loads(path.read_bytes())
    changed["contestants"][1]["runs"]["tiny, groups"]["seconds"][0] = 0.1
    path.write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(DataError):
        read_record(path)
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(DataError):
        read_record(path)


def test_a_record_tells_of_other_settings_and_sources(record: LeagueRecord) -> None:
    assert len(differences(record)) == 1  # these settings are not the league's
    oort = replace(record.contestants[1], source_sha256="0" * 64)
    software = {**record.software, "numpy": "0.1"}
    other = replace(record, contestants=(oort,), software=software)
    assert len(differences(other)) == 3


def test_a_contestant_of_an_earlier_record_is_not_run_again(
    record: LeagueRecord, tmp_path: Path, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oort in rounds has changed since; the others are as they were."""
    old = [
        replace(one, fingerprint="0" * 64) if one.label == "oort, rounds" else one
        for one in record.contestants
    ]
    replace(record, contestants=tuple(old)).write(tmp_path / "earlier.json")
    monkeypatch.setattr(Options, "plan", PLAN)
    options = Options(
        names=("bsfl:federation=rounds",),
        quick=True,
        first_seed=0,
        seeds=None,
        processes=None,
        folder=tmp_path,
        beside=tmp_path / "earlier.json",
    )
    told: list[str] = []
    added = play(options, quiet, told.append)
    assert [one.label for one in added.contestants] == [
        "random, rounds",
        "oort, round-less",
        "bsfl, rounds",
    ]
    assert added.contestants[:2] == (record.contestants[0], record.contestants[2])
    assert len(inline.jobs) == 2 * (2 + 1 + 2)  # BSFL alone
    assert [line.split(" of ")[0] for line in told] == ["oort, rounds"]
    named = play(replace(options, names=("oort",)), quiet, told.append)
    assert {one.label: one for one in named.contestants} == {
        one.label: one for one in record.contestants
    }


def test_the_page_has_everything(record: LeagueRecord, tmp_path: Path) -> None:
    written = write_page(record, tmp_path)
    assert [path.suffix for path in written] == [".json", ".md", ".png", ".png", ".png"]
    page = written[1].read_text(encoding="utf-8")
    for path in written[2:]:
        assert f"({path.name})" in page
    for one in record.contestants:
        assert one.label in page
    for setting in record.settings:
        assert setting.judging in page
        assert setting.tuning in page
    assert "900, 901" in page
