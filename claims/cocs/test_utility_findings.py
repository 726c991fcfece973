"""What COCS's claims say of utilities, on runs written by hand."""

from collections.abc import Mapping

import numpy as np
import pytest

from claims.by_hand import run_by_hand
from claims.cocs import nonconvex as cocs_nonconvex
from claims.cocs import sensitivity as cocs_sensitivity
from claims.cocs import utility_findings as findings
from claims.cocs.network import CUCB_, FIVE, LINUCB, ORACLE, OURS, RANDOM, Utilities, five
from fedmuster.bandits.utility import EdgeUtility
from fedmuster.core.records import FloatArray
from fedmuster.experiments.spec import Experiment
from fedmuster.report.runs import Comparison, Run
from fedmuster.worlds import EdgeNetwork

ROUNDS = 40
NOISE = 1e-3 * np.random.default_rng(0).standard_normal((9, 3))


def utilities(
    participants: Mapping[str, float | FloatArray],
    *,
    regret: Mapping[str, FloatArray] | None = None,
    chosen: int = 10,
) -> Utilities:
    """Three seeds that hardly differ; ``participants`` of each round, or of all alike."""
    runs = {
        label: tuple(
            run(
                label,
                seed,
                np.broadcast_to(mean, ROUNDS) + NOISE[number % len(NOISE), seed],
                (regret or {}).get(label, np.ones(ROUNDS)),
                chosen,
            )
            for seed in range(3)
        )
        for number, (label, mean) in enumerate(participants.items())
    }
    comparison = Comparison(
        runs=runs,
        seeds=(0, 1, 2),
        rounds=ROUNDS,
        cohort_size=50,
        notes=(),
        experiment=Experiment(
            policies=five(), world=EdgeNetwork(), rounds=ROUNDS, reward=EdgeUtility()
        ),
    )
    return Utilities(comparison=comparison)


def run(label: str, seed: int, participants: FloatArray, regret: FloatArray, chosen: int) -> Run:
    columns = {"participants": participants, "utility": participants / 3, "regret": regret}
    return run_by_hand(label, seed, [[0] * chosen] * ROUNDS, columns, cohort_size=50)


def means(*values: float) -> dict[str, float | FloatArray]:
    """Of Oracle, COCS, CUCB, LinUCB and Random."""
    return dict(zip(FIVE, values, strict=True))


AS_PUBLISHED = means(6.0, 5.7, 3.05, 4.5, 3.0)
OTHERWISE = means(6.0, 4.0, 3.6, 6.0, 3.0)


def test_what_the_paper_shows_holds() -> None:
    own = utilities(AS_PUBLISHED)
    assert findings.oracle_highest(own).holds
    assert findings.outperforms(own, "COCS outperforms").holds
    assert findings.close_to_oracle(own).holds
    assert findings.contexts_pay(own).holds
    assert findings.cucb_like_random(own).holds
    assert findings.bounded_by(own).holds


def test_each_sentence_can_fail() -> None:
    own = utilities(OTHERWISE)
    assert not findings.oracle_highest(own).holds  # LinUCB is as good
    behind = findings.outperforms(own, "COCS outperforms")
    assert not behind.holds
    assert f"{LINUCB}'s (significantly less)" in behind.measured
    assert not findings.close_to_oracle(own).holds
    assert not findings.cucb_like_random(own).holds
    assert not findings.bounded_by(own).holds
    assert not findings.contexts_pay(utilities(means(6.0, 5.0, 4.0, 3.9, 3.0))).holds


def test_totals_are_utilities_and_participants_beside_them() -> None:
    own = utilities(AS_PUBLISHED)
    assert own.total(ORACLE) == pytest.approx(6.0 * ROUNDS / 3, abs=0.05)
    assert own.share(OURS).mean == pytest.approx(0.95, abs=1e-3)
    text = findings.totals_text(own, (ORACLE,))
    assert text == "oracle 80 (240 participants)"


def test_participants_must_rise_beyond_luck() -> None:
    rising = np.linspace(3.0, 4.0, ROUNDS)
    learned = utilities({**AS_PUBLISHED, OURS: rising, LINUCB: rising, CUCB_: rising})
    assert findings.increasing(learned).holds
    luck = utilities(dict.fromkeys(FIVE, rising))
    assert not findings.increasing(luck).holds


def test_sublinear_is_an_exponent_below_one() -> None:
    rounds = np.arange(1, ROUNDS + 1)
    root = np.diff(np.sqrt(rounds), prepend=0.0)
    own = utilities(AS_PUBLISHED, regret={OURS: root})
    assert findings.exponents(own, OURS) == pytest.approx(0.5, abs=0.01)
    assert findings.sublinear(own).holds
    assert findings.exponents(own, RANDOM) == pytest.approx(1.0, abs=0.01)
    assert not findings.sublinear(own, LINUCB).holds  # as linear as Random's


def test_who_has_regret() -> None:
    own = utilities(AS_PUBLISHED, regret={ORACLE: np.full(ROUNDS, 1e-16)})
    assert not own.has_regret(ORACLE)
    assert own.has_regret(OURS)


# Fig. 4d, 4f


def test_rises_and_shares_in_time() -> None:
    sweep = {3.5: utilities(means(4, 4, 4, 4, 4)), 10.0: utilities(means(6, 5, 4, 6, 4))}
    assert cocs_sensitivity.rise(sweep, ORACLE, 3.5, 10.0) == pytest.approx(0.5, abs=0.01)
    assert cocs_sensitivity.in_time(sweep[10.0], OURS) == pytest.approx(0.5, abs=0.01)


# Eq. 21


def test_delta_regret_compares_with_a_share_of_the_optimum() -> None:
    own = utilities({**AS_PUBLISHED, cocs_nonconvex.EXACT_ORACLE: 6.0})
    share = cocs_nonconvex.greedy().guarantee(3)
    assert share == pytest.approx(1 / 10.4)  # Lemma 3
    expected = ROUNDS / 3 * (6.0 / 10.4 - 3.0)
    assert cocs_nonconvex.delta_regret(own, RANDOM, share) == pytest.approx(expected, abs=0.1)
    plain = cocs_nonconvex.delta_regret(own, cocs_nonconvex.EXACT_ORACLE, 1.0)
    assert plain == pytest.approx(0.0)
