"""Tempo: values and times by hand, the exact cohort, drift, liars, late clients, newcomers."""

from dataclasses import replace
from itertools import combinations
from math import exp, log, sqrt
from typing import Any

import numpy as np
import pytest
from tests.federation.silent_world import Silent

from fedmuster import Problem, Selector
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import Feedback, FloatArray, RoundView, Selection
from fedmuster.core.streams import stream
from fedmuster.federation import Federation, Horizon, Simulation
from fedmuster.policies.tempo import Tempo, latencies, price, shortlist
from fedmuster.policies.tempo.policy import TempoState
from fedmuster.solvers.bottleneck import Exact
from fedmuster.solvers.bottleneck_problem import BottleneckProblem
from fedmuster.training.data import Digits
from fedmuster.training.models import Logistic
from fedmuster.training.training import Training
from fedmuster.worlds import BSFLGroups, LatencyWorld

SURE = Tempo(coverage=0.0)
WAITING = Tempo(coverage=0.0, close_early=False)


def view(num_clients: int, count: int, **others: Any) -> RoundView:
    available = np.ones(num_clients, dtype=np.bool_)
    return RoundView(round=9, cohort_size=count, available=available, **others)


def answers(
    clients: list[int], seconds: list[float], losses: list[float] | None = None, round_: int = 1
) -> Feedback:
    latency = np.array(seconds)
    signals = {} if losses is None else {"loss": np.array(losses)}
    return Feedback(
        round=round_,
        clients=np.array(clients),
        latency_seconds=latency,
        completed=np.isfinite(latency),
        signals=signals,
    )


def played(policy: Tempo, problem: Problem, *rounds: Feedback, tickets: bool = False) -> TempoState:
    state = policy.init(problem)
    for told in rounds:
        numbers = np.arange(len(told.clients)) if tickets else None
        asked = Selection(round=told.round, clients=np.sort(told.clients), tickets=numbers)
        policy.observe(state, asked, told)
    return state


def test_scores_by_hand() -> None:
    """Four clients; 0 and 1 answer in the first message, 1 and 2 in the second.

    The fleet's mean of ln tau is that of the first times ln 1, ln 4, ln 2: ln 2 · (0 + 2 + 1) / 3
    = ln 2. The typical loss after the first message is the median of ln 2 and ln 8, ln 4; after the
    second that of ln 2, ln 8, ln 2, ln 4: ln 2 · (1 + 2) / 2. The common variance is 0.09, worth 10
    observations, when clients are first seen; client 1's second time adds one without a residual.
    """
    problem = Problem(num_clients=4, cohort_size=2, num_samples=np.array([10, 10, 20, 400]))
    first, second = answers([0, 1], [1.0, 4.0], [2.0, 8.0]), answers([1, 2], [4.0, 2.0], [4.0, 2.0])
    state = played(SURE, problem, first, second, tickets=True)
    scores = SURE.scores(state, view(4, 2))
    ln2 = log(2)
    mean = [0.25 * ln2 / 1.25, (2 * 2 * ln2 + 0.25 * ln2) / 2.25, ln2]  # client 2 is as the fleet
    deviation = sqrt((0.0 - ln2) ** 2 + (2 * ln2 - ln2) ** 2) / sqrt(3)
    unseen = ln2 - 0.674 * deviation
    variance = [0.09, 0.9 * 0.09, 0.09, 0.9 / 11]
    seconds = [exp(m + v / 2) for m, v in zip((*mean, unseen), variance, strict=True)]
    np.testing.assert_allclose(scores["expected_seconds"], seconds, rtol=1e-12)
    np.testing.assert_allclose(scores["slot_seconds"], seconds, rtol=1e-12)
    # ln 2/4 and ln 8/4; then client 1 is smoothed with ln 4 - 1.5 ln 2, and 2 has ln 2 - 1.5 ln 2.
    need = [0.5, 2.0**0.75, 2.0**-0.5]
    np.testing.assert_allclose(scores["need"][:3], need, rtol=1e-12)
    assert np.isnan(scores["need"][3])
    np.testing.assert_allclose(scores["age"], [2 / 4, 0.5 / 4, 0.5 / 4, 4 / 4])
    np.testing.assert_allclose(scores["chance"], 1.0)
    samples = [10 / 15, 10 / 15, 20 / 15, exp(2)]  # over the median; the most is e²
    value = [sqrt(n * x * a) for n, x, a in zip(samples, [*need, 1.0], scores["age"], strict=True)]
    np.testing.assert_allclose(scores["value"], value, rtol=1e-12)
    np.testing.assert_allclose(scores["score"], scores["value"] / seconds)
    best = np.argsort(-scores["score"])[:2]
    chosen = SURE.select(state, view(4, 2), stream(0, "tempo")).clients
    assert chosen.tolist() == sorted(best.tolist())


