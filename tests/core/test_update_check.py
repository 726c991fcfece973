"""Clients whose updates point against the others: found, forgiven, and saved."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedmuster.core.records import BoolArray, FloatArray, IntArray
from fedmuster.core.trust.update_check import UpdateCheck

SIZE = 256


def sketches(rng: np.random.Generator, flipped: BoolArray, *, noise: float) -> FloatArray:
    """Updates with a common direction, a noise of ``noise`` times its length, some flipped."""
    common = np.ones(SIZE) / np.sqrt(SIZE)
    rows = common + noise * rng.standard_normal((len(flipped), SIZE)) / np.sqrt(SIZE)
    rows[flipped] *= -1
    return np.asarray(rows)


def judged(check: UpdateCheck, rounds: int, *, noise: float, seed: int = 0) -> list[BoolArray]:
    """Verdicts on 50 clients, of whom the first ten flip the sign, after cohorts of ten."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(rounds):
        clients: IntArray = np.sort(rng.permutation(50)[:10])
        check.judge(clients, sketches(rng, clients < 10, noise=noise))
        found.append(check.trusts(np.arange(50), SIZE))
    return found


@pytest.mark.parametrize("noise", [0.5, 3.0])
def test_a_fifth_that_flips_is_found_and_nobody_else(noise: float) -> None:
    trusted = judged(UpdateCheck(), 60, noise=noise)[-1]
    assert not trusted[:10].any()
    assert trusted[10:].all()


def test_noise_alone_condemns_few() -> None:
    """Two standard errors on one side: 2.3 % of 50 clients; 5 or more have a chance of 0.6 %."""
    check, rng = UpdateCheck(), np.random.default_rng(3)
    for _ in range(60):
        clients = np.sort(rng.permutation(50)[:10])
        check.judge(clients, rng.standard_normal((10, SIZE)))
    assert np.count_nonzero(~check.trusts(np.arange(50), SIZE)) < 5


def test_a_client_that_changes_is_trusted_again() -> None:
    check, rng = UpdateCheck(), np.random.default_rng(0)
    clients, nobody = np.arange(10), np.zeros(10, dtype=np.bool_)
    first = np.arange(10) < 1
    for _ in range(10):
        before = check.judge(clients, sketches(rng, first, noise=1.0))
    for _ in range(10):
        after = check.judge(clients, sketches(rng, nobody, noise=1.0))
    assert (before[0], after[0]) == (False, True)
    assert before[1:].all()


def test_with_few_others_nobody_is_judged() -> None:
    check, rng = UpdateCheck(), np.random.default_rng(0)
    for _ in range(20):
        assert check.judge(np.arange(5), sketches(rng, np.arange(5) < 2, noise=0.1)).all()


def test_a_long_update_has_no_more_weight() -> None:
    rng = np.random.default_rng(0)
    rows = sketches(rng, np.arange(10) < 2, noise=1.0)
    longer = rows.copy()
    longer[:2] *= 1e6
    for _ in range(3):
        one, other = (UpdateCheck().judge(np.arange(10), each) for each in (rows, longer))
    assert_array_equal(one, other)


def test_answers_of_nothing_and_from_nobody_change_nothing() -> None:
    check = UpdateCheck()
    assert check.judge(np.empty(0, dtype=np.int64), np.empty((0, SIZE))).shape == (0,)
    assert check.judge(np.arange(10), np.zeros((10, SIZE))).all()


def test_one_by_one_finds_them_too() -> None:
    check, rng = UpdateCheck(), np.random.default_rng(1)
    for _ in range(400):
        client = rng.integers(50, size=1)
        check.judge(client, sketches(rng, client < 10, noise=1.0))
    trusted = check.trusts(np.arange(50), SIZE)
    assert not trusted[:10].any()
    assert trusted[10:].all()


def test_a_saved_check_goes_on_with_the_same_bits() -> None:
    whole, saved = UpdateCheck(), UpdateCheck()
    judged(whole, 30, noise=2.0)
    judged(saved, 30, noise=2.0)
    restored = UpdateCheck.of_arrays(saved.arrays())
    for one, other in zip(
        judged(whole, 20, noise=2.0, seed=9), judged(restored, 20, noise=2.0, seed=9), strict=True
    ):
        assert_array_equal(one, other)
    assert all(
        np.array_equal(one, other, equal_nan=True)
        for one, other in zip(whole.arrays().values(), restored.arrays().values(), strict=True)
    )
