"""Answers weighted by 1/pi: the mean over cohorts is the update of full participation."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import chi2
from tests.policies.test_exploring import Firsts, cohort_chances
from tests.training.toy_federation import CLIENTS, GOALS, NUM_PARAMETERS, SIZES, toy_trainer
from tests.training.toy_training import ToyTraining

from fedmuster import (
    AllClients,
    ClusteredSampling,
    Exploring,
    OptimalSampling,
    Problem,
    Random,
    RoundView,
)
from fedmuster.core.arrays import BoolArray, FloatArray
from fedmuster.core.errors import ConfigError
from fedmuster.core.policy import Policy
from fedmuster.core.staleness import (
    AgeAndNovelty,
    CachedModels,
    ConstantWorth,
    Discard,
    PolynomialWorth,
    Staleness,
)
from fedmuster.core.streams import POLICY, stream
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Federation, Simulation
from fedmuster.policies.exploring import inclusion
from fedmuster.training.aggregation import (
    Aggregation,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedTrimmedMean,
    ModelMixing,
)
from fedmuster.training.combine import CoordinateMedian, UniformMean
from fedmuster.training.servers import Answers, EdgeServer
from fedmuster.training.training_records import Updates
from fedmuster.training.unbiased import UnbiasedServer
from fedmuster.worlds import BSFLGroups

LEVEL = 1e-4
CURVATURE = np.linspace(0.5, 2.0, CLIENTS)
"""Client k minimises ``CURVATURE[k] |w - GOALS[k]|² / 2`` by one step of gradient descent."""


def deltas(model: Any) -> FloatArray:
    """[K, P], what each client would send."""
    return np.asarray(0.1 * CURVATURE[:, np.newaxis] * (GOALS - model))


def unbiased_server(rule: Aggregation | None = None, staleness: Staleness | None = None) -> Any:
    trainer = toy_trainer(
        Discard() if staleness is None else staleness,
        server=rule,
        keeps_late=False,
        weighting="unbiased",
    )
    return trainer.edge_servers[0]


def answered(server: EdgeServer, clients: Any, chance: Any, ages: Any = 0) -> Answers:
    who = np.array(clients, dtype=np.int64)
    sent = deltas(server.model).astype(np.float32)[who]
    return Answers(
        round=1,
        updates=Updates(clients=who, deltas=sent, signals={}),
        starts=[server.model] * len(who),
        ages=np.broadcast_to(np.asarray(ages, dtype=np.int64), len(who)),
        used=np.ones(len(who), dtype=np.bool_),
        asked=who,
        inclusion=np.broadcast_to(np.asarray(chance, dtype=np.float64), len(who)),
    )


def shares(weights: str) -> FloatArray:
    return SIZES / SIZES.sum() if weights == "data" else np.full(CLIENTS, 1 / CLIENTS)


def cohorts_of(clients: int, count: int) -> Iterable[tuple[int, ...]]:
    return combinations(range(clients), count)


def expected_update(
    server: EdgeServer, cohorts: Mapping[tuple[int, ...], Any], chance: Mapping[int, float]
) -> FloatArray:
    """The mean over all cohorts of the combined update, in float64 as the server weights it."""
    total, sent = np.zeros(NUM_PARAMETERS), deltas(server.model)
    for who, probability in cohorts.items():
        merged = server.merge(answered(server, who, [chance[k] for k in who]))
        assert merged.scale is not None
        total += float(probability) * (merged.weights * merged.scale) @ sent[list(who)]
    return total


class TestTheMeanOverAllCohorts:
    @pytest.mark.parametrize("weights", ["data", "uniform"])
    @pytest.mark.parametrize("wanted", [{0}, {1, 4}, {0, 2, 5}])
    @pytest.mark.parametrize("explore", [Fraction(1, 20), Fraction(3, 5)])
    def test_with_exploration(self, weights: Any, wanted: set[int], explore: Fraction) -> None:
        """Exact: every cohort, with its probability, to 1e-12."""
        server = unbiased_server(FedAvg(weights=weights))
        likely = inclusion(len(wanted), CLIENTS, float(explore))
        chance = {k: likely.wanted if k in wanted else likely.other for k in range(CLIENTS)}
        cohorts = cohort_chances(wanted, set(range(CLIENTS)), explore)
        full = shares(weights) @ deltas(server.model)
        assert_allclose(expected_update(server, cohorts, chance), full, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("weights", ["data", "uniform"])
    @pytest.mark.parametrize("count", [1, 3, 6])
    def test_of_random_cohorts(self, weights: Any, count: int) -> None:
        server = unbiased_server(FedAvg(weights=weights))
        share = 1 / comb(CLIENTS, count)
        cohorts = dict.fromkeys(cohorts_of(CLIENTS, count), share)
        full = shares(weights) @ deltas(server.model)
        found = expected_update(server, cohorts, dict.fromkeys(range(CLIENTS), count / CLIENTS))
        assert_allclose(found, full, rtol=0, atol=1e-12)

    def test_some_are_away(self) -> None:
        """Of whom nothing is heard counts as if it had sent nothing: weights are not scaled up."""
        server, away = unbiased_server(), 5
        cohorts = dict.fromkeys(cohorts_of(away, 2), 1 / comb(5, 2))
        found = expected_update(server, cohorts, dict.fromkeys(range(away), 2 / 5))
        there = (shares("data")[:, np.newaxis] * deltas(server.model))[:away].sum(axis=0)
        assert_allclose(found, there, rtol=0, atol=1e-12)

    def test_some_do_not_answer(self) -> None:
        """A client that answers with probability a counts a times: all 2-cohorts, all failures."""
        server, answers = unbiased_server(), np.linspace(0.3, 1.0, CLIENTS)
        cohorts: dict[tuple[int, ...], float] = {}
        for one, other in combinations(range(CLIENTS), 2):
            for here in ((), (one,), (other,), (one, other)):
                luck = [answers[k] if k in here else 1 - answers[k] for k in (one, other)]
                share = float(np.prod(luck)) / comb(CLIENTS, 2)
                cohorts[here] = cohorts.get(here, 0.0) + share
        found = expected_update(server, cohorts, dict.fromkeys(range(CLIENTS), 2 / CLIENTS))
        full = (shares("data") * answers) @ deltas(server.model)
        assert_allclose(found, full, rtol=0, atol=1e-12)


class TestTheServer:
    @pytest.mark.parametrize("weights", ["data", "uniform"])
    def test_of_everybody_is_fedavg(self, weights: Any) -> None:
        rule = FedAvg(weights=weights)
        unbiased, usual = unbiased_server(rule), toy_trainer(Discard(), server=rule).edge_servers[0]
        for server in (unbiased, usual):
            assert server.aggregate(answered(server, range(CLIENTS), 1.0)) == CLIENTS
        assert_allclose(unbiased.model, usual.model, rtol=1e-6)

    def test_adds_what_it_has_combined(self) -> None:
        server = unbiased_server()
        before, sent = server.model, deltas(server.model)
        server.aggregate(answered(server, [1, 4], [0.5, 0.25]))
        moved = (SIZES[1] / 0.5 * sent[1] + SIZES[4] / 0.25 * sent[4]) / SIZES.sum()
        assert_allclose(server.model, before + moved, rtol=1e-6)

    def test_clips_before_it_weights(self) -> None:
        server = unbiased_server(FedAvg(clip_norm=0.01))
        before = server.model
        server.aggregate(answered(server, [1], [0.5]))
        moved = np.linalg.norm(server.model - before)
        assert moved == pytest.approx(0.01 * SIZES[1] / 0.5 / SIZES.sum(), rel=1e-3)

    def test_old_answers_are_shortened(self) -> None:
        server = unbiased_server(staleness=PolynomialWorth(power=1.0, max_age=4))
        merged = server.merge(answered(server, [1, 2, 4], 0.5, ages=[0, 3, 5]))
        assert merged.updates.clients.tolist() == [1, 2]
        assert merged.scale.tolist() == [1.0, 0.25]
        assert merged.weights.tolist() == pytest.approx(
            (SIZES[[1, 2]] / 0.5 / SIZES.sum()).tolist()
        )

    def test_statistics_are_averaged(self) -> None:
        """A sum of weights of 6 would make a variance negative."""
        server = unbiased_server()
        server.num_trainable = 2
        before, sent = server.model, deltas(server.model)
        server.aggregate(answered(server, [1, 5], 0.1))
        mean = (SIZES[[1, 5]] @ sent[[1, 5]]) / SIZES[[1, 5]].sum()
        assert_allclose(server.model[2:], (before + mean)[2:], rtol=1e-6)
        assert not np.allclose(server.model[:2], (before + mean)[:2], rtol=1e-2)

    @pytest.mark.parametrize("rule", [FedAvgM(), FedAdam(), FedAdam(combine=UniformMean())])
    def test_optimisers_take_it_for_a_gradient(self, rule: Aggregation) -> None:
        server = unbiased_server(rule)
        assert server.aggregate(answered(server, [1, 4], 0.5)) == 2

    @pytest.mark.parametrize(
        "rule",
        [FedMedian(), FedTrimmedMean(), FedAdam(combine=CoordinateMedian()), ModelMixing()],
        ids=lambda rule: rule.name,
    )
    def test_rules_that_are_no_sum_are_refused(self, rule: Aggregation) -> None:
        with pytest.raises(ConfigError, match=rule.name) as caught:
            unbiased_server(rule)
        assert caught.value.key == ("weighting",)

    @pytest.mark.parametrize(
        ("staleness", "keeps_late"),
        [(AgeAndNovelty(), False), (CachedModels(), True), (ConstantWorth(), True)],
    )
    def test_weights_of_another_kind_are_refused(
        self, staleness: Staleness, keeps_late: bool
    ) -> None:
        with pytest.raises(ConfigError, match=staleness.name) as caught:
            toy_trainer(staleness, keeps_late=keeps_late, weighting="unbiased")
        assert caught.value.key == ("weighting",)

    def test_edge_servers_are_refused(self) -> None:
        with pytest.raises(ConfigError) as caught:
            toy_trainer(Discard(), num_edges=2, weighting="unbiased")
        assert caught.value.key == ("weighting",)


SAMPLING: dict[str, Policy[Any]] = {
    "firsts, exploring": Exploring(policy=Firsts(), explore=0.4),
    "random": Random(),
    "clustered-sampling": ClusteredSampling(),
    "optimal-sampling": OptimalSampling(),
}


@pytest.mark.parametrize("name", SAMPLING)
def test_many_draws_have_the_mean_of_full_participation(name: str) -> None:
    """Hotelling's statistic of 4,000 combined updates of a larger federation, at level 1e-4."""
    policy, rng = SAMPLING[name], np.random.default_rng(6)
    clients, draws = 60, 4_000
    sizes, sent = rng.integers(20, 90, clients), rng.normal(0.5, 1.0, (clients, 3))
    server = UnbiasedServer(
        model=np.zeros(3, dtype=np.float32), rule=FedAvg(), sizes=sizes, num_trainable=3
    )
    state = policy.init(Problem(num_clients=clients, cohort_size=8, num_samples=sizes))
    available: BoolArray = np.ones(clients, dtype=np.bool_)
    view = RoundView(round=1, cohort_size=8, available=available)
    found = np.empty((draws, 3))
    for seed in range(draws):
        chosen = policy.select(state, view, stream(seed, POLICY, 1))
        who = chosen.clients
        answers = Answers(
            round=1,
            updates=Updates(clients=who, deltas=sent[who].astype(np.float32), signals={}),
            starts=[server.model] * len(who),
            ages=np.zeros(len(who), dtype=np.int64),
            used=np.ones(len(who), dtype=np.bool_),
            asked=who,
            inclusion=chosen.inclusion,
        )
        found[seed] = server.merge(answers).weights @ sent[who]
    off = found.mean(axis=0) - sizes @ sent / sizes.sum()
    statistic = draws * off @ np.linalg.solve(np.cov(found.T), off)
    assert chi2.sf(statistic, 3) > LEVEL