def signals(num_clients: int, **columns: list[float]) -> Feedback:
    told = answers(list(range(num_clients)), [1.0] * num_clients)
    return replace(told, signals={name: np.array(values) for name, values in columns.items()})


def needs_after(*told: Feedback) -> FloatArray:
    problem = Problem(num_clients=3, cohort_size=2)
    return SURE.scores(played(SURE, problem, *told, tickets=True), view(3, 1))["need"]


def test_norms_of_updates_count_beside_losses_and_without_them() -> None:
    """The typical norm is sqrt(1 · 4) = 2; alike losses are typical."""
    for columns in ({}, {"loss": [3.0, 3.0]}):
        told = signals(2, update_norm=[1.0, 4.0], **columns)
        np.testing.assert_allclose(needs_after(told), [0.5, 2.0, np.nan], rtol=1e-12)


def test_evaluations_of_the_global_model_count_before_losses_in_training() -> None:
    told = signals(2, loss_before=[1.0, 4.0], loss=[9.0, 9.0])
    np.testing.assert_allclose(needs_after(told), [0.5, 2.0, np.nan], rtol=1e-12)


def test_reports_of_a_few_do_not_move_what_is_typical() -> None:
    """Nine of thirty lie; each lie is cut at e and e² times the typical ones."""
    losses = [3.0] * 21 + [3e300] * 9
    honest = signals(30, loss=losses, update_norm=losses)
    problem = Problem(num_clients=30, cohort_size=2)
    state = played(SURE, problem, honest, tickets=True)
    need = SURE.scores(state, view(30, 1))["need"]
    np.testing.assert_allclose(need, [1.0] * 21 + [exp(3.0)] * 9, rtol=1e-12)
    many = signals(90, loss=[3.0] * 60 + [1e-300] * 30)  # more than are kept: their quantiles
    state = played(SURE, Problem(num_clients=90, cohort_size=2), many, tickets=True)
    need = SURE.scores(state, view(90, 1))["need"]
    np.testing.assert_allclose(need, [1.0] * 60 + [exp(-1.0)] * 30, rtol=1e-12)


def test_a_client_that_fails_is_worth_less_and_holds_its_slot_longer() -> None:
    """Client 0 takes 1 s, client 1 took 4 s once and has failed twice since; the fleet's rate of
    answers is (4 + 1) / (6 + 1), and worth two jobs of each client."""
    problem = Problem(num_clients=2, cohort_size=2)
    told = [answers([0, 1], [1.0, 4.0 if t == 1 else np.inf], round_=t) for t in (1, 2, 3)]
    scores = SURE.scores(played(SURE, problem, *told, tickets=True), view(2, 1))
    chance = (np.array([3, 1]) + 2 * 5 / 7) / (3 + 2)
    np.testing.assert_allclose(scores["chance"], chance, rtol=1e-12)
    seconds = scores["expected_seconds"]
    failed = np.maximum(seconds, 4.0 * 0.99**2)
    held = chance * seconds + (1.0 - chance) * failed
    np.testing.assert_allclose(scores["slot_seconds"], held, rtol=1e-12)


