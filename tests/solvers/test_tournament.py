"""The tournament against sorting: the best after any change, how much it reads, fair ties."""

from collections import Counter
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from fedmuster.core.errors import DataError
from fedmuster.core.streams import stream
from fedmuster.solvers import tournament as module
from fedmuster.solvers.tournament import Tournament

LEVEL = 1e-3
VALUES = [-np.inf, -1.0, 0.0, 0.5, 2.0]


@pytest.mark.parametrize("visits", [0, 2, 10**9])
@pytest.mark.parametrize("fan_out", [2, 3, 128])
def test_takes_the_best_after_any_changes(
    fan_out: int, visits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 0 visits it reads all values, with 2 often after it has found some."""
    monkeypatch.setattr(module, "FAN_OUT", fan_out)
    monkeypatch.setattr(module, "_VISITS", visits)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        size = int(rng.integers(1, 40))
        values = rng.choice(VALUES, size) if seed % 2 else rng.normal(size=size)
        tournament = Tournament.of(values)
        for turn in range(4):
            available = rng.random(size) < rng.choice([0.1, 0.5, 1.0])
            count = int(rng.integers(0, size + 2))
            before = [array.copy() for array in arrays(tournament)]
            chosen = tournament.best(count, available, stream(turn, "x"))
            there = values[available & (values > -np.inf)]
            assert values[chosen].tolist() == sorted(there.tolist(), reverse=True)[:count]
            assert chosen.dtype == np.int64
            assert len(set(chosen.tolist())) == len(chosen)
            assert available[chosen].all()
            assert all(map(np.array_equal, arrays(tournament), before))
            rows = rng.choice(size, int(rng.integers(1, min(size, 5) + 1)), replace=False)
            values[rows] = rng.choice(VALUES, len(rows))
            tournament.update(rows, values[rows])
            assert all(map(np.array_equal, arrays(tournament), arrays(Tournament.of(values))))


def arrays(tournament: Tournament) -> list[Any]:
    return [tournament.values, tournament.peaks, tournament.ties]


@pytest.mark.parametrize("away", [0, 3])
@pytest.mark.parametrize("num_clients", [1_000, 100_000])
def test_reads_a_walk_for_each_client_found_or_passed(
    num_clients: int, away: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0

    class Counting(module._Walk):
        def _group(self, level: int, number: int) -> Any:
            nonlocal read
            read += 1
            return super()._group(level, number)

    values = np.random.default_rng(1).permutation(num_clients).astype(np.float64)
    tournament, available = Tournament.of(values), values < num_clients - away
    monkeypatch.setattr(module, "_Walk", Counting)
    chosen = tournament.best(2, available, stream(0, "x"))
    assert values[chosen].tolist() == [num_clients - away - 1, num_clients - away - 2]
    levels = 1 + np.ceil(np.log(num_clients / module.FAN_OUT) / np.log(module.FAN_OUT))
    assert 0 < read <= 2 * levels * (2 + away)


@pytest.mark.parametrize("visits", [0, 3, 10**9])
@pytest.mark.parametrize("fan_out", [2, 128])
def test_ties_are_fair_in_who_and_in_which_order(
    fan_out: int, visits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client is best, seven are alike, three of them are away, and others are worse.

    With 3 visits the draw at times meets all three that are away, and then reads all values.
    """
    monkeypatch.setattr(module, "FAN_OUT", fan_out)
    monkeypatch.setattr(module, "_VISITS", visits)
    values = np.array([0.0, 1, 1, -np.inf, 2, 1, 0, 1, 1, 1, 1])
    available = np.ones(11, dtype=np.bool_)
    available[[2, 9, 10]] = False
    tournament, rng = Tournament.of(values), stream(3, "fairness")
    seen = Counter(tuple(tournament.best(3, available, rng).tolist()) for _ in range(2_400))
    orders = [(4, *pair) for pair in permutations((1, 5, 7, 8), 2)]
    assert set(seen) <= set(orders)
    assert chisquare([seen[order] for order in orders]).pvalue > LEVEL


def test_equals_of_a_million_are_drawn_evenly() -> None:
    """Equals are counted over whole branches: nobody in a sparse group is favoured."""
    values = np.full(300_000, -np.inf)
    values[:1000] = 1.0  # a full group, and many sparse ones
    values[1000::5000] = 1.0
    tournament, rng = Tournament.of(values), stream(4, "fairness")
    available = np.ones(len(values), dtype=np.bool_)
    draws = [int(tournament.best(1, available, rng)[0]) for _ in range(3_000)]
    dense = sum(client < 1000 for client in draws)
    sparse = int(np.count_nonzero(values[1000:] > 0))
    share = 1000 / (1000 + sparse)
    assert chisquare([dense, 3_000 - dense], [3_000 * share, 3_000 * (1 - share)]).pvalue > LEVEL


def test_the_same_stream_gives_the_same_answer() -> None:
    tournament, available = Tournament.of(np.zeros(5_000)), np.ones(5_000, dtype=np.bool_)
    one, two = (tournament.best(4, available, stream(8, "x")).tolist() for _ in range(2))
    assert one == two != tournament.best(4, available, stream(9, "x")).tolist()


def test_nan_is_refused() -> None:
    tournament = Tournament.of(np.zeros(3))
    with pytest.raises(DataError):
        tournament.update(np.array([1]), np.array([np.nan]))
    assert tournament.values[1] == 0.0
