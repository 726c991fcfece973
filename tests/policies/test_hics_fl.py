"""HiCS-FL by hand and against plain loops: entropies, clusters, chances, and what it hears."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations, permutations
from math import acos, exp, log, pi, sqrt
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare, entropy

from fedmuster import HiCSFL, Problem, RoundView, Selector
from fedmuster.core.errors import ConfigError
from fedmuster.core.explaining import Moment
from fedmuster.core.records import Feedback, Selection
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.hics_fl import BiasState, entropies

LEVEL = 1e-3


def known(
    policy: HiCSFL, biases: Sequence[Sequence[float]], *, cohort_size: int = 2, **told: Any
) -> BiasState:
    """The state after an answer of every client."""
    clients = np.arange(len(biases))
    problem = Problem(
        num_clients=len(clients), cohort_size=cohort_size, num_classes=len(biases[0]), **told
    )
    state = policy.init(problem)
    policy.observe(
        state,
        Selection(round=1, clients=clients),
        Feedback(
            round=1,
            clients=clients,
            latency_seconds=np.ones(len(clients)),
            output_bias=np.array(biases, dtype=np.float64),
        ),
    )
    return state


def view(num_clients: int, count: int, *, round_: int = 50) -> RoundView:
    return RoundView(
        round=round_, cohort_size=count, available=np.ones(num_clients, dtype=np.bool_)
    )


def plain_chances(
    policy: HiCSFL, biases: dict[int, list[float]], data: Sequence[int], count: int, round_: int
) -> dict[int, float]:
    """Eq. 7, 9 and 10 with loops, and Ward's method by the formula of Lance and Williams."""
    clients = sorted(biases)
    moved = [k for k in clients if any(biases[k])]
    largest = max(abs(x) for k in moved for x in biases[k])
    temperature = policy.temperature or largest / 14
    H = {}
    for k in moved:
        weights = [exp((x - max(biases[k])) / temperature) for x in biases[k]]
        shares = [w / sum(weights) for w in weights]
        H[k] = -sum(p * log(p) for p in shares if p > 0)
    for k in clients:
        H.setdefault(k, sum(H[j] for j in moved) / len(moved))

    def angle(u: int, k: int) -> float:
        if not any(biases[u]) or not any(biases[k]):
            return 0.0 if not any(biases[u]) and not any(biases[k]) else pi / 2
        dot = sum(a * b for a, b in zip(biases[u], biases[k], strict=True))
        length = sqrt(sum(a * a for a in biases[u])) * sqrt(sum(b * b for b in biases[k]))
        return acos(min(max(dot / length, -1.0), 1.0))

    groups: dict[int, list[int]] = {k: [k] for k in clients}
    apart = {
        (u, k): angle(u, k) + policy.entropy_weight * abs(H[u] - H[k])
        for u, k in combinations(clients, 2)
    }
    while len(groups) > (policy.num_clusters or count):
        u, k = min(apart, key=lambda pair: apart[pair])
        joined = {}
        for v in groups:
            if v not in (u, k):
                nu, nk, nv = len(groups[u]), len(groups[k]), len(groups[v])
                du, dk = apart[min(u, v), max(u, v)], apart[min(k, v), max(k, v)]
                square = (nu + nv) * du**2 + (nk + nv) * dk**2 - nv * apart[u, k] ** 2
                joined[v] = sqrt(square / (nu + nk + nv))
        groups[u] += groups.pop(k)
        apart = {pair: d for pair, d in apart.items() if k not in pair and u not in pair}
        apart |= {(min(u, v), max(u, v)): d for v, d in joined.items()}
    gamma = policy.gamma * max(1 - round_ / policy.annealing_rounds, 0)
    weight = {
        g: exp(gamma * sum(H[k] for k in members) / len(members)) for g, members in groups.items()
    }
    return {
        k: weight[g] / sum(weight.values()) * data[k] / sum(data[j] for j in members)
        for g, members in groups.items()
        for k in members
    }


