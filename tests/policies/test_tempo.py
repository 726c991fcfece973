"""Tempo: values and times by hand, the exact cohort, drift, liars, late clients, newcomers."""

from dataclasses import replace
from itertools import combinations
from math import exp, log, sqrt
from typing import Any

import numpy as np
import pytest

from fedmuster import Problem, Selector
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import Feedback, FloatArray, RoundView, Selection
from fedmuster.core.streams import stream
from fedmuster.federation import Federation, Horizon, Simulation
from fedmuster.policies.tempo import Tempo, latencies
from fedmuster.policies.tempo import policy as tempo
from fedmuster.policies.tempo.policy import TempoState
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
    = ln 2. The typical loss after the first message is sqrt(2 · 8) = 4.
    """
    problem = Problem(num_clients=4, cohort_size=2, num_samples=np.array([10, 10, 20, 40]))
    first, second = answers([0, 1], [1.0, 4.0], [2.0, 8.0]), answers([1, 2], [4.0, 2.0], [4.0, 2.0])
    state = played(SURE, problem, first, second, tickets=True)
    scores = SURE.scores(state, view(4, 2))
    ln2 = log(2)
    mean = [0.25 * ln2 / 1.25, (2 * 2 * ln2 + 0.25 * ln2) / 2.25, ln2]  # client 2 is as the fleet
    deviation = sqrt((0.0 - ln2) ** 2 + (2 * ln2 - ln2) ** 2) / sqrt(3)
    unseen = ln2 - 0.674 * deviation
    np.testing.assert_allclose(
        scores["expected_seconds"], [exp(each) for each in (*mean, unseen)], rtol=1e-12
    )
    # ln 2/4 = -ln 2, and ln 8/4 = ln 2; then client 1 is smoothed with ln 4/4 = 0.
    np.testing.assert_allclose(scores["need"][:3], [0.5, sqrt(2), 0.5], rtol=1e-12)
    assert np.isnan(scores["need"][3])
    np.testing.assert_allclose(scores["age"], [2 / 4, 0.5 / 4, 0.5 / 4, 4 / 4])
    np.testing.assert_allclose(scores["chance"], 1.0)
    value = [0.5 * 0.5 * sqrt(0.5), 0.5 * sqrt(2) * sqrt(1 / 8), 0.5 * sqrt(1 / 8), 2.0]
    np.testing.assert_allclose(scores["value"], value, rtol=1e-12)
    np.testing.assert_allclose(scores["score"], scores["value"] / scores["expected_seconds"])
    best = np.argsort(-scores["score"])[:2]
    chosen = SURE.select(state, view(4, 2), stream(0, "tempo")).clients
    assert chosen.tolist() == sorted(best.tolist())


def test_norms_of_updates_count_beside_losses_and_without_them() -> None:
    """Typical norm sqrt(1 · 4) = 2, typical loss sqrt(3 · 3) = 3; then a norm of 2000 and a loss of
    3000 are cut at e² and e times the typical ones, and client 0 keeps half of its old need."""
    problem = Problem(num_clients=3, cohort_size=2)
    norms = replace(answers([0, 1], [1.0, 1.0]), signals={"update_norm": np.array([1.0, 4.0])})
    both = replace(norms, signals={**norms.signals, "loss": np.array([3.0, 3.0])})
    for told in (norms, both):
        need = SURE.scores(played(SURE, problem, told, tickets=True), view(3, 1))["need"]
        np.testing.assert_allclose(need, [0.5, 2.0, np.nan], rtol=1e-12)
    signals = {"update_norm": np.array([2000.0]), "loss": np.array([3000.0])}
    lie = replace(answers([0], [1.0]), signals=signals)
    need = SURE.scores(played(SURE, problem, both, lie, tickets=True), view(3, 1))["need"]
    assert need[0] == pytest.approx(exp(0.5 * log(0.5) + 0.5 * (2.0 + 1.0)), rel=1e-12)


def test_a_client_that_fails_is_worth_less() -> None:
    problem = Problem(num_clients=2, cohort_size=2)
    told = [answers([0, 1], [1.0, np.inf], round_=t) for t in (1, 2, 3)]
    chance = SURE.scores(played(SURE, problem, *told, tickets=True), view(2, 1))["chance"]
    assert chance.tolist() == [1.0, 0.25]


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
    seconds, samples = np.tile([1.0, 2.0, 1.0, 4.0], 20), np.tile([10, 10, 20, 40], 20)
    selector = Selector(SURE, Problem(num_clients=80, cohort_size=1, num_samples=samples), seed=1)
    visits = np.zeros(80)
    for turn in range(8000):
        chosen = selector.select(count=1)
        visits[chosen.clients] += turn >= 1000
        told = Feedback(
            tickets=chosen.tickets, clients=chosen.clients, latency_seconds=seconds[chosen.clients]
        )
        selector.observe(told)
    expected = (samples[:4] / seconds[:4]) ** 2
    shares = visits.reshape(20, 4).sum(axis=0) / visits.sum()
    np.testing.assert_allclose(shares, expected / expected.sum(), rtol=0.15)


def reference_latency(times: list[list[float]]) -> tuple[FloatArray, list[int]]:
    """Windows and means in plain Python, one client after the other in each message."""
    spread, means, counts = [10.0, 10.0 * 0.09], [0.0] * len(times[0]), [0] * len(times[0])
    up, down = [0.0] * len(means), [0.0] * len(means)
    for message in times:
        scale = sqrt(spread[1] / spread[0])
        for k, seconds in enumerate(message):
            x = log(seconds)
            if counts[k] == 0:
                means[k], counts[k] = x, 1
                up[k] = max(up[k] - 0.5, 0.0)
                down[k] = max(down[k] - 0.5, 0.0)
                continue
            residual = x - means[k]
            up[k] = max(up[k] + residual / scale - 0.5, 0.0)
            down[k] = max(down[k] - residual / scale - 0.5, 0.0)
            if max(up[k], down[k]) > 4.0:
                means[k], counts[k], up[k], down[k] = x, 1, 0.0, 0.0
                continue
            spread[0] += 1
            spread[1] += residual**2
            counts[k] = min(counts[k] + 1, 20)
            means[k] += residual / counts[k]
    return np.array(means), counts


def test_times_against_a_plain_loop() -> None:
    rng = np.random.default_rng(3)
    scale = np.where(np.arange(60)[:, np.newaxis] < 30, [1.0, 2.0, 4.0], [1.0, 0.2, 9.0])
    times = scale * rng.lognormal(0.0, 0.3, (60, 3))
    state = latencies.init(3)
    for message in times:
        latencies.learn(state, np.arange(3), message)
    means, counts = reference_latency(times.tolist())
    np.testing.assert_allclose(state.mean, means, rtol=1e-10)
    assert state.count.tolist() == counts


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
    sizes, counts = [], []
    for _ in range(40):
        before = simulation.elapsed_seconds
        trainer = simulation.trainer
        assert trainer is not None
        assert trainer.late is not None
        out = int(np.count_nonzero(trainer.late.arrives_at_seconds > before))
        row = simulation.step()
        sizes.append(len(row.clients) + out)
        counts.append(row.num_completed)
    assert np.mean(sizes) == pytest.approx(10, abs=0.3)
    assert max(sizes) <= 11  # one is asked even if all are late
    assert max(counts) <= 4  # 0.4 of 10


def test_clients_that_never_come_back_do_not_hold_places_for_ever() -> None:
    problem = Problem(num_clients=12, cohort_size=4)
    state = Tempo().init(problem)
    gone, rng = np.array([0, 1, 2, 3]), stream(5, "tempo")
    available = np.ones(12, dtype=np.bool_)
    sizes = []
    for round_ in range(1, 60):
        if round_ > 1:
            available[gone] = False
        seen = RoundView(round=round_, cohort_size=4, available=available)
        chosen = Tempo().select(state, seen, rng)
        sizes.append(len(chosen.clients))
        silent = np.isin(chosen.clients, gone)
        seconds = np.where(silent, np.inf, 1.0)
        told = answers(chosen.clients.tolist(), seconds.tolist(), round_=round_)
        Tempo().observe(state, chosen, told)
    assert sizes[-10:] == [4] * 10


def test_liars_about_losses_gain_little() -> None:
    """20 % of the clients report ten times their loss."""
    shares = {}
    for factor in (1.0, 10.0):
        selector = Selector(Tempo(), Problem(num_clients=50, cohort_size=5), seed=3)
        rng, asked = np.random.default_rng(0), np.zeros(50)
        for chosen in (selector.select(count=1) for _ in range(3000)):
            clients = chosen.clients
            asked[clients] += 1
            loss = rng.lognormal(0.0, 0.2, 1) * np.where(clients < 10, factor, 1.0)
            told = Feedback(
                tickets=chosen.tickets,
                clients=clients,
                latency_seconds=rng.lognormal(0.0, 0.2, 1),
                signals={"loss": loss},
            )
            selector.observe(told)
        shares[factor] = asked[:10].sum() / asked.sum()
    assert shares[1.0] == pytest.approx(0.2, abs=0.05)
    assert shares[10.0] < 0.75  # within e^±1, and a fifth of the places goes by coverage


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
    state.asked[:] = [9, 9, 9, 9, 0, 9]
    fair = replace(SURE, min_share=0.5)
    assert 4 in fair.select(state, view(6, 2), stream(0, "tempo")).clients.tolist()


def test_a_price_of_cost() -> None:
    """All take a second; a unit of cost is worth two. Client 2 is like the mean of the others."""
    told = answers([0, 1, 2, 3], [1.0] * 4)
    told = replace(told, signals={"cost": np.array([1.0, 3.0, np.nan, 5.0])})
    problem = Problem(num_clients=4, cohort_size=2)
    for policy in (SURE, WAITING):
        paying = replace(policy, cost=2.0)
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
        {"recharge": 0.0},
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
    for name, value in {"_MANY": 60, "_SHORTLIST": 20, "_LIST_EVERY": 5}.items():
        monkeypatch.setattr(tempo, name, value)


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
        if state.listed == state.clock[0]:
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
    assert selector.state.listed == -1
    assert set(newcomers.tolist()) <= set(one_by_one(selector, 300))


@pytest.mark.usefixtures("short")
def test_when_most_of_the_shortlist_is_away_all_clients_are_looked_at() -> None:
    selector = Selector(SURE, Problem(num_clients=100, cohort_size=4), seed=2)
    one_by_one(selector, 300)
    available = np.zeros(100, dtype=np.bool_)
    outside = np.setdiff1d(np.arange(100), selector.state.shortlist)[:5]
    available[outside] = True
    chosen = selector.select(count=3, available=available)
    assert set(chosen.clients.tolist()) <= set(outside.tolist())