class TestInAFederation:
    WORLD = BSFLGroups(num_clients=CLIENTS, cohort_size=3)

    def run(self, policy: Any, rounds: int = 4, **settings: Any) -> Simulation[Any]:
        training: Any = ToyTraining(weighting="unbiased")
        simulation: Simulation[Any] = Simulation(
            policy, self.WORLD, seed=1, training=training, **settings
        )
        for _ in range(rounds):
            simulation.step()
        return simulation

    def test_full_participation_is_fedavg(self) -> None:
        training: Any = ToyTraining()
        usual = Simulation(AllClients(), self.WORLD, seed=1, training=training)
        for _ in range(4):
            usual.step()
        assert usual.trainer is not None
        unbiased = self.run(AllClients()).trainer
        assert unbiased is not None
        assert_allclose(unbiased.parameters, usual.trainer.parameters, rtol=1e-5)

    @pytest.mark.parametrize("policy", ["bsfl:explore=0.3", "random", "optimal-sampling"])
    def test_rounds(self, policy: str) -> None:
        simulation = self.run(policy)
        assert simulation.trainer is not None
        assert np.isfinite(simulation.trainer.parameters).all()

    @pytest.mark.parametrize("policy", ["bsfl", "oort", "random:by_data=true"])
    def test_policies_that_do_not_know_are_refused(self, policy: str) -> None:
        with pytest.raises(ConfigError) as caught:
            self.run(policy)
        assert caught.value.key == ("training", "weighting")

    def test_the_spec_is_blamed_before_any_run(self) -> None:
        table = {
            "rounds": 2,
            "world": {"name": "bsfl-groups", "num_clients": 6, "cohort_size": 2},
            "training": {"weighting": "unbiased", "model": "logistic"},
            "policy": [{"name": "random"}, {"name": "bsfl"}],
        }
        with pytest.raises(ConfigError) as caught:
            Experiment.from_table(table).rehearse()
        assert caught.value.key == ("training", "weighting")
        table["training"] = {"weighting": "unbiased", "server": "median", "model": "logistic"}
        with pytest.raises(ConfigError) as caught:
            Experiment.from_table(table).rehearse()
        assert caught.value.key == ("training", "weighting")

    def test_without_rounds_decisions_are_averaged(self) -> None:
        """Each of three answers estimates the whole mean by itself: 1/pi is of its own decision.

        The first decision asks three of six clients (pi = 1/2 for each, and each is a third of that
        estimate); later ones ask one of the four that are idle (pi = 1/4).
        """
        federation = Federation(concurrency=3, buffer=2)
        simulation = self.run("random", rounds=1, federation=federation)
        assert simulation.work is not None
        seen: list[list[float]] = []

        def watch(answers: Answers, **arguments: Any) -> int:
            assert answers.inclusion is not None
            seen.append(answers.inclusion.tolist())
            return aggregate(answers, **arguments)

        aggregate = simulation.work.trainer.aggregate
        simulation.work.trainer.aggregate = watch  # type: ignore[method-assign]
        jobs = [simulation.step().jobs for _ in range(6)]
        for rows, chances in zip(jobs, seen, strict=True):
            assert rows is not None
            expected = [0.5 * 2 / 3 if d == 1 else 0.25 * 2 for d in rows.decision.tolist()]
            assert chances == pytest.approx(expected)

    def test_without_rounds_a_resumed_run_weights_alike(self) -> None:
        federation = Federation(concurrency=4, buffer=2)
        steady = self.run("bsfl:explore=0.5", rounds=3, federation=federation)
        again = self.run("bsfl:explore=0.5", rounds=0, federation=federation)
        again.load(steady.checkpoint(), source="here")
        for _ in range(5):
            assert steady.step().clients.tolist() == again.step().clients.tolist()
        assert steady.trainer is not None
        assert again.trainer is not None
        assert steady.trainer.parameters.tobytes() == again.trainer.parameters.tobytes()