class TestPlainLoops:
    @pytest.mark.parametrize(
        "policy",
        [HiCSFL(), HiCSFL(temperature=0.3, entropy_weight=0.5, num_clusters=5, keep_first=True)],
        ids=["default", "other"],
    )
    def test_a_run_of_sixty_rounds(self, policy: HiCSFL) -> None:
        """With failures, rests, absences and clients that move no bias."""
        rng = np.random.default_rng(3)
        num_clients, count = 11, 3
        data = rng.integers(1, 9, num_clients)
        labels = rng.dirichlet(np.full(4, 0.3), num_clients)
        problem = Problem(
            num_clients=num_clients, cohort_size=count, num_classes=4, num_samples=data
        )
        selector = Selector(policy, problem, seed=1)
        biases: dict[int, list[float]] = {}
        failed: dict[int, tuple[int, int]] = {}
        compared = 0
        for t in range(1, 66):
            available = rng.random(num_clients) < 0.85
            cohort = selector.select(available=available).clients
            scores = selector.scores()
            rests = {k for k, (times, last) in failed.items() if t < last + 2**times}
            ready = [k for k in range(num_clients) if available[k] and k not in rests]
            new = [k for k in ready if k not in biases]
            assert len(set(new) & set(cohort.tolist())) == min(len(new), count)
            drawn = {k: biases[k] for k in ready if k in biases}
            if len(drawn) > 1:
                largest = max(abs(x) for row in biases.values() for x in row)
                fixed = HiCSFL(
                    temperature=policy.temperature or largest / 14,
                    entropy_weight=policy.entropy_weight,
                    num_clusters=policy.num_clusters,
                )
                chances = plain_chances(fixed, drawn, data.tolist(), count, t)
                assert np.isfinite(scores["chance"]).sum() == len(chances)
                for k, chance in chances.items():
                    assert scores["chance"][k] == pytest.approx(chance, rel=1e-9)
                compared += 1
            completed = rng.random(len(cohort)) < 0.85
            rows = labels[cohort] - 0.25 + rng.normal(scale=0.05, size=(len(cohort), 4))
            rows[cohort == 7] = 0.0
            selector.observe(
                Feedback(
                    round=t,
                    clients=cohort,
                    latency_seconds=np.ones(len(cohort)),
                    completed=completed,
                    output_bias=rows,
                )
            )
            for row, k in enumerate(cohort.tolist()):
                if completed[row]:
                    if k not in biases or not policy.keep_first:
                        biases[k] = rows[row].tolist()
                    failed.pop(k, None)
                else:
                    failed[k] = failed.get(k, (0, 0))[0] + 1, t
        assert compared >= 50

    def test_cohorts_are_drawn_as_algorithm_1_draws_them(self) -> None:
        """Repeated draws, of which repeats do not count: by a chi-square test of all pairs."""
        policy = HiCSFL(temperature=0.2)
        data = [1, 2, 3, 4, 5]
        state = known(
            policy,
            [[0.3, -0.3], [0.02, 0.01], [-0.2, 0.2], [0.25, -0.2], [0.01, 0.05]],
            num_samples=np.array(data),
        )
        chance = policy.scores(state, view(5, 2))["chance"]
        assert chance.sum() == pytest.approx(1.0)
        expected = dict.fromkeys(combinations(range(5), 2), 0.0)
        for first, second in permutations(range(5), 2):
            both = chance[first] * chance[second] / (1 - chance[first])
            expected[min(first, second), max(first, second)] += both
        rounds = 4000
        found = Counter(
            tuple(policy.select(state, view(5, 2), stream(seed, POLICY, 1)).clients.tolist())
            for seed in range(rounds)
        )
        counts = [found[pair] for pair in expected]
        assert sum(counts) == rounds
        assert chisquare(counts, [rounds * p for p in expected.values()]).pvalue > LEVEL


