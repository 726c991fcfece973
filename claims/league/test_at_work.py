"""The number of clients at work, against values computed by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from claims.league.at_work import Asked, _jobs, _mean_and_peak, clients_at_work
from claims.league.contestants import contestants_of
from claims.league.plan import Choice, cell_of
from claims.league.tiny import TINY
from fedmuster.federation import Federation
from fedmuster.training.aggregation import FedAvg


def asked(at: float, clients: list[int], seconds: list[float]) -> Asked:
    return Asked(np.array(clients), at, np.array(seconds))


def test_mean_and_peak() -> None:
    begin, end = np.array([0.0, 0.0, 2.0, 5.0]), np.array([2.0, 4.0, 3.0, 9.0])
    found = _mean_and_peak(begin, end, 6.0)
    assert found.peak == 2  # at 2 s, one ends before another begins
    assert found.mean == pytest.approx((2 + 4 + 1 + 1) / 6)
    assert _mean_and_peak(begin, end, 0.0) == (0.0, 0.0)
    assert _mean_and_peak(begin[:0], end[:0], 5.0) == (0.0, 0.0)


def test_a_client_that_never_answers_works_until_the_deadline() -> None:
    clients, begin, end = _jobs([asked(1.0, [4, 7], [2.0, np.inf])], deadline=5.0)
    assert clients.tolist() == [4, 7]
    assert begin.tolist() == [1.0, 1.0]
    assert end.tolist() == [3.0, 6.0]


def test_a_client_that_is_late_works_on_until_it_is_asked_again() -> None:
    first = asked(0.0, [0, 1], [0.5, 3.0])
    found = clients_at_work([first, asked(1.0, [0, 2], [1.0, 1.0])], 1.0, 2.0)
    assert found.peak == 3  # client 1 is late, and two others work
    assert found.mean == pytest.approx((0.5 + 2 + 1 + 1) / 2)
    again = clients_at_work([first, asked(1.0, [1, 2], [1.0, 1.0])], 1.0, 2.0)
    assert again.peak == 2  # the first job of client 1 ends when it is asked again


HASTY = '''
from dataclasses import dataclass, replace
from typing import ClassVar

from fedmuster.core.staleness import Discard, PolynomialWorth, Staleness
from fedmuster.policies.random import Random


@dataclass(frozen=True, kw_only=True, slots=True)
class Hasty(Random):
    """Asks a whole cohort, and again when the first client has answered."""

    name: ClassVar[str] = "hasty"
    stale_answers: ClassVar[Staleness] = {staleness}()

    def select(self, state, view, rng):
        return replace(Random.select(self, state, view, rng), quota=1)
'''


@pytest.mark.parametrize("staleness", ["PolynomialWorth", "Discard"])
def test_a_policy_that_closes_its_rounds_at_once_has_no_more_clients_at_work(
    tmp_path: Path, staleness: str
) -> None:
    file = tmp_path / "hasty.py"
    file.write_text(HASTY.replace("{staleness}", staleness), encoding="utf-8")
    (one,) = contestants_of(f"{file}:Hasty:federation=rounds")
    found = cell_of(one, TINY, TINY.judging, Choice(0.1, FedAvg()), 0).play().at_work
    assert found.peak == 10
    free = replace(one, federation=Federation(rounds=True))
    found = cell_of(free, TINY, TINY.judging, Choice(0.1, FedAvg()), 0).play().at_work
    assert found.peak > 15


@pytest.mark.parametrize("mode", ["rounds", "round-less"])
def test_ten_clients_are_at_work_where_nobody_is_late(mode: str) -> None:
    (one,) = contestants_of(f"random:federation={mode}")
    found = cell_of(one, TINY, TINY.judging, Choice(0.4, FedAvg()), 0).play().at_work
    assert found.peak == 10
    assert found.mean == pytest.approx(10.0) if mode == "round-less" else found.mean < 9
