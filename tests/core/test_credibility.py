"""Claims that cannot be believed become usual ones."""

from typing import Any

import numpy as np
import pytest

from fedmuster import Oort
from fedmuster.core.errors import DataError, StateError
from fedmuster.core.records import Feedback, FloatArray, Problem
from fedmuster.core.selector import Selector
from fedmuster.core.trust.credibility import Credibility

TEN = np.arange(10)


def test_honest_claims_pass() -> None:
    rng = np.random.default_rng(1)
    credibility = Credibility()
    passed = 0
    for _ in range(100):
        loss = rng.exponential(1.0, 10)
        passed += int((credibility.believable("loss", TEN, loss) == loss).sum())
    # A median absolute deviation of an exponential is 0.48: 3 % lie beyond log 2 + 6 x 0.48, and
    # with few votes the deviation may be smaller.
    assert 900 <= passed < 1000


@pytest.mark.parametrize("claim", [1e9, -1e9, 40.0, np.inf, -np.inf])
def test_an_outlier_becomes_a_usual_value_on_the_other_side(claim: float) -> None:
    loss = np.linspace(1.0, 2.0, 10)
    loss[3] = claim
    credibility = Credibility()
    believed = credibility.believable("loss", TEN, loss)
    assert believed[3] == pytest.approx(
        np.quantile(np.delete(loss, 3), 0.25 if claim > 0 else 0.75)
    )
    assert np.delete(believed, 3).tolist() == np.delete(loss, 3).tolist()
    assert credibility.refused == {"loss": 1}


def test_a_minority_cannot_move_what_is_usual() -> None:
    loss = np.linspace(1.0, 2.0, 10)
    loss[:4] = 1e6
    believed = Credibility().believable("loss", TEN, loss)
    assert believed[:4] == pytest.approx(np.quantile(loss[4:], 0.25))
    assert believed[4:].tolist() == loss[4:].tolist()


def test_one_that_speaks_in_every_round_has_one_vote() -> None:
    credibility = Credibility()
    credibility.believable("loss", TEN, np.linspace(1.0, 2.0, 10))
    for _ in range(5):
        believed = credibility.believable("loss", np.array([10]), np.array([1e6]))
        assert 1.0 < believed[0] < 2.0


def test_what_is_usual_follows_falling_losses() -> None:
    credibility = Credibility()
    for round_ in range(400):
        clients = 10 * round_ + TEN  # of most of them all that was ever said is out of date
        loss = 2.3 * 0.95 ** max(round_ - 300, 0) * np.linspace(0.8, 1.2, 10)
        believed = credibility.believable("loss", clients, loss)
        assert believed.tolist() == loss.tolist()


def test_where_all_claim_the_same_small_differences_are_believed_and_large_ones_not() -> None:
    loss = np.full(10, 0.5)
    loss[0], loss[1] = 0.6, 1.0
    believed = Credibility().believable("loss", TEN, loss)
    assert believed[:3].tolist() == [0.6, 0.5, 0.5]


def test_who_claims_nothing_is_taken_for_usual() -> None:
    credibility = Credibility()
    nothing = np.full(3, np.nan)
    assert np.isnan(credibility.believable("loss", TEN[:3], nothing)).all()
    credibility.believable("loss", TEN[:3], np.array([1.0, 2.0, 4.0]))
    assert credibility.believable("loss", TEN[3:6], nothing).tolist() == [2.0] * 3
    assert not credibility.refused


def test_two_clients_are_no_majority() -> None:
    believed = Credibility().believable("loss", TEN[:2], np.array([1.0, 1e9]))
    assert believed.tolist() == [1.0, 1e9]


def test_names_are_apart_and_not_without_end() -> None:
    credibility = Credibility()
    assert credibility.believable("a", TEN, TEN + 1.0).tolist() == (TEN + 1.0).tolist()
    assert credibility.believable("b", TEN, TEN - 1e6).tolist() == (TEN - 1e6).tolist()
    for number in range(200):
        credibility.believable(f"name {number}", TEN, TEN + 1.0)
    assert np.isnan(credibility.believable("one more", TEN, TEN + 1.0)).all()
    assert credibility.believable("a", TEN, TEN + 2.0).tolist() == (TEN + 2.0).tolist()


def test_a_restart_changes_nothing() -> None:
    rng = np.random.default_rng(2)
    credibility, restored = Credibility(), Credibility()
    for round_ in range(40):
        clients = rng.permutation(5 + round_)[:5]
        loss = rng.standard_cauchy(5)
        for name in ("loss", "strange/../name\n")[: 1 + round_ % 2]:
            expected = credibility.believable(name, clients, loss)
            assert restored.believable(name, clients, loss).tolist() == expected.tolist()
        restored = Credibility.from_bytes(restored.to_bytes())
    assert restored.refused == credibility.refused
    assert sum(restored.refused.values()) > 0


def test_refusals_say_what_came() -> None:
    with pytest.raises(DataError, match=r"'loss' has shape \(2,\)"):
        Credibility().believable("loss", TEN, np.ones(2))
    with pytest.raises(StateError, match="what clients claim"):
        Credibility.from_bytes(b"something else")


@pytest.mark.parametrize("world", ["some have harder data", "all alike", "falling losses"])
def test_lying_about_the_loss_costs_slots(world: str) -> None:
    """30 of 100 clients claim ten times their loss to Oort, which seeks high losses.

    Over 200 rounds, for a small gain would feed itself: liars that are chosen more have more votes.
    """

    def share_of_liars(*, lying: bool, check: bool, seed: int) -> float:
        rng = np.random.default_rng(seed)
        liars = rng.permutation(100) < 30
        hardness = np.ones(100) if world == "all alike" else rng.gamma(9.0, 1 / 9.0, 100)
        selector: Selector[Any] = Selector(
            Oort(), Problem(num_clients=100, cohort_size=10), seed=seed
        )
        credibility = Credibility()
        slots = 0
        for round_ in range(1, 201):
            clients = selector.select().clients
            luck = np.random.default_rng([seed, round_])
            loss: FloatArray = (hardness * luck.gamma(50.0, 1 / 50.0, 100))[clients]
            loss = loss * 0.97**round_ if world == "falling losses" else loss
            loss = np.where(liars[clients] & lying, 10 * loss, loss)
            if check:
                loss = credibility.believable("loss", clients, loss)
            selector.observe(
                Feedback(
                    round=round_,
                    clients=clients,
                    latency_seconds=np.ones(len(clients)),
                    signals={"loss": loss},
                )
            )
            slots += int(liars[clients].sum())
        return slots / 2000

    def gain(*, check: bool, seeds: int) -> float:
        return float(
            np.mean(
                [
                    share_of_liars(lying=True, check=check, seed=seed)
                    - share_of_liars(lying=False, check=check, seed=seed)
                    for seed in range(seeds)
                ]
            )
        )

    assert gain(check=True, seeds=3) < 0
    assert gain(check=False, seeds=1) > 0.1
