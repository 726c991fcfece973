"""CUCB: UCB1 on decisions, worked once more in plain Python."""

from math import fsum, inf, log, sqrt
from zlib import crc32

import numpy as np
import pytest
from tests.policies.small_networks import INFEASIBLE, KINDS, network, rounds

from fedmuster.core.edges import EdgeView
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import BoolArray, Feedback, Problem, Selection
from fedmuster.core.selector import Selector
from fedmuster.core.streams import stream
from fedmuster.policies.cucb import CUCB

K, M = 8, 2

Pairs = list[tuple[int, int]]


def decision(edges: EdgeView, available: BoolArray, rank: list[list[float]]) -> Pairs:
    """What can be had in the order of ``rank``."""
    pairs = sorted((rank[k][m], k, m) for k in range(K) for m in range(M))
    chosen: Pairs = []
    for _, k, m in pairs:
        costs = [float(edges.cost[j, m]) for j, at in chosen if at == m]
        payable = fsum([*costs, float(edges.cost[k, m])]) <= edges.budget[m]
        if available[k] and edges.coverage[k, m] and payable and k not in dict(chosen):
            chosen.append((k, m))
    return sorted(chosen)


def ucb1(plays: list[int], utility: list[float], heard: list[int]) -> int:
    """Auer et al.: each arm once, then the highest mean + sqrt(2 ln t / n)."""
    t = sum(plays)
    least = min(heard, default=0)
    scale = max(heard, default=0) - least or 1
    index = [
        inf if n == 0 else (total / n - least) / scale + sqrt(2 * log(t) / n)
        for n, total in zip(plays, utility, strict=True)
    ]
    return index.index(max(index))


def pairs_of(selection: Selection) -> Pairs:
    assert selection.edges is not None
    return list(zip(selection.clients.tolist(), selection.edges.tolist(), strict=True))


def test_every_round_is_ucb1s() -> None:
    """Over 80 rounds of changing networks with 6 arms, two rounds of which nobody can be in."""
    rng = np.random.default_rng(3)
    selector = Selector(
        CUCB(num_arms=6), Problem(num_clients=K, cohort_size=K, num_edges=M), seed=5, rest_after=0
    )
    catalogue = None
    plays, utility = [0] * 6, [0.0] * 6
    heard: list[int] = []
    for t in range(1, 81):
        kind = "nobody covered" if t in (4, 40) else "overlapping"
        edges = network(kind, rng, num_clients=K, num_edges=M)
        available = rng.random(K) < 0.9
        selection = selector.select(edges=edges, available=available)
        arm = ucb1(plays, utility, heard)
        if catalogue is not None:
            rank = stream(catalogue, "cucb", arm).random((K, M)).tolist()
            assert pairs_of(selection) == decision(edges, available, rank)
        done = rng.random(len(selection.clients)) < 0.6
        late = rng.random(len(done)) < 0.2
        answers = Feedback(
            round=t,
            clients=selection.clients,
            latency_seconds=np.where(done, 1.0, np.inf),
            completed=done,
            signals={"in_time": np.where(done, 1.0 - late, np.nan)},
        )
        selector.observe(answers)
        participants = int(np.count_nonzero(done & ~late))
        if catalogue is None:
            chosen = pairs_of(selection)
            columns = [k for k, _ in chosen], [m for _, m in chosen]
            catalogue = crc32(np.array(columns, dtype="<i8").tobytes())
        elif done.size:
            plays[arm] += 1
            utility[arm] += participants
        if done.size:
            heard.append(participants)
    assert sum(plays) == 77
    assert min(plays) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_decisions_are_maximal(kind: str) -> None:
    for played in rounds(CUCB(num_arms=9), kind, 60):
        assert not played.more_fits()
        assert (len(played.selection.clients) == 0) >= (kind in INFEASIBLE)


def test_the_order_of_those_who_are_here_stays_when_others_join() -> None:
    """One arm, budgets for all: without the newcomers the choice of two is as before."""
    selector = Selector(CUCB(num_arms=1), Problem(num_clients=K, cohort_size=2), seed=1)
    everyone = [selector.select().clients]
    for t in (1, 2):
        clients = everyone[-1]
        selector.observe(Feedback(round=t, clients=clients, latency_seconds=np.ones(2)))
        if t == 1:
            everyone.append(selector.select().clients)
    selector.join(3)
    again = selector.select(available=np.arange(K + 3) < K).clients
    np.testing.assert_array_equal(again, everyone[-1])


def test_it_comes_to_prefer_the_better_arm() -> None:
    """Only client 0 ever answers, and there is room for one: arms that begin with it are best."""
    selector = Selector(CUCB(num_arms=12), Problem(num_clients=4, cohort_size=1), seed=2)
    chosen = []
    for t in range(1, 601):
        clients = selector.select().clients
        chosen.append(int(clients[0]))
        done = clients == 0
        seconds = np.where(done, 1.0, np.inf)
        selector.observe(
            Feedback(round=t, clients=clients, latency_seconds=seconds, completed=done)
        )
    begins = {int(k) for k in chosen[1:13]}  # each arm once
    assert 0 in begins
    assert len(begins) > 1
    assert np.mean(np.array(chosen[300:]) == 0) > 2 * np.mean(np.array(chosen[1:13]) == 0)


def test_hyper_parameters_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"num_arms.*0.*1"):
        CUCB(num_arms=0)