def test_news_of_late_clients() -> None:
    """Four are asked, two answer after 1 s. Of the others one answers after 8 s, one never will."""
    problem = Problem(num_clients=4, cohort_size=4)
    nothing = answers([], [])
    first = replace(answers([0, 1, 2, 3], [1.0, 1.0, np.inf, np.inf]), late=nothing)
    state = played(SURE, problem, first)
    scores = SURE.scores(state, view(4, 4))
    assert scores["chance"].tolist() == [1.0] * 4  # nobody knows yet
    news = replace(answers([2, 3], [8.0, np.inf]), signals={"update_norm": np.array([5.0, np.nan])})
    second = replace(answers([0, 1], [1.0, 1.0], round_=2), late=news)
    selection = Selection(round=2, clients=np.array([0, 1]))
    SURE.observe(state, selection, second)
    scores = SURE.scores(state, view(4, 4))
    rate = 6 / 7  # of the fleet: five of six jobs, and one as if before
    chance = [(2 + 2 * rate) / 4, (2 + 2 * rate) / 4, (1 + 2 * rate) / 3, 2 * rate / 3]
    np.testing.assert_allclose(scores["chance"], chance, rtol=1e-12)
    assert scores["expected_seconds"][2] > 5.0
    assert scores["need"][2] == 1.0  # the only norm is typical
    assert state.answering.late.tolist() == [0] * 4
    np.testing.assert_allclose(scores["age"][2], 2 / 4)  # two answers since
    assert scores["times_asked"].tolist() == [2.0, 2.0, 1.0, 1.0]


def test_without_news_a_client_that_misses_a_round_has_failed_and_takes_longer() -> None:
    problem = Problem(num_clients=3, cohort_size=3)
    scores = SURE.scores(played(SURE, problem, answers([0, 1, 2], [1.0, 3.0, np.inf])), view(3, 3))
    np.testing.assert_allclose(scores["chance"], [2.5 / 3, 2.5 / 3, 1.5 / 3], rtol=1e-12)
    assert scores["expected_seconds"][2] >= 3.0


