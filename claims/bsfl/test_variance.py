"""The findings on variance-aware indices, of curves written by hand."""

from typing import Any

import numpy as np
import pytest

from claims.bsfl.variance import Case, below_the_bar, lower_everywhere, slower_growth
from claims.claim import Finding

ROUNDS = np.arange(1.0, 1_001.0)
SEEDS = np.array([[0.9], [1.0], [1.1]])


def case(share: float, power: float = 0.5, **known: Any) -> Case:
    """Regret n^0.8 with the published bonus, and ``share`` of it at the end with the others."""
    ours = SEEDS * share * ROUNDS[-1] ** 0.8 * (ROUNDS / ROUNDS[-1]) ** power
    fields: dict[str, Any] = {"policy": "bsfl", "world": "w", "num_clients": 20, "first_round": 8}
    regret = {"published": SEEDS * ROUNDS**0.8, "variance": ours, "minimax": ours}
    return Case(**fields | known, regret=regret)


def test_shares_are_taken_seed_by_seed() -> None:
    share = case(0.1).share("minimax")
    assert share.mean == pytest.approx(0.1)
    assert share.half_width == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("shares", "holds"), [((0.05, 0.19), True), ((0.05, 0.21), False)])
def test_the_bar_is_for_every_world(shares: tuple[float, ...], holds: bool) -> None:
    finding = below_the_bar([case(share) for share in shares], "variance")
    assert finding.holds is holds


def test_worlds_above_the_bar_are_named() -> None:
    finding = below_the_bar([case(0.1, world="calm"), case(0.4, world="noisy")], "minimax")
    assert "noisy" in finding.measured
    assert "calm" not in finding.measured


def test_lower_must_be_significant() -> None:
    def judged(*cases: Case) -> Finding:
        return lower_everywhere(cases, "minimax")

    assert judged(case(0.1), case(0.5)).holds
    assert not judged(case(0.1), case(1.5)).holds
    even = case(1.0)
    even.regret["minimax"][:, -1] *= [1.2, 0.8, 0.9]
    assert not judged(even).holds


@pytest.mark.parametrize(("power", "holds"), [(0.5, True), (0.9, False)])
def test_growth_is_compared_by_the_last_exponent(power: float, holds: bool) -> None:
    cases = [case(0.1, power)]
    # Equal exponents in all seeds would leave nothing to test.
    cases[0].regret["minimax"][0] *= 1 + 1e-3 * ROUNDS / ROUNDS[-1]
    assert cases[0].growth("published").exponent.mean == pytest.approx(0.8)
    assert cases[0].growth("minimax").exponent.mean == pytest.approx(power, abs=1e-2)
    assert slower_growth(cases, "minimax").holds is holds
