"""LinUCB: one ridge regression on all pairs, solved from scratch, and the best placement."""

from math import sqrt
from typing import Any

import numpy as np
import pytest
from tests.policies.small_networks import KINDS, network, rounds

from fedmuster.core.config import from_table
from fedmuster.core.edges import EdgeView
from fedmuster.core.errors import ConfigError
from fedmuster.core.policy import Policy
from fedmuster.core.records import Feedback, Problem, RoundView
from fedmuster.core.selector import Selector
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.linucb import LinUCB
from fedmuster.policies.random import Random

K, M, D = 6, 2, 2


@pytest.mark.parametrize("alpha", [0.0, 0.7])
@pytest.mark.parametrize("learns_from", ["pairs", "decisions"])
def test_index_and_placement_by_the_normal_equations(alpha: float, learns_from: str) -> None:
    rng = np.random.default_rng(7)
    settings = {"alpha": alpha, "regularisation": 0.5, "learns_from": learns_from}
    policy = from_table(LinUCB, settings)
    problem = Problem(num_clients=K, cohort_size=K, num_edges=M, num_features=D)
    selector = Selector(policy, problem, seed=1, rest_after=0)
    H, b = 0.5 * np.eye(1 + D), np.zeros(1 + D)
    for t in range(1, 41):
        edges = network("overlapping", rng, num_clients=K, num_edges=M)
        features = rng.uniform(-1.0, 1.0, (K, M, D))
        index = np.full((K, M), np.nan)
        for k, m in np.argwhere(edges.coverage):
            x = np.array([1.0, *features[k, m]])
            width = sqrt(float(x @ np.linalg.solve(H, x)))
            index[k, m] = max(float(x @ np.linalg.solve(H, b)) + alpha * width, 0.0)
        selection = selector.select(edges=edges, features=features)
        assert selection.edges is not None

        covered = edges.coverage.any(axis=1)
        score = selector.scores()["score"]
        np.testing.assert_allclose(score[covered], np.nanmax(index[covered], axis=1), rtol=1e-9)
        assert np.isnan(score[~covered]).all()
        best = max(totals(edges, np.nan_to_num(index)))
        chosen = index[selection.clients, selection.edges].sum()
        assert chosen == pytest.approx(best, rel=1e-9)

        done = rng.random(len(selection.clients)) < 0.7
        late = rng.random(len(done)) < 0.3
        rows = rng.permutation(len(done))
        answers = Feedback(
            round=t,
            clients=selection.clients[rows],
            latency_seconds=np.where(done, 1.0, np.inf)[rows],
            completed=done[rows],
            signals={"in_time": np.where(done, 1.0 - late, np.nan)[rows]},
        )
        selector.observe(answers)
        heard = [
            (np.array([1.0, *features[k, m]]), float(x_in_time))
            for k, m, x_in_time in zip(
                selection.clients, selection.edges, done & ~late, strict=True
            )
        ]
        if learns_from == "decisions":
            whole = sum((x for x, _ in heard), np.zeros(1 + D)), sum(y for _, y in heard)
            heard = [whole]
        for x, y in heard:
            H += np.outer(x, x)
            b += x * y


def totals(edges: EdgeView, value: np.ndarray) -> list[float]:
    """Of every placement within the budgets."""
    found = []
    for code in range((M + 1) ** K):
        places = [code // (M + 1) ** k % (M + 1) for k in range(K)]
        pairs = [(k, m) for k, m in enumerate(places) if m < M]
        spent = [sum(float(edges.cost[p]) for p in pairs if p[1] == m) for m in range(M)]
        if all(edges.coverage[p] for p in pairs) and np.all(spent <= edges.budget):
            found.append(sum(float(value[p]) for p in pairs))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_it_copes_with_every_network(kind: str) -> None:
    for played in rounds(LinUCB(), kind, 15):
        assert played.selection.features is not None


@pytest.mark.filterwarnings("ignore::fedmuster.core.errors.FedmusterWarning")  # no features
def test_without_features_all_are_alike() -> None:
    """Four alike, of whom two can be paid: chi-square with 3 freedoms, 1 - 1e-5."""
    edges = EdgeView(
        coverage=np.ones((4, 1), dtype=np.bool_), cost=np.ones(4), budget=np.array([2.0])
    )
    view = RoundView(round=1, cohort_size=4, available=np.ones(4, dtype=np.bool_), edges=edges)
    policy = LinUCB()
    state = policy.init(Problem(num_clients=4, cohort_size=4))
    times = np.zeros(4)
    for seed in range(200):
        times[policy.select(state, view, stream(seed, POLICY, 1)).clients] += 1
    assert times.sum() == 400
    assert np.sum((times - 100) ** 2) / 50 * 3 / 4 < 25.902


def participants(policy: Policy[Any], seed: int) -> int:
    """Over 40 rounds in which success is linear in the context."""
    rng = stream(seed, "linear success")
    problem = Problem(num_clients=12, cohort_size=12, num_edges=2, num_features=D)
    selector = Selector(policy, problem, seed=seed)
    count = 0
    for t in range(1, 41):
        edges = network("overlapping", rng, num_clients=12, num_edges=2)
        features = rng.random((12, 2, D))
        succeeds = rng.random((12, 2)) < 0.1 + 0.8 * features[:, :, 0]
        selection = selector.select(edges=edges, features=features)
        done = selection.rows_of(succeeds.astype(np.float64)) > 0
        count += int(np.count_nonzero(done))
        selector.observe(
            Feedback(
                round=t,
                clients=selection.clients,
                latency_seconds=np.where(done, 1.0, np.inf),
                completed=done,
            )
        )
    return count


def test_it_learns_what_is_linear() -> None:
    """A paired t-test over 8 seeds at 1e-4 (7 freedoms)."""
    gains = np.array([participants(LinUCB(), s) - participants(Random(), s) for s in range(8)])
    assert gains.mean() > 7.063 * gains.std(ddof=1) / sqrt(len(gains))


def test_hyper_parameters_are_checked() -> None:
    with pytest.raises(ConfigError, match="alpha = -1"):
        LinUCB(alpha=-1.0)
    with pytest.raises(ConfigError, match="regularisation = 0"):
        LinUCB(regularisation=0.0)