@pytest.mark.parametrize("seed", range(30))
def test_a_cohort_that_is_waited_for_is_the_best_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = Problem(num_clients=9, cohort_size=3)
    told = [
        answers(
            rng.permutation(9)[:3].tolist(),
            rng.lognormal(0.0, 1.0, 3).tolist(),
            rng.lognormal(0.0, 0.5, 3).tolist(),
            round_=t,
        )
        for t in range(1, 8)
    ]
    state = played(WAITING, problem, *told)
    scores = WAITING.scores(state, view(9, 3))
    value, seconds, price = (scores[name] for name in ("value", "expected_seconds", "price"))

    def gain(cohort: tuple[int, ...]) -> float:
        here = list(cohort)
        return float(value[here].sum() - price[0] * len(here) * seconds[here].max())

    best = max(combinations(range(9), 3), key=gain)
    chosen = WAITING.select(state, view(9, 3), stream(seed, "tempo"))
    assert chosen.quota is None
    assert gain(tuple(chosen.clients.tolist())) == pytest.approx(gain(best), rel=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_a_cohort_that_is_waited_for_is_the_best_with_its_covered_clients(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem, policy = Problem(num_clients=9, cohort_size=4), replace(WAITING, coverage=0.4)
    told = [  # one by one, so no two ages are alike
        answers([k], [float(rng.lognormal())], round_=t)
        for t, k in enumerate(rng.permutation(9).tolist(), start=1)
    ]
    state = played(policy, problem, *told)
    scores = policy.scores(state, view(9, 4))
    value, seconds, price = (scores[name] for name in ("value", "expected_seconds", "price"))

    def gain(cohort: tuple[int, ...]) -> float:
        here = list(cohort)
        return float(value[here].sum() - price[0] * len(here) * seconds[here].max())

    chosen = tuple(policy.select(state, view(9, 4), stream(seed, "tempo")).clients.tolist())
    covered = int(stream(seed, "tempo").binomial(4, 0.4))
    oldest = set(np.argsort(-scores["age"], kind="stable")[:covered].tolist())
    best = max((c for c in combinations(range(9), 4) if oldest <= set(c)), key=gain)
    assert oldest <= set(chosen)
    assert gain(chosen) == pytest.approx(gain(best), rel=1e-12)


def test_the_price_finds_the_best_ratio_of_value_to_time() -> None:
    """Dinkelbach: with constant values the cohorts come to have the largest ratio of all."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        value, seconds = rng.lognormal(0.0, 0.7, 8), rng.lognormal(0.0, 1.0, 8)

        def ratio(
            cohort: tuple[int, ...], value: FloatArray = value, seconds: FloatArray = seconds
        ) -> float:
            here = list(cohort)
            return float(value[here].sum() / (len(here) * seconds[here].max()))

        state = price.init()
        for _ in range(200):
            problem = BottleneckProblem(
                bottleneck=-price.current(state) * seconds, weight=value, size=3
            )
            cohort = Exact().solve(problem, rng)
            price.learn(state, value[cohort].sum(), 3 * seconds[cohort].max())
        best = max(map(ratio, combinations(range(8), 3)))
        assert ratio(tuple(cohort.tolist())) == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_without_waiting_the_largest_ratios_are_taken(seed: int) -> None:
    rng = np.random.default_rng(seed)
    told = [answers([k], [float(rng.lognormal())], [float(rng.lognormal())]) for k in range(9)]
    state = played(SURE, Problem(num_clients=9, cohort_size=3), *told, tickets=True)
    ratio = SURE.scores(state, view(9, 3))["score"]
    chosen = SURE.select(state, view(9, 3), stream(seed, "tempo")).clients
    best = max(combinations(range(9), 3), key=lambda cohort: float(ratio[list(cohort)].sum()))
    assert chosen.tolist() == sorted(best)


def test_visits_go_with_the_square_of_value_over_time() -> None:
    """The optimal schedule of the docstring: one slot, constant values, times known."""
    seconds, samples = np.tile([1.0, 2.0, 1.0, 4.0], 20), np.tile([10, 10, 40, 40], 20)
    selector = Selector(SURE, Problem(num_clients=80, cohort_size=1, num_samples=samples), seed=1)
    visits = np.zeros(80)
    for turn in range(8000):
        chosen = selector.select(count=1)
        visits[chosen.clients] += turn >= 1000
        told = Feedback(
            tickets=chosen.tickets, clients=chosen.clients, latency_seconds=seconds[chosen.clients]
        )
        selector.observe(told)
    expected = samples[:4] / seconds[:4] ** 2  # (v / tau)² with v² = n
    shares = visits.reshape(20, 4).sum(axis=0) / visits.sum()
    np.testing.assert_allclose(shares, expected / expected.sum(), rtol=0.15)


def reference_latency(times: list[list[float]]) -> tuple[FloatArray, FloatArray, list[int]]:
    """Windows, means and variances in plain Python, one client after the other."""
    spread, means, counts = [10.0, 10.0 * 0.09], [0.0] * len(times[0]), [0] * len(times[0])
    up, down, variances = ([0.0] * len(means) for _ in range(3))
    for message in times:
        common, heard = spread[1] / spread[0], list(spread)
        for k, seconds in enumerate(message):
            x = log(seconds)
            if counts[k] == 0:
                means[k], variances[k], counts[k] = x, common, 1
                continue
            residual = x - means[k]
            deviation = min(max(residual / sqrt(variances[k]), -3.0), 3.0)
            square = deviation**2 * variances[k]
            heard[0] += 1
            heard[1] += square
            variances[k] = 0.9 * variances[k] + 0.1 * square
            up[k] = max(up[k] + deviation - 0.5, 0.0)
            down[k] = max(down[k] - deviation - 0.5, 0.0)
            if max(up[k], down[k]) > 4.0:
                means[k], counts[k], up[k], down[k] = x, 1, 0.0, 0.0
                continue
            counts[k] = min(counts[k] + 1, 20)
            means[k] += residual / counts[k]
        spread = heard
    return np.array(means), np.array(variances), counts


def test_times_against_a_plain_loop() -> None:
    rng = np.random.default_rng(3)
    scale = np.where(np.arange(60)[:, np.newaxis] < 30, [1.0, 2.0, 4.0], [1.0, 0.2, 9.0])
    times = scale * rng.lognormal(0.0, 0.3, (60, 3))
    state = latencies.init(3)
    for message in times:
        latencies.learn(state, np.arange(3), message)
    means, variances, counts = reference_latency(times.tolist())
    np.testing.assert_allclose(state.mean, means, rtol=1e-10)
    np.testing.assert_allclose(state.variance, variances, rtol=1e-10)
    assert state.count.tolist() == counts


def test_a_client_of_two_speeds_counts_with_its_mean() -> None:
    """Both have a median of 0.2 s or so; the mean of the second is four times that of the first."""
    rng, state = np.random.default_rng(6), latencies.init(2)
    for _ in range(200):
        seconds = np.array([0.2, rng.choice([0.05, 1.6])])
        latencies.learn(state, np.arange(2), seconds)
    steady, two_speeds = latencies.expected_seconds(state, slice(None))
    assert two_speeds > 2.0 * steady


def test_the_fleet_follows_when_all_clients_slow_down() -> None:
    rng, state = np.random.default_rng(7), latencies.init(50)
    unseen = []
    for turn in range(60):
        scale = 0.1 if turn < 20 else 1.0
        latencies.learn(state, np.arange(49), scale * rng.lognormal(0.0, 0.1, 49))
        unseen.append(float(latencies.expected_seconds(state, np.array([49]))[0]))
    assert unseen[19] == pytest.approx(0.1, rel=0.15)
    assert unseen[59] > 1.4 * unseen[19]


def test_a_change_of_speed_is_found_soon_and_steady_clients_are_left_alone() -> None:
    rng = np.random.default_rng(4)
    state = latencies.init(200)
    for _ in range(40):
        latencies.learn(state, np.arange(200), rng.lognormal(0.0, 0.3, 200))
    assert np.count_nonzero(state.count < 20) <= 60  # false alarms in 8,000 observations
    for _ in range(3):
        latencies.learn(state, np.arange(200), rng.lognormal(log(5.0), 0.3, 200))
    assert np.median(np.exp(state.mean)) == pytest.approx(5.0, rel=0.15)


def test_rounds_close_early_and_never_more_than_m_clients_work() -> None:
    world = BSFLGroups(num_clients=60, cohort_size=10)
    training = Training(data=Digits(train_limit=300, test_limit=20), model=Logistic())
    simulation = Simulation(Tempo(), world, seed=2, training=training)
    at_work, counts, heard = [], [], 0
    for _ in range(60):
        before = simulation.elapsed_seconds
        trainer = simulation.trainer
        assert trainer is not None
        assert trainer.late is not None
        out = int(np.count_nonzero(trainer.late.arrives_at_seconds > before))
        row = simulation.step()
        at_work.append(len(row.clients) + out)
        counts.append(row.num_completed)
        heard += len(row.clients)
    assert at_work == [10] * 60
    assert max(counts) <= 4  # 0.4 of 10
    assert min(count for count, size in zip(counts[1:], at_work[1:], strict=True)) >= 1
    state = simulation.selector.state
    assert state.answering.asked.sum() == heard
    out = int(state.answering.late.sum())
    assert state.answering.answered.sum() == heard - out  # late answers are heard, too
    slow = state.latency.mean[np.argsort(-state.latency.mean)[:6]]
    assert np.exp(slow).min() > 0.6  # the slowest group takes 1 s


@pytest.mark.parametrize("federation", [None, Federation(concurrency=5, buffer=2)])
def test_clients_that_never_answer_are_left_alone(federation: Federation | None) -> None:
    """A fifth never answers; in rounds that close early, too, with a shared minimum and without."""
    world = LatencyWorld(num_clients=40, cohort_size=5, deadline_seconds=3.0)
    training = Training(data=Digits(train_limit=200, test_limit=20), model=Logistic())
    for policy in (Tempo(), Tempo(min_share=0.3)):
        simulation = Simulation(
            policy,
            Silent(inner=world, num_silent=8),
            seed=2,
            federation=federation,
            training=training,
            horizon=Horizon(rounds=300),
            must_judge=False,
        )
        asked = np.zeros(40)
        for _ in range(300):
            np.add.at(asked, simulation.step().clients, 1)
        share = asked[:8].sum() / asked.sum()
        assert share < (0.1 if policy.min_share == 0 else 0.15)


@pytest.mark.parametrize("federation", [None, Federation(concurrency=5, buffer=2)])
def test_everybody_gets_the_minimum_share(federation: Federation | None) -> None:
    world = BSFLGroups(num_clients=40, cohort_size=5)
    training = Training(data=Digits(train_limit=200, test_limit=20), model=Logistic())
    least = {}
    for share in (0.0, 0.6):
        simulation = Simulation(
            Tempo(min_share=share),
            world,
            seed=2,
            federation=federation,
            training=training,
            horizon=Horizon(rounds=400),
        )
        asked = np.zeros(40)
        for _ in range(400):
            np.add.at(asked, simulation.step().clients, 1)
        least[share] = asked.min() / asked.mean()
    assert least[0.0] <= 0.5
    assert least[0.6] > 0.5  # nearly 0.6: a client is owed whole jobs, and not asked while out


@pytest.mark.parametrize(
    ("lies", "most"),
    [
        ((1.0, 1.0, 1.0), 0.25),
        ((10.0, 1.0, 1.0), 0.45),  # a loss counts at most e times the typical one, in visits, too
        ((1.0, 10.0, 1.0), 0.65),
        ((10.0, 10.0, 1.0), 0.8),
        ((1.0, 1.0, 10.0), 0.65),
        ((1.0, 1.0, 1000.0), 0.65),
    ],
)
def test_what_liars_gain_is_bounded(lies: tuple[float, float, float], most: float) -> None:
    """A fifth of the clients multiplies its losses, norms and numbers of samples."""
    liar = np.arange(50) < 10
    loss, norm, samples = (np.where(liar, factor, 1.0) for factor in lies)
    problem = Problem(num_clients=50, cohort_size=5, num_samples=(20 * samples).astype(np.int64))
    selector = Selector(Tempo(), problem, seed=3)
    rng, asked = np.random.default_rng(0), np.zeros(50)
    for chosen in (selector.select(count=1) for _ in range(3000)):
        clients = chosen.clients
        asked[clients] += 1
        signals = {
            "loss": rng.lognormal(0.0, 0.2, 1) * loss[clients],
            "update_norm": rng.lognormal(0.0, 0.2, 1) * norm[clients],
        }
        told = Feedback(
            tickets=chosen.tickets,
            clients=clients,
            latency_seconds=rng.lognormal(0.0, 0.2, 1),
            signals=signals,
        )
        selector.observe(told)
    share = asked[liar].sum() / asked.sum()
    assert share < most


def test_newcomers_are_tried_and_those_who_wait_are_covered() -> None:
    selector = Selector(Tempo(), Problem(num_clients=10, cohort_size=2), seed=1)
    asked = np.zeros(15)
    for turn in range(400):
        if turn == 100:
            selector.join(5)
        chosen = selector.select(count=1)
        asked[chosen.clients] += 1
        slow = np.where(chosen.clients == 0, 50.0, 1.0)
        told = Feedback(tickets=chosen.tickets, clients=chosen.clients, latency_seconds=slow)
        selector.observe(told)
    assert asked.min() >= 1
    assert asked[10:].min() > 10


def test_prices_of_privacy_and_guaranteed_shares() -> None:
    problem = Problem(num_clients=6, cohort_size=2)
    state = played(SURE, problem, answers(list(range(6)), [1.0] * 6), tickets=True)
    left = np.array([1.0, 0.9, 0.1, 0.1, 0.1, 0.1])
    paying = replace(SURE, privacy=2.0)
    chosen = paying.select(state, view(6, 2, privacy_left=left), stream(0, "tempo")).clients
    assert chosen.tolist() == [0, 1]
    state.answering.asked[:] = state.answering.answered[:] = [9, 9, 9, 9, 0, 9]
    state.latency.mean[4] = log(100.0)  # nobody would choose client 4 for its value
    fair = replace(SURE, min_share=0.5)
    assert 4 in fair.select(state, view(6, 2), stream(0, "tempo")).clients.tolist()
    assert 4 not in SURE.select(state, view(6, 2), stream(0, "tempo")).clients.tolist()


def test_a_price_of_cost() -> None:
    """All take d seconds; a unit of cost is worth 2 d. Client 2 counts as the median, 3."""
    told = answers([0, 1, 2, 3], [1.0] * 4)
    told = replace(told, signals={"cost": np.array([1.0, 3.0, np.nan, 5.0])})
    problem = Problem(num_clients=4, cohort_size=2)
    for policy in (SURE, WAITING):
        slow = played(policy, problem, told, tickets=policy is SURE)
        second = policy.scores(slow, view(4, 2))["expected_seconds"][0]
        paying = replace(policy, cost=2.0 * second)
        state = played(paying, problem, told, tickets=policy is SURE)
        ratio = (
            policy.scores(state, view(4, 2))["score"] / paying.scores(state, view(4, 2))["score"]
        )
        np.testing.assert_allclose(ratio, [3.0, 7.0, 7.0, 11.0])
        chosen = paying.select(state, view(4, 1), stream(0, "tempo")).clients
        assert chosen.tolist() == [0]
        assert 3 not in paying.select(state, view(4, 3), stream(0, "tempo")).clients


@pytest.mark.parametrize(
    "settings",
    [
        {"coverage": 1.5},
        {"cost": -1.0},
        {"quota_share": 0.0},
        {"privacy": -1.0},
        {"min_share": 2.0},
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        Tempo(**settings)
    assert refused.value.key == tuple(settings)


def test_it_runs_without_a_model_or_losses() -> None:
    world = LatencyWorld(num_clients=30, cohort_size=6)
    for federation in (None, Federation(concurrency=6, buffer=2)):
        simulation = Simulation(
            Tempo(), world, seed=1, federation=federation, horizon=Horizon(rounds=50)
        )
        rows = [simulation.step() for _ in range(50)]
        assert sum(row.num_completed for row in rows) >= 50


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortlists for a hundred clients, as otherwise for 65,536 and more."""
    for name, value in {"MANY": 60, "LENGTH": 20, "REMADE_EVERY": 5}.items():
        monkeypatch.setattr(shortlist, name, value)


def one_by_one(selector: Selector[TempoState], turns: int) -> list[int]:
    chosen = []
    for _ in range(turns):
        selection = selector.select(count=1)
        seconds = 1.0 + (selection.clients % 7).astype(np.float64)
        told = Feedback(
            tickets=selection.tickets, clients=selection.clients, latency_seconds=seconds
        )
        selector.observe(told)
        chosen += selection.clients.tolist()
    return chosen


@pytest.mark.usefixtures("short")
def test_a_fresh_shortlist_holds_the_best_of_all() -> None:
    selector = Selector(SURE, Problem(num_clients=100, cohort_size=4), seed=2)
    one_by_one(selector, 300)
    state, checked = selector.state, 0
    for _ in range(50):
        one_by_one(selector, 1)
        if state.shortlist.made_at == state.num_answers:
            scores = SURE.scores(state, view(100, 3))["score"]
            chosen = SURE.select(state, view(100, 3), stream(0, "tempo")).clients
            assert chosen.tolist() == sorted(np.argsort(-scores)[:3].tolist())
            checked += 1
    assert checked == 10


@pytest.mark.usefixtures("short")
def test_a_shortlist_is_saved_and_made_anew_when_clients_join() -> None:
    selector = Selector(Tempo(), Problem(num_clients=100, cohort_size=4), seed=2)
    assert len(set(one_by_one(selector, 400))) == 100
    again = Selector.from_bytes(selector.to_bytes(), Tempo(), source="here")
    assert one_by_one(again, 50) == one_by_one(selector, 50)
    newcomers = selector.join(30)
    assert selector.state.shortlist.made_at == -1
    assert set(newcomers.tolist()) <= set(one_by_one(selector, 300))


@pytest.mark.usefixtures("short")
def test_when_most_of_the_shortlist_is_away_all_clients_are_looked_at() -> None:
    selector = Selector(SURE, Problem(num_clients=100, cohort_size=4), seed=2)
    one_by_one(selector, 300)
    available = np.zeros(100, dtype=np.bool_)
    outside = np.setdiff1d(np.arange(100), selector.state.shortlist.clients)[:5]
    available[outside] = True
    chosen = selector.select(count=3, available=available)
    assert len(chosen.clients) == 3
