"""FedSUV against Algorithm 1 in plain Python, its choice by hand, and what may go wrong."""

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from fedmuster.core.config import from_table
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import (
    BoolArray,
    Feedback,
    FloatArray,
    IntArray,
    Problem,
    RoundView,
    Selection,
)
from fedmuster.core.selector import Selector
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.fedsuv.candidates import DOMINATED, ELIMINATED, diagonals
from fedmuster.policies.fedsuv.gaussian_process import GaussianProcess
from fedmuster.policies.fedsuv.policy import FedSUV, FedSUVState
from fedmuster.worlds.validity_utility import ValidityUtilityWorld

FIXED = GaussianProcess(fit=False, length_scale=1.0, signal=1.0, noise=0.01)
USUAL = FedSUV(delta=0.9, gp=FIXED)
LOW, HIGH = 0, 1
VALIDITY, UTILITY = 0, 1


class PlainFedSUV:
    """Algorithm 1, one client at a time, from all observations anew in every round."""

    def __init__(self, policy: FedSUV, attributes: FloatArray, cohort_size: int) -> None:
        self.policy, self.m, self.K = policy, cohort_size, len(attributes)
        standard = (attributes - attributes.mean(axis=0)) / attributes.std(axis=0)
        self.x = standard
        self.candidates = list(range(self.K))
        self.left: dict[int, tuple[int, int]] = {}
        self.box = [[[-math.inf, math.inf], [-math.inf, math.inf]] for _ in range(self.K)]
        self.restarts = 0
        self.asked: list[tuple[int, float]] = []
        self.heard: list[tuple[int, float]] = []
        self.scale = 0.0

    def choose(self, available: list[int]) -> list[int] | None:
        """The cohort, or None where chance decides."""
        there = [k for k in self.candidates if k in available]
        if self.box[0][0][LOW] == -math.inf:
            return None
        chosen = sorted(there, key=self.diagonal, reverse=True)[:1]  # Eq. 11
        rest = [k for k in there if k not in chosen]
        others = [k for k in available if k not in there]
        for pool in (rest, others):
            pool.sort(key=lambda k: self.box[k][UTILITY][HIGH], reverse=True)
            chosen += pool[: self.m - len(chosen)]
        return sorted(chosen)

    def learn(self, round_: int, answers: dict[int, float | None]) -> None:
        """Of each client that was asked its utility, or None if it did not answer."""
        self.asked += [(client, float(utility is not None)) for client, utility in answers.items()]
        heard = [(client, utility) for client, utility in answers.items() if utility is not None]
        if heard:
            sizes = sorted(abs(utility) for _, utility in heard)
            self.scale = max(self.scale, sizes[int(0.9 * (len(sizes) - 1))])
            most = 10 * self.scale
            self.heard += [(client, max(-most, min(most, utility))) for client, utility in heard]
        self.prepare(round_ + 1)

    def prepare(self, t: int) -> None:
        bounds = list(zip(self.validities(), self.utilities(t), strict=True))
        floor = max(self.m, math.ceil((1 - self.policy.rho) * self.K - 1e-9))
        best = max(bounds[k][VALIDITY][LOW] for k in self.candidates)
        hopeless = [k for k in self.candidates if bounds[k][VALIDITY][HIGH] <= best]  # Eq. 7
        hopeless.sort(key=lambda k: bounds[k][VALIDITY][HIGH])
        for k in hopeless[: max(0, len(self.candidates) - floor)]:
            self.candidates.remove(k)
            self.left[k] = (t, ELIMINATED)
        for k in range(self.K):
            for side in (VALIDITY, UTILITY):
                low = max(self.box[k][side][LOW], bounds[k][side][LOW])  # Eq. 8
                high = min(self.box[k][side][HIGH], bounds[k][side][HIGH])
                self.restarts += low > high
                self.box[k][side] = [low, high] if low <= high else list(bounds[k][side])
        for k in sorted(self.candidates, key=lambda k: self.box[k][UTILITY][HIGH]):
            if len(self.candidates) == self.m:
                break
            if any(self.dominates(other, k) for other in self.candidates if other != k):
                self.candidates.remove(k)
                self.left[k] = (t, DOMINATED)

    def dominates(self, one: int, other: int) -> bool:
        return all(self.box[other][s][HIGH] <= self.box[one][s][LOW] for s in (VALIDITY, UTILITY))

    def diagonal(self, k: int) -> float:
        validity, utility = (high - low for low, high in self.box[k])
        return math.hypot(validity, utility / (self.scale or 1.0))  # Eq. 10

    def validities(self) -> list[tuple[float, float]]:
        x = np.hstack([np.ones((self.K, 1)), self.x])
        asked = [client for client, _ in self.asked]
        H = self.policy.regularisation * np.eye(x.shape[1]) + x[asked].T @ x[asked]
        theta = np.linalg.solve(H, x[asked].T @ [value for _, value in self.asked])
        alpha = 1 + math.sqrt(math.log(4 / self.policy.delta) / 2)
        bounds = []
        for row in x:
            width = math.sqrt(row @ np.linalg.solve(H, row))
            bounds.append((row @ theta - alpha * width, row @ theta + alpha * width))  # Eq. 4
        return bounds

    def utilities(self, t: int) -> list[tuple[float, float]]:
        gp = self.policy.gp
        mean, variance = np.zeros(self.K), np.full(self.K, gp.signal)
        if self.heard:
            clients = [client for client, _ in self.heard]
            among = self.kernel(clients, clients) + gp.noise * np.eye(len(clients))
            cross = self.kernel(list(range(self.K)), clients)
            mean = cross @ np.linalg.solve(among, [value for _, value in self.heard])
            variance -= np.diag(cross @ np.linalg.solve(among, cross.T))
        beta = 2 * math.log(self.K * math.pi**2 * t**2 / (3 * self.policy.delta))
        radius = np.sqrt(beta * variance)
        return list(zip(mean - radius, mean + radius, strict=True))  # Eq. 5

    def kernel(self, left: list[int], right: list[int]) -> FloatArray:
        length = self.policy.gp.length_scale * math.sqrt(self.x.shape[1])
        gap = (self.x[left][:, None, :] - self.x[right][None, :, :]) / length
        return np.asarray(self.policy.gp.signal * np.exp(-0.5 * (gap**2).sum(axis=2)))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A small problem in which validity and utility follow from attributes, or nearly so."""

    seed: int = 0
    num_clients: int = 24
    cohort_size: int = 4
    rounds: int = 30
    away: float = 0.0
    drift: float = 0.0
    aligned: bool = False
    policy: FedSUV = USUAL

    def rounds_of_luck(self) -> list[tuple[BoolArray, BoolArray, FloatArray]]:
        """Who is available, who would answer, and what it would be worth, round by round."""
        rng, count = stream(self.seed, "case", 1), self.num_clients
        x = self.attributes()
        validity = 0.5 + 0.45 * x[:, 0]
        worth = 1.0 + 0.8 * x[:, 0 if self.aligned else 1]
        return [
            (
                rng.random(count) >= self.away,
                rng.random(count) < validity,
                worth + 0.05 * rng.standard_normal(count) - self.drift * t,
            )
            for t in range(1, self.rounds + 1)
        ]

    def attributes(self) -> FloatArray:
        return stream(self.seed, "case", 0).uniform(-1.0, 1.0, (self.num_clients, 2))

    def problem(self) -> Problem:
        return Problem(
            num_clients=self.num_clients, cohort_size=self.cohort_size, attributes=self.attributes()
        )


CASES = {
    "plain": Case(),
    "another seed": Case(seed=1, cohort_size=5),
    "clients away": Case(seed=2, away=0.6),
    "narrow bounds": Case(seed=3, policy=replace(USUAL, gp=replace(FIXED, noise=1e-4))),
    "no elimination": Case(seed=4, policy=FedSUV(delta=0.5, rho=0.0, gp=FIXED)),
    "nearly all may go": Case(seed=5, rounds=60, policy=replace(USUAL, rho=1.0)),
    "the same are good at both": Case(seed=8, cohort_size=12, aligned=True),
    "utility falls": Case(seed=6, drift=0.15),
    "more regularised": Case(seed=7, policy=replace(USUAL, regularisation=5.0)),
}


@cache
def playing(case: Case) -> tuple[PlainFedSUV, FedSUVState]:
    """Both side by side, compared in every round."""
    policy = case.policy
    plain = PlainFedSUV(policy, case.attributes(), case.cohort_size)
    state = policy.init(case.problem())
    for t, (available, answers, utility) in enumerate(case.rounds_of_luck(), start=1):
        view = RoundView(round=t, cohort_size=case.cohort_size, available=available)
        cohort = policy.select(state, view, stream(case.seed, POLICY, t))
        expected = plain.choose([int(k) for k in np.flatnonzero(available)])
        if expected is not None:
            assert cohort.clients.tolist() == expected, f"round {t}"
        feedback = told(cohort, answers, utility)
        policy.observe(state, cohort, feedback)
        plain.learn(t, {int(k): float(utility[k]) if answers[k] else None for k in cohort.clients})
        assert state.candidates.remaining().tolist() == sorted(plain.candidates), f"round {t}"
        corners = np.array(plain.box)
        for side, (low, high) in enumerate(
            [
                (state.boxes.validity_low, state.boxes.validity_high),
                (state.boxes.utility_low, state.boxes.utility_high),
            ]
        ):
            np.testing.assert_allclose(low, corners[:, side, LOW], rtol=1e-7, atol=1e-9)
            np.testing.assert_allclose(high, corners[:, side, HIGH], rtol=1e-7, atol=1e-9)
        assert diagonals(state.boxes, state.candidates.remaining()).max() == pytest.approx(
            max(plain.diagonal(k) for k in plain.candidates), rel=1e-7
        )
    return plain, state


def told(cohort: Selection, answers: BoolArray, utility: FloatArray) -> Feedback:
    completed = answers[cohort.clients]
    return Feedback(
        round=cohort.round,
        clients=cohort.clients,
        latency_seconds=np.where(completed, 1.0, np.inf),
        completed=completed,
        signals={"utility": np.where(completed, utility[cohort.clients], np.nan)},
    )


@pytest.mark.parametrize("name", CASES)
def test_equals_the_pseudo_code_in_plain_python(name: str) -> None:
    plain, state = playing(CASES[name])
    for client, (round_, reason) in plain.left.items():
        assert state.candidates.left_round[client] == round_
        assert state.candidates.left_by[client] == reason


def test_the_cases_try_everything() -> None:
    """Eliminations and dominations, both floors, and intersections that become empty."""
    reasons: set[int] = set()
    restarts, at_floor, at_cohort = 0, 0, 0
    for case in CASES.values():
        plain, _ = playing(case)
        reasons |= {reason for _, reason in plain.left.values()}
        restarts += plain.restarts
        gone = sum(reason == ELIMINATED for _, reason in plain.left.values())
        at_floor += 0 < gone == math.floor(case.policy.rho * case.num_clients)
        at_cohort += len(plain.candidates) == case.cohort_size
    assert reasons == {ELIMINATED, DOMINATED}
    assert restarts > 0
    assert at_floor > 0
    assert at_cohort > 0


def known(case: Case, **corners: list[float]) -> FedSUVState:
    """A state with these boxes."""
    state = case.policy.init(case.problem())
    for name, values in corners.items():
        getattr(state.boxes, name)[:] = values
    state.boxes.utility_scale[...] = 10.0
    return state


def choose(case: Case, state: FedSUVState, available: list[int], seed: int = 0) -> list[int]:
    mask = np.isin(np.arange(case.num_clients), available)
    view = RoundView(round=5, cohort_size=case.cohort_size, available=mask)
    cohort = case.policy.select(state, view, stream(seed, POLICY, 5))
    return [int(client) for client in cohort.clients]


SIX = Case(num_clients=6, cohort_size=3)
CORNERS = {
    "validity_low": [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    "validity_high": [0.1, 0.5, 0.2, 0.3, 0.2, 0.1],
    "utility_low": [8.0, 2.0, 1.0, 0.0, 5.0, 7.0],
    "utility_high": [9.0, 3.0, 4.0, 6.0, 7.0, 8.0],
}
"""Diagonals in units of 10: 0.14, 0.51, 0.36, 0.67, 0.28, 0.14."""


def test_chooses_the_widest_box_and_the_highest_utilities() -> None:
    state = known(SIX, **CORNERS)
    assert choose(SIX, state, [0, 1, 2, 3, 4, 5]) == [0, 3, 5]  # Eq. 11: client 3
    assert choose(SIX, state, [1, 2, 4, 5]) == [1, 4, 5]
    state.boxes.utility_scale[...] = 1000.0  # so that validity alone makes a box wide
    assert choose(SIX, state, [0, 1, 2, 3, 4, 5]) == [0, 1, 5]


def test_others_fill_the_cohort_when_candidates_are_away() -> None:
    state = known(SIX, **CORNERS)
    state.candidates.left_by[[0, 4, 5]] = ELIMINATED
    assert choose(SIX, state, [0, 1, 2, 3, 4, 5]) == [1, 2, 3]
    assert choose(SIX, state, [0, 1, 4, 5]) == [0, 1, 5]  # 1, then the highest of 9, 7 and 8
    assert choose(SIX, state, [4, 5]) == [4, 5]
    assert choose(SIX, state, []) == []


def test_ties_favour_nobody() -> None:
    state = known(SIX)  # nothing known: the whole plane
    times = np.zeros(6)
    for seed in range(600):
        times[choose(SIX, state, [0, 1, 2, 3, 4, 5], seed)] += 1
    # Of 600 draws with probability 1/2, an excess of 61 has probability 1e-6 for any client.
    assert abs(times - 300).max() < 61


def small() -> Selector[FedSUVState]:
    problem = Problem(num_clients=12, cohort_size=3, attributes=Case(num_clients=12).attributes())
    return Selector(FedSUV(), problem, seed=1)


def answer(cohort: IntArray, round_: int, *, completed: bool) -> Feedback:
    count = len(cohort)
    return Feedback(
        round=round_,
        clients=cohort,
        latency_seconds=np.ones(count),
        completed=np.full(count, completed),
        signals={"utility": np.ones(count)},
    )


@pytest.mark.parametrize("heard", ["all failed", "nobody was heard of"])
def test_goes_on_when_nobody_answers(heard: str) -> None:
    selector = small()
    for t in range(1, 41):
        cohort = selector.select().clients
        assert len(cohort) == 3
        told_of = cohort if heard == "all failed" else cohort[:0]
        selector.observe(answer(told_of, t, completed=False))
    boxes = selector.state.boxes
    assert (boxes.validity_low < 0.2).all()
    assert boxes.utility_scale == 0.0
    remaining = selector.state.candidates.remaining()
    assert np.isfinite(diagonals(boxes, remaining)).all()
    assert len(remaining) >= 3


def test_validity_is_learned_from_all_and_utility_from_those_who_answer() -> None:
    selector = small()
    for t in range(1, 31):
        cohort = selector.select().clients
        selector.observe(answer(cohort, t, completed=True))
    boxes = selector.state.boxes
    centre = 0.5 * (boxes.validity_low + boxes.validity_high)
    assert (abs(centre - 1.0) < 0.25).all()
    assert boxes.utility_scale == 1.0
    centre = 0.5 * (boxes.utility_low + boxes.utility_high)
    assert (abs(centre - 1.0) < 0.1).all()


@pytest.mark.parametrize("lie", [1e9, -1e300, 1.7e308])
def test_a_liar_does_not_break_it(lie: float) -> None:
    case = Case(num_clients=30, cohort_size=5, rounds=40)
    selector = Selector(FedSUV(), case.problem(), seed=2)
    for _, answers, utility in case.rounds_of_luck():
        utility[7] = lie
        selector.observe(told(selector.select(), answers, utility))
    boxes = selector.state.boxes
    assert np.isfinite([boxes.utility_low, boxes.utility_high]).all()
    assert boxes.utility_scale < 3.0


def test_newcomers_are_candidates_and_count() -> None:
    case = Case(rounds=40)
    selector = Selector(case.policy, case.problem(), seed=3, newcomer_quota=1.0)
    for _, answers, utility in case.rounds_of_luck():
        selector.observe(told(selector.select(), answers, utility))
    assert len(selector.state.candidates.remaining()) < 24
    joined = selector.join(3, attributes=np.array([[0.9, 0.9], [0.0, 0.0], [-0.9, -0.9]]))
    assert (selector.state.candidates.left_by[joined] == 0).all()
    cohort = selector.select()
    assert np.isin(joined, cohort.clients).all()  # nothing is known of them
    selector.observe(answer(cohort.clients, cohort.round, completed=True))
    assert np.isfinite(selector.state.boxes.utility_high).all()


def test_the_size_of_data_joins_the_attributes() -> None:
    sizes = np.array([5, 50, 500])
    problem = Problem(num_clients=3, cohort_size=1, num_samples=sizes, attributes=np.eye(3)[:, :2])
    state = FedSUV().init(problem)
    assert state.utility.attributes.shape == (3, 3)
    np.testing.assert_allclose(
        np.corrcoef(state.utility.attributes[:, 2], np.log1p(sizes))[0, 1], 1
    )
    assert FedSUV(use_data_size=False).init(problem).utility.attributes.shape == (3, 2)
    # By itself it would make clients with as much data all alike.
    assert FedSUV().init(replace(problem, attributes=None)).utility.attributes.shape == (3, 0)


def test_utility_is_loss_times_gain_times_samples() -> None:
    problem = Problem(num_clients=2, cohort_size=2, num_samples=np.array([10, 40]))
    selector = Selector(FedSUV(), problem, seed=0)
    cohort = selector.select().clients
    signals = {"root_mean_square_loss": np.array([2.0, 0.5]), "accuracy_gain": np.array([0.1, 0.2])}
    selector.observe(Feedback(round=1, clients=cohort, latency_seconds=np.ones(2), signals=signals))
    np.testing.assert_allclose(selector.state.utility.tally.mean, [10 * 2.0 * 0.1, 40 * 0.5 * 0.2])


def test_the_largest_diagonal_is_that_of_the_scores_and_falls() -> None:
    run = ValidityUtilityWorld(num_clients=200, cohort_size=10).start(1)
    selector = Selector(FedSUV(), run.problem, seed=1)
    largest = [np.inf]
    for t in range(1, 41):
        drawn = run.realise(t)
        cohort = selector.select(available=drawn.available)
        selector.observe(drawn.play(cohort).feedback)
        state = selector.state
        view = RoundView(round=t + 1, cohort_size=10, available=drawn.available)
        scores = selector.policy.scores(state, view)
        candidate = scores["left_by"] == 0
        largest.append(float(scores["diagonal"][candidate].max()))
        assert largest[-1] == diagonals(state.boxes, state.candidates.remaining()).max()
        assert largest[-1] <= largest[-2] + 1e-12  # the proof of Theorem 5.4
        assert np.isnan(scores["left_round"][candidate]).all()
        assert (scores["left_round"][~candidate] <= t + 1).all()
    assert not candidate.all()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"delta": 0.0}, "delta = 0.0, expected a number in"),
        ({"delta": 1.0}, "delta"),
        ({"rho": -0.1}, "rho"),
        ({"rho": float("nan")}, "rho"),
        ({"regularisation": 0.0}, "regularisation"),
        ({"gp": {"noise": 0.0}}, "noise"),
    ],
)
def test_refuses(table: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_table(FedSUV, table)
