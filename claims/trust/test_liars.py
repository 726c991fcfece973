"""The sums of the claim on liars, on runs made by hand, and which policies compete."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from claims.trust.attacks import ATTACKS, FULL, HONEST, SHARE, fitting
from claims.trust.liars import Results, defence_pays, shares_stay_small, time_is_kept
from fedmuster.report.runs import Run

ATTACK = "losses × 10"
ADVERSARIES = np.array([[True, False, False, False, False]])


def run_of(chosen: list[int], accuracy: list[float]) -> Run:
    """Rounds of one second with two clients each; client 0 is the adversary."""
    rounds = len(accuracy)
    assert len(chosen) == 2 * rounds
    return Run(
        label="any",
        seed=0,
        columns={"seconds": np.ones(rounds), "accuracy": np.array(accuracy)},
        cohort_sizes=np.full(rounds, 2),
        chosen=np.array(chosen),
        cohort_size=2,
        groups=np.zeros(5, dtype=np.int64),
        typical_latency_seconds=np.ones(5),
        rejections=np.zeros(5, dtype=np.int64),
    )


def results(defended: Run, *, policy: str = "oort") -> Results:
    slow = [0.2, 0.5, 0.7, 0.8, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9]
    honest = run_of([0, 1, 2, 3, 4, 1, 2, 3, 4, 1, 0, 2, 3, 4, 1, 2, 3, 4, 1, 2], slow)
    liars = run_of([0, 1] * 10, slow)
    kept: Mapping[tuple[str, bool], Any] = {
        (HONEST, False): honest,
        (HONEST, True): honest,
        (ATTACK, False): liars,
        (ATTACK, True): defended,
    }
    comparisons: dict[tuple[str, bool], Any] = {
        key: SimpleNamespace(runs={"random": (honest,), policy: (run,)})
        for key, run in kept.items()
    }
    return Results(comparisons=comparisons, adversaries=ADVERSARIES, seconds=10.0)


def test_shares_gains_and_delays_by_hand() -> None:
    late = [0.2, 0.2, 0.5, 0.5, 0.7, 0.7, 0.8, 0.8, 0.9, 0.9]
    found = results(run_of([0, 1, 2, 3, 4] * 4, late))
    assert found.share("oort", HONEST, defended=False) == 0.1
    assert found.share("oort", ATTACK, defended=False) == 0.5
    assert found.gain("oort", ATTACK, defended=False) == pytest.approx(5.0)
    assert found.gain("oort", ATTACK, defended=True) == pytest.approx(2.0)
    assert found.delay("oort", ATTACK, defended=False) == 1.0
    assert found.delay("oort", ATTACK, defended=True) == pytest.approx(9.0 / 5.0)  # to 0.855


def test_the_bars_are_held_or_missed() -> None:
    fast = [0.2, 0.5, 0.7, 0.8, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9]
    fair = results(run_of([0, 1, 2, 3, 4, 1, 2, 3, 4, 1] * 2, fast))
    assert shares_stay_small(fair).holds
    assert time_is_kept(fair, of_tempo=False).holds
    assert defence_pays(fair).holds
    never = results(run_of([0, 1] * 10, [0.2] * 10), policy="tempo")
    assert not shares_stay_small(never).holds
    missed = time_is_kept(never, of_tempo=True)
    assert not missed.holds
    assert "never" in missed.measured
    assert time_is_kept(never, of_tempo=False).holds  # nobody else has runs that miss it


def test_all_policies_compete_that_choose_a_cohort_without_the_truth() -> None:
    names = fitting()
    assert {"random", "tempo", "oort", "bsfl", "fedsuv", "pisces"} <= set(names)
    assert not {"genie", "oracle", "all", "safa", "lifted", "exploring"} & set(names)
    assert set(FULL.attacks) == set(ATTACKS)
    assert {attack.share for attack in ATTACKS.values() if attack is not None} == {SHARE}
