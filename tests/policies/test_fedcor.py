"""FedCor by hand and against plain matrices: the fit, the sequence, the rounds, what it asks."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import chisquare, multivariate_normal

from fedmuster import FedCor, Problem, RoundView, Selector
from fedmuster.core.errors import ConfigError, PolicyError
from fedmuster.core.explaining import Moment
from fedmuster.core.records import Feedback, FloatArray, IntArray, Selection
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.fedcor import LossChanges, in_sequence

LEVEL = 1e-3


def changes_of(rows: Sequence[Sequence[float]], *, length: int = 50) -> LossChanges:
    """``rows`` of changes, a round each."""
    changes = LossChanges.none(len(rows[0]), length)
    for t, row in enumerate(rows, start=1):
        changes.add(np.array(row, dtype=np.float64), t)
    return changes


def likelihood(embedding: FloatArray, rows: FloatArray, weights: FloatArray, noise: float) -> float:
    """The weighted log likelihood of deviations from the weighted mean."""
    away = rows - np.average(rows, axis=0, weights=weights)
    covariance = embedding @ embedding.T + noise**2 * np.eye(rows.shape[1])
    return float(weights @ multivariate_normal(cov=covariance).logpdf(away))


class TestFit:
    def test_by_hand(self) -> None:
        """Changes of ±(1, 1): a variance of 2 along (1, 1)/sqrt 2, of which the noise is 1/2."""
        x = changes_of([[1, 1], [-1, -1]]).embedding(1, memory=1.0, noise=0.5**0.5)
        np.testing.assert_allclose(x @ x.T, np.full((2, 2), 0.75))

    def test_older_rounds_count_less(self) -> None:
        """Weights 1/2 and 1: a mean of 4/3 and a variance of (1/2 · 16/9 + 4/9) / (3/2) = 8/9."""
        x = changes_of([[0], [2]]).embedding(1, memory=0.5, noise=1e-6)
        np.testing.assert_allclose(x @ x.T, [[8 / 9]])

    @pytest.mark.parametrize(("dimension", "noise"), [(1, 0.3), (2, 0.1), (3, 0.6)])
    def test_is_the_most_likely_embedding(self, dimension: int, noise: float) -> None:
        """Quasi-Newton steps from random starts find nothing better."""
        rng = np.random.default_rng(dimension)
        rows = rng.normal(size=(12, 2)) @ rng.normal(size=(2, 5)) + 0.5 * rng.normal(size=(12, 5))
        weights = 0.9 ** np.arange(11, -1, -1.0)
        found = changes_of(rows.tolist()).embedding(dimension, memory=0.9, noise=noise)
        best = likelihood(found, rows, weights, noise)
        reached = []
        for _ in range(5):
            climb = minimize(
                lambda flat: -likelihood(flat.reshape(5, dimension), rows, weights, noise),
                rng.normal(size=5 * dimension),
            )
            reached.append(-climb.fun)
        assert max(reached) <= best + 1e-6
        assert max(reached) == pytest.approx(best, abs=1e-3)

    def test_unknown_changes_keep_the_variance_of_the_known(self) -> None:
        nan = float("nan")
        x = changes_of([[1, 1], [-1, nan], [nan, -1], [1, nan], [nan, 1], [-1, -1]]).embedding(
            2, memory=1.0, noise=1e-6
        )
        np.testing.assert_allclose(np.diag(x @ x.T), [1.0, 1.0])
        assert 0 < (x @ x.T)[0, 1] < 1

    def test_the_last_rounds_count(self) -> None:
        changes = changes_of([[9], [-9], [1], [-1]], length=2)
        assert sorted(changes.rounds.tolist()) == [3, 4]
        x = changes.embedding(3, memory=1.0, noise=1e-9)
        np.testing.assert_allclose(x @ x.T, [[1.0]])
        assert x.shape == (1, 3)


class TestSequence:
    @pytest.mark.parametrize("seed", range(20))
    def test_is_that_of_plain_matrices(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        embedding, noise = rng.normal(size=(9, 3)), 0.2
        weights, discount = rng.dirichlet(np.ones(9)), rng.uniform(0.3, 1.0, 9)
        candidates = rng.random(9) < 0.7
        count = min(4, int(candidates.sum()))
        found = in_sequence(
            embedding, weights, discount, candidates, count, stream(0, POLICY, 1), noise=noise
        )
        S = embedding @ embedding.T + noise**2 * np.eye(9)
        expected, left = plain_sequence(
            S, weights.tolist(), discount.tolist(), np.flatnonzero(candidates).tolist(), count
        )
        assert found.picks.tolist() == [k for k, _ in expected]
        for k, gain in [*expected, *left]:
            assert found.gains[k] == pytest.approx(gain)

    def test_alike_clients_are_taken_in_any_order(self) -> None:
        times = np.zeros(5)
        for seed in range(300):
            rng = stream(seed, POLICY, 1)
            everybody = np.ones(5, dtype=np.bool_)
            found = in_sequence(
                np.eye(5), np.full(5, 0.2), np.ones(5), everybody, 2, rng, noise=0.1
            )
            times[found.picks] += 1
        assert chisquare(times).pvalue > LEVEL


def plain_sequence(
    S: FloatArray, p: list[float], a: list[float], candidates: list[int], count: int
) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
    """(client, gain) of the chosen in order, and of the others, with the whole covariance."""
    S, free = S.copy(), list(candidates)
    taken = []

    def gain(k: int) -> float:
        return float(a[k] * sum(p[i] * S[i, k] for i in range(len(p))) / S[k, k] ** 0.5)

    for _ in range(count):
        k = max(free, key=gain)
        taken.append((k, gain(k)))
        free.remove(k)
        S = S - np.outer(S[:, k], S[k]) / S[k, k]
    return taken, [(k, gain(k)) for k in free]


class Losses:
    """Losses of clients in two groups that rise and fall together."""

    def __init__(self, num_clients: int, seed: int) -> None:
        self._rng, self._group = np.random.default_rng(seed), np.arange(num_clients) % 2
        self.now = np.ones(num_clients)
        self.asked: list[int] = []

    def step(self) -> None:
        common = self._rng.normal(size=2)[self._group] * np.array([1.0, 0.3])[self._group]
        self.now = self.now + common + 0.2 * self._rng.normal(size=len(self.now))

    def __call__(self, clients: IntArray, *, batch_size: int | None = None) -> FloatArray:
        assert batch_size is None
        self.asked += clients.tolist()
        return self.now[clients]


class TestPlainRun:
    @pytest.mark.parametrize("seed", range(2))
    def test_of_ninety_rounds(self, seed: int) -> None:
        """Everything from the losses that were asked for, with whole covariances."""
        K, m = 8, 3
        policy = FedCor(
            warmup=6, interval=7, history=10, memory=0.9, noise=0.1, dimension=3, discount=0.8
        )
        data = np.arange(1, K + 1)
        problem = Problem(num_clients=K, cohort_size=m, num_samples=data)
        selector, losses = Selector(policy, problem, seed=seed), Losses(K, seed)
        p = (data / data.sum()).tolist()
        samples: list[tuple[int, FloatArray]] = []
        before: FloatArray | None = None
        S: FloatArray | None = None
        chosen = [0] * K
        compared = 0
        for t in range(1, 91):
            losses.asked = []
            cohort = selector.select(ask_loss=losses).clients.tolist()
            tells = t <= 6 or t % 7 == 0
            told_before = t > 1 and (t - 1 <= 6 or (t - 1) % 7 == 0)
            assert losses.asked == (list(range(K)) if tells or told_before else [])
            random_ = t <= 7 or t % 7 == 0
            if not random_:
                assert S is not None
                a = [0.8**c for c in chosen]
                expected, _ = plain_sequence(S, p, a, list(range(K)), m)
                assert cohort == sorted(k for k, _ in expected)
                compared += 1
                for k in cohort:
                    chosen[k] += 1
            if told_before:
                assert before is not None
                samples = [*samples, (t, losses.now - before)][-10:]
                if t > 6:
                    S, chosen = plain_fit(samples, 0.9, 0.1, 3), [0] * K
            before = losses.now
            answer = Feedback(round=t, clients=np.array(cohort), latency_seconds=np.ones(m))
            assert selector.observe(answer).accepted == m
            losses.step()
        assert compared >= 50

    def test_it_finds_the_group_that_moves_most_and_takes_one_of_each(self) -> None:
        """The second client of a group says hardly more than the first."""
        policy = FedCor(warmup=30, interval=1000, discount=1.0)
        selector, losses = Selector(policy, Problem(num_clients=8, cohort_size=2)), Losses(8, 1)
        for t in range(1, 41):
            cohort = selector.select(ask_loss=losses).clients
            selector.observe(Feedback(round=t, clients=cohort, latency_seconds=np.ones(2)))
            losses.step()
        turn = policy.scores(selector.state, everyone(8, 2, 41))["turn"]
        assert np.flatnonzero(turn == 1) % 2 == 0
        assert np.flatnonzero(turn == 2) % 2 == 1


def plain_fit(
    samples: list[tuple[int, FloatArray]], memory: float, noise: float, dimension: int
) -> FloatArray:
    """The covariance of probabilistic principal components, from the eigenvectors of all of it."""
    last = max(t for t, _ in samples)
    weights = np.array([memory ** (last - t) for t, _ in samples])
    rows = np.array([row for _, row in samples])
    covariance = np.cov(rows.T, aweights=weights, bias=True)
    values, vectors = np.linalg.eigh(covariance)
    S = noise**2 * np.eye(len(covariance))
    for value, axis in list(zip(values, vectors.T, strict=True))[-dimension:]:
        S += max(float(value) - noise**2, 0.0) * np.outer(axis, axis)
    return S


def everyone(num_clients: int, count: int, round_: int, **told: Any) -> RoundView:
    available = np.ones(num_clients, dtype=np.bool_)
    return RoundView(round=round_, cohort_size=count, available=available, **told)


class TestRounds:
    def test_only_available_clients_are_asked(self) -> None:
        losses = Losses(5, 0)
        selector = Selector(FedCor(), Problem(num_clients=5, cohort_size=1))
        available = np.array([True, False, True, True, False])
        cohort = selector.select(available=available, ask_loss=losses)
        assert losses.asked == [0, 2, 3]
        assert cohort.losses is not None
        assert np.isinf(cohort.losses).tolist() == (~available).tolist()

    def test_an_answer_that_is_no_number_is_none(self) -> None:
        def ask(clients: IntArray, *, batch_size: int | None = None) -> FloatArray:
            return np.where(clients == 1, np.nan, 1.0)

        selector = Selector(FedCor(), Problem(num_clients=3, cohort_size=1))
        for t in range(1, 30):
            clients = selector.select(ask_loss=ask).clients
            selector.observe(Feedback(round=t, clients=clients, latency_seconds=np.ones(1)))
        assert not selector.state.changes.told[1].any()
        assert selector.state.changes.told[0].any()

    def test_without_asking_the_losses_that_clients_report_count(self) -> None:
        policy = FedCor(warmup=20, interval=1000, discount=1.0)
        selector = Selector(policy, Problem(num_clients=4, cohort_size=2))
        rng = np.random.default_rng(0)
        times = np.zeros(4)
        for t in range(1, 61):
            cohort = selector.select()
            assert cohort.losses is None
            loss = 1.0 + np.where(cohort.clients == 3, 1.0, 0.1) * rng.normal(size=2)
            answer = Feedback(
                round=t, clients=cohort.clients, latency_seconds=np.ones(2), signals={"loss": loss}
            )
            selector.observe(answer)
            times[cohort.clients] += t > 21
        assert times[3] == 39

    def test_without_losses_cohorts_are_random(self) -> None:
        selector = Selector(FedCor(warmup=1), Problem(num_clients=5, cohort_size=1))
        times = np.zeros(5)
        for t in range(1, 301):
            cohort = selector.select()
            selector.observe(Feedback(round=t, clients=cohort.clients, latency_seconds=np.ones(1)))
            times[cohort.clients] += 1
        assert chisquare(times).pvalue > LEVEL

    def test_clients_that_join_come_first_once(self) -> None:
        policy = FedCor(warmup=5, interval=50)
        problem, losses = Problem(num_clients=6, cohort_size=2), Losses(8, 0)
        selector = Selector(policy, problem, newcomer_quota=1.0)
        for _ in range(10):
            self.play(selector, losses)
        assert selector.join(2).tolist() == [6, 7]
        assert self.play(selector, losses) == [6, 7]
        assert not set(self.play(selector, losses)) & {6, 7}

    def test_clients_that_join_in_an_open_round_have_no_loss_in_it(self) -> None:
        selector, losses = Selector(FedCor(), Problem(num_clients=6, cohort_size=2)), Losses(8, 0)
        clients = selector.select(ask_loss=losses).clients
        selector.join(2)
        selector.observe(Feedback(round=1, clients=clients, latency_seconds=np.ones(2)))
        assert np.isinf(selector.state.losses).tolist() == [False] * 6 + [True] * 2

    def test_losses_survive_saving_in_an_open_round(self, tmp_path: Any) -> None:
        selector, losses = Selector(FedCor(), Problem(num_clients=6, cohort_size=2)), Losses(6, 0)
        asked = selector.select(ask_loss=losses).losses
        selector.save(tmp_path / "selector.npz")
        again = Selector.restore(tmp_path / "selector.npz", FedCor())
        assert again.pending is not None
        assert asked is not None
        np.testing.assert_array_equal(again.pending.losses, asked)

    @staticmethod
    def play(selector: Selector[Any], losses: Losses) -> list[int]:
        losses.step()
        cohort = selector.select(ask_loss=losses)
        selector.observe(
            Feedback(
                round=cohort.round,
                clients=cohort.clients,
                latency_seconds=np.ones(len(cohort.clients)),
            )
        )
        return [int(k) for k in cohort.clients]


def test_explanation() -> None:
    policy = FedCor(warmup=5, interval=50, discount=0.5)
    state = policy.init(Problem(num_clients=3, cohort_size=1))
    assert np.isnan(policy.scores(state, everyone(3, 1, 7))["gain"]).all()
    state.embedding[:, 0] = [2.0, 1.0, 0.0]
    state.tried[:] = True
    state.chosen[0] = 2
    scores = policy.scores(state, everyone(3, 2, 7))
    assert scores["discount"].tolist() == [0.25, 1.0, 1.0]
    assert scores["turn"][1] == 1
    assert np.isnan(policy.scores(state, everyone(3, 2, 50))["gain"]).all()
    told = Moment(
        rule=policy.rule(),
        meaning=policy.terms,
        label="fedcor",
        round=7,
        cohort=policy.select(state, everyone(3, 2, 7), stream(0, POLICY, 1)).clients,
        available=np.ones(3, dtype=np.bool_),
        terms=scores,
        absent={},
        known=np.ones(3, dtype=np.bool_),
    )
    assert np.isin(np.flatnonzero(np.isfinite(scores["turn"])), told.cohort).all()
    assert told.rule.chosen(told, 1)
    assert told.rule.about(told)


def test_it_needs_rounds() -> None:
    with pytest.raises(PolicyError, match="fedcor"):
        Selector(FedCor(), Problem(num_clients=5, cohort_size=2)).select(count=1)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"warmup": 0}, "warmup"),
        ({"interval": 0}, "interval"),
        ({"dimension": 0}, "dimension"),
        ({"history": 1}, "history"),
        ({"discount": 0.0}, "discount"),
        ({"memory": 1.5}, "memory"),
        ({"noise": 0.0}, "noise"),
    ],
)
def test_bad_settings(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as error:
        FedCor(**settings)
    assert error.value.key == (key,)


def test_failures_put_no_number_into_what_is_known() -> None:
    policy = FedCor(warmup=1)
    state = policy.init(Problem(num_clients=3, cohort_size=3))
    clients = np.arange(3)
    silence = Feedback(
        round=1,
        clients=clients,
        latency_seconds=np.full(3, np.inf),
        completed=np.zeros(3, dtype=np.bool_),
        signals={"loss": np.full(3, np.nan)},
    )
    policy.observe(state, Selection(round=1, clients=clients), silence)
    assert np.isinf(state.losses).all()
    assert state.tried.all()


def test_losses_of_a_model_that_diverges_overflow_nothing() -> None:
    problem = Problem(num_clients=8, cohort_size=2)
    selector = Selector(FedCor(warmup=3, interval=5), problem, seed=1)
    rng = np.random.default_rng(0)

    def ask_loss(clients: IntArray, *, batch_size: int | None = None) -> FloatArray:
        return np.asarray(10.0 ** rng.uniform(0.0, 300.0, len(clients)))

    with np.errstate(all="raise", under="ignore"):
        for _ in range(20):
            cohort = selector.select(ask_loss=ask_loss)
            answer = Feedback(
                round=cohort.round, clients=cohort.clients, latency_seconds=np.ones(2)
            )
            selector.observe(answer)
    assert np.isfinite(selector.state.embedding).all()