class TestChances:
    def test_entropies_are_scipys(self) -> None:
        rows = np.random.default_rng(0).normal(size=(20, 6))
        expected = [entropy(np.exp(row / 0.7)) for row in rows]
        np.testing.assert_allclose(entropies(rows, 0.7), expected)
        np.testing.assert_allclose(
            entropies(np.array([[1e4, 0.0], [-1e4, -1e4]]), 1e-3), [0, log(2)], atol=1e-12
        )

    def test_gamma_falls_to_0_and_stays_there(self) -> None:
        policy = HiCSFL(temperature=0.1, annealing_rounds=100)
        state = known(policy, [[0.5, -0.5], [0.01, 0.0]])
        entropy_ = policy.scores(state, view(2, 1))["entropy"]
        for t, gamma in ((1, 3.96), (50, 2.0), (100, 0.0), (1000, 0.0)):
            chance = policy.scores(state, view(2, 1, round_=t))["chance"]
            assert log(chance[1] / chance[0]) == pytest.approx(gamma * (entropy_[1] - entropy_[0]))

    def test_a_client_that_moves_no_bias_counts_as_the_mean(self) -> None:
        policy = HiCSFL(temperature=0.1)
        state = known(policy, [[0.5, -0.5], [0.01, 0.0], [0.0, 0.0]])
        found = policy.scores(state, view(3, 1))["entropy"]
        assert found[2] == pytest.approx(found[:2].mean())

    def test_the_temperature_follows_the_updates(self) -> None:
        """Ten times the step, the same entropies."""
        rows = np.random.default_rng(0).normal(size=(6, 3))
        for scale in (1e-3, 10.0):
            state = known(HiCSFL(), (scale * rows).tolist())
            found = HiCSFL().scores(state, view(6, 2))["entropy"]
            np.testing.assert_allclose(found, entropies(rows, np.abs(rows).max() / 14))

    def test_without_biases_data_count(self) -> None:
        policy = HiCSFL()
        problem = Problem(num_clients=3, cohort_size=3, num_samples=np.array([1, 2, 5]))
        selector = Selector(policy, problem)
        answer = Feedback(round=1, clients=selector.select().clients, latency_seconds=np.ones(3))
        selector.observe(answer)
        selector.select(cohort_size=1)
        np.testing.assert_allclose(selector.scores()["chance"], [1 / 8, 2 / 8, 5 / 8])

    def test_more_clients_than_can_be_clustered_are_drawn(self) -> None:
        rows = np.random.default_rng(0).normal(size=(40, 3)).tolist()
        policy = HiCSFL(cluster_up_to=6)
        state = known(policy, rows)
        cohorts = [
            policy.select(state, view(40, 4), stream(seed, POLICY, 1)).clients.tolist()
            for seed in range(40)
        ]
        assert len({k for cohort in cohorts for k in cohort}) > 25
        assert np.isnan(policy.scores(state, view(40, 4))["chance"]).all()
        assert len(policy.select(state, view(40, 10), stream(0, POLICY, 1)).clients) == 10

    def test_balanced_clients_are_preferred(self) -> None:
        policy = HiCSFL()
        rng = np.random.default_rng(0)
        rows = np.where(np.arange(20)[:, None] < 4, 0.0, np.eye(4)[np.arange(20) % 4] - 0.25)
        state = known(
            policy, (rows + rng.normal(scale=0.01, size=rows.shape)).tolist(), cohort_size=4
        )
        times = np.zeros(20)
        for seed in range(200):
            times[
                policy.select(state, view(20, 4, round_=10), stream(seed, POLICY, 1)).clients
            ] += 1
        assert times[:4].mean() > 3 * times[4:].mean()


class TestRoundless:
    def test_one_by_one_the_clusters_of_a_cohort_count(self) -> None:
        policy = HiCSFL(temperature=0.1)
        selector = Selector(policy, Problem(num_clients=4, cohort_size=2, num_classes=2))
        first = selector.select(count=4)
        selector.observe(
            Feedback(
                tickets=first.tickets,
                clients=first.clients,
                latency_seconds=np.ones(4),
                output_bias=np.array([[0.5, -0.5], [0.4, -0.4], [0.01, 0.0], [0.0, 0.01]]),
            )
        )
        selector.select(count=1)
        cluster = selector.scores()["cluster"]
        assert cluster[0] == cluster[1] != cluster[2] == cluster[3]


def test_explanation() -> None:
    policy = HiCSFL(temperature=0.1)
    state = known(policy, [[0.5, -0.5], [0.4, -0.4], [0.01, 0.0]])
    seen = view(3, 1)
    told = Moment(
        rule=policy.rule(),
        meaning=policy.terms,
        label="hics-fl",
        round=50,
        cohort=np.array([2]),
        available=seen.available,
        terms=policy.scores(state, seen),
        absent={},
        known=np.ones(3, dtype=np.bool_),
    )
    assert set(told.rule.needs) == set(policy.terms) == set(told.terms)
    assert "0.6919" in told.rule.chosen(told, 2)
    assert told.rule.merit(told).argmax() == 2
    unheard = {name: np.full(3, np.nan) for name in policy.terms}
    bare = Moment(**{**{f: getattr(told, f) for f in told.__slots__}, "terms": unheard})
    assert told.rule.chosen(bare, 0)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"entropy_weight": -1.0}, "entropy_weight"),
        ({"gamma": float("nan")}, "gamma"),
        ({"num_clusters": 0}, "num_clusters"),
        ({"annealing_rounds": 0}, "annealing_rounds"),
        ({"cluster_up_to": 0}, "cluster_up_to"),
    ],
)
def test_bad_settings(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as error:
        HiCSFL(**settings)
    assert error.value.key == (key,)
