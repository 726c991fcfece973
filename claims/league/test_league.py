"""A tiny league: bits, resuming, and tuning apart from judging."""

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from claims.league.cells import Cell, Played, job_of, play_job
from claims.league.contestants import all_contestants, base, contestants_of
from claims.league.plan import Choice, cell_of
from claims.league.runner import Store, run_league, tune
from claims.league.tiny import PLAN, TINY, Inline, quiet
from fedmuster.core.errors import StateError
from fedmuster.training.aggregation import FedAvg

CHOICE = Choice(0.4, FedAvg())


def cells() -> list[Cell]:
    oort = contestants_of("oort")
    return [
        cell_of(one, TINY, TINY.judging, CHOICE, seed) for one in [base(), *oort] for seed in (0, 1)
    ]


def test_bits_do_not_depend_on_processes_and_order(tmp_path: Path) -> None:
    apart = Store(folder=tmp_path / "apart", processes=2, progress=quiet)
    assert len(apart.play(cells(), "judging")) == 6
    for cell in reversed(cells()):
        key = cell.key()
        here = tmp_path / f"{key}.json"
        play_job(job_of(cell, here))
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
    tuned = tune(all_contestants(["oort"]), PLAN, store)
    assert tuned["oort, rounds"].choices.keys() == {"tiny, groups", "tiny, rates"}
    assert {job.to_target for job in inline.jobs} == {True}
    for job in inline.jobs:
        experiment = tomllib.loads(job.experiment)
        groups = experiment["world"]["name"] == "bsfl-groups"
        assert (experiment["seconds"] == 8.0) == groups  # the twin of each setting
        assert experiment["seeds"] in ([900], [901])


def test_the_soonest_rate_wins(store: Store, inline: Inline) -> None:
    chosen = tune([base()], PLAN, store)["random, rounds"].choices["tiny, groups"]
    trials = {
        choice: next(iter(PLAN.tuning_cells(base(), TINY, choice))).play().seconds
        for choice in PLAN.choices(base())
    }
    assert trials[chosen] == min(trials.values())


def test_code_that_has_changed_since_the_league_began_is_not_stored(tmp_path: Path) -> None:
    other = tmp_path / f"{'0' * 64}.json"
    with pytest.raises(StateError):
        play_job(job_of(cells()[0], other))
    assert not other.exists()
