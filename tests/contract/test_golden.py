"""Point 15: every policy chooses what the equations of its paper say, tried on all m-sets.

The equations are written down once more here, in plain loops over a list of rounds and without
any of the package's estimators, objectives and solvers.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import exp, isfinite, log, sqrt
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator

from fedmuster import (
    BSFL,
    CSUCB,
    CSUCBQ,
    PAUSE,
    POLICIES,
    RBCSF,
    DivFL,
    FastestInExpectation,
    FedCor,
    Genie,
    HiCSFL,
    PowerOfChoice,
)
from fedmuster.bandits.means import Bonus, DiscountedMean, WindowedMean
from fedmuster.core.policy import Policy
from fedmuster.core.records import (
    Feedback,
    FloatArray,
    IntArray,
    Problem,
    RoundView,
    Selection,
    Truth,
)
from fedmuster.core.streams import stream
from fedmuster.policies.pisces import Pisces
from fedmuster.privacy.schedules import Geometric
from fedmuster.testing import assert_cohort_is_optimal, replay
from fedmuster.testing.playing import Cohort

NUM_CLIENTS, COHORT_SIZE, NUM_CLUSTERS = 7, 3, 3
INSTANCES = 100
UNSEEN = 1e4
"""In place of +inf: larger than any other term, so that sets of the unseen are still ordered."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Story:
    """A random history of a small federation, and the round in which to choose."""

    problem: Problem
    history: list[tuple[Selection, Feedback]]
    view: RoundView

    @property
    def t(self) -> int:
        return self.view.round


@cache
def samples(told: Story, k: int) -> list[tuple[int, float | None]]:
    """(round, latency) of each time client k was asked; None where it did not complete."""
    found: list[tuple[int, float | None]] = []
    for _, feedback in told.history:
        for row, client in enumerate(feedback.clients.tolist()):
            if client == k:
                latency = float(feedback.latency_seconds[row])
                found.append((feedback.round, latency if feedback.answered[row] else None))
    return found


def participated(told: Story, k: int, round_: int) -> bool:
    return any(t == round_ for t, _ in samples(told, k))


def answers(told: Story) -> list[float]:
    """All latencies that were ever observed."""
    everyone = (samples(told, k) for k in range(NUM_CLIENTS))
    return [seconds for one in everyone for _, seconds in one if seconds is not None]


@cache  # the same for every policy
def story(seed: int, *, data: bool, features: bool) -> Story:
    """Rounds of cohorts that nobody in particular chose, with failures and ties.

    Half of the histories are short, with clients unseen; half so long that bounds get tight.
    """
    rng = stream(seed, "story")
    problem = Problem(
        num_clients=NUM_CLIENTS,
        cohort_size=COHORT_SIZE,
        num_samples=rng.integers(1, 9, NUM_CLIENTS) if data else None,
        quality=rng.uniform(0.2, 1.0, NUM_CLIENTS) if data else None,
        clusters=rng.integers(0, NUM_CLUSTERS, NUM_CLIENTS),
        num_features=2 if features else 0,
    )
    rounds = int(rng.integers(0, 10) if rng.random() < 0.5 else rng.integers(30, 80))
    history = [_round(rng, t, features) for t in range(1, rounds + 1)]
    available = rng.random(NUM_CLIENTS) < rng.choice([0.4, 0.8, 1.0])
    seconds = rng.uniform(0.1, 1.0, NUM_CLIENTS).round(1)
    losses = rng.choice([0.5, 1.0, 1.5, 2.0, np.nan, np.inf], (2, NUM_CLIENTS))

    def ask_loss(clients: IntArray, *, batch_size: int | None = None) -> FloatArray:
        return np.asarray(losses[0 if batch_size is None else 1, clients])

    view = RoundView(
        round=rounds + 1,
        cohort_size=COHORT_SIZE,
        available=available,
        features=rng.uniform(0.5, 2.0, (NUM_CLIENTS, 2)) if features else None,
        truth=Truth(mean_latency_seconds=seconds, mean_speed=0.1 / seconds),
        ask_loss=ask_loss,
    )
    return Story(problem=problem, history=history, view=view)


def _round(rng: Generator, t: int, features: bool) -> tuple[Selection, Feedback]:
    cohort = np.sort(rng.choice(NUM_CLIENTS, COHORT_SIZE, replace=False))
    completed = rng.random(COHORT_SIZE) < 0.8
    latency = rng.choice([0.1, 0.2, 0.3, 0.5, 0.8, 1.0], COHORT_SIZE)
    feedback = Feedback(
        round=t,
        clients=cohort,
        latency_seconds=np.where(completed, latency, np.inf),
        completed=completed,
        signals={
            "loss": np.where(completed, rng.choice([0.5, 1.0, 2.0, 3.0], 3), np.nan),
            "staleness": np.where(completed, (t + 2.0 * cohort) % 5, np.nan),
        },
    )
    context = rng.uniform(0.5, 2.0, (COHORT_SIZE, 2)) if features else None
    return Selection(round=t, clients=cohort, features=context), feedback


# --- BSFL, PAUSE and the genie -----------------------------------------------------------------


@cache
def generalisation(told: Story, k: int, beta: float) -> float:
    """BSFL Eq. 3 and 4; PAUSE Eq. 8."""
    problem = told.problem
    sizes, qualities = problem.num_samples, problem.quality
    d = [
        (1.0 if qualities is None else float(qualities[j]))
        * (1.0 if sizes is None else float(sizes[j]))
        for j in range(NUM_CLIENTS)
    ]
    x = COHORT_SIZE * d[k] / sum(d) - len(samples(told, k)) / told.t
    size: float = abs(x) ** beta
    return size if x > 0 else -size


@cache
def privacy(told: Story, k: int, eta: float) -> float:
    """PAUSE Eq. 7 with the schedule under Eq. 6, for a budget that cancels out."""
    budget = 40.0
    spent = 0.0
    for i in range(1, len(samples(told, k)) + 1):
        spent += budget * (exp(eta) - 1) * exp(-eta * i)
    return 1 - spent / budget


def crowding(told: Story, cohort: Cohort) -> int:
    """The sum of PAUSE Eq. 22."""
    assert told.problem.clusters is not None
    labels = [int(told.problem.clusters[k]) for k in cohort]
    return sum(max(0, labels.count(r) - 1) for r in range(NUM_CLUSTERS))


def speeds(told: Story, k: int, tau_min: float | None) -> list[tuple[int, float]]:
    """(round, tau_min / tau); a client that did not complete had speed 0."""
    if tau_min is None:
        tau_min = min(answers(told), default=0.0)
    return [(t, 0.0 if tau is None else tau_min / tau) for t, tau in samples(told, k)]


@cache
def ucb(told: Story, k: int, tau_min: float | None = None, zeta: float = 1.0) -> float:
    """ucb(k, t-1) of BSFL Eq. 8, 9; PAUSE Eq. 11, 13."""
    seen = [speed for _, speed in speeds(told, k, tau_min)]
    if not seen:
        return UNSEEN
    bonus = sqrt((COHORT_SIZE + 1) * log(told.t - 1) / len(seen))
    return zeta * sum(seen) / len(seen) + bonus


@cache
def windowed_ucb(told: Story, k: int, window: int) -> float:
    """The same of the last ``window`` samples."""
    seen = [speed for _, speed in speeds(told, k, None)][-window:]
    if not seen:
        return UNSEEN
    return sum(seen) / len(seen) + sqrt((COHORT_SIZE + 1) * log(told.t - 1) / len(seen))


@cache
def discounted_ucb(told: Story, k: int, discount: float) -> float:
    """The same with a weight of ``discount ** n`` on a sample made n rounds before the last."""
    seen = speeds(told, k, None)
    if not seen:
        return UNSEEN
    weights = [discount ** (told.t - 1 - t) for t, _ in seen]
    mean = sum(w * speed for w, (_, speed) in zip(weights, seen, strict=True)) / sum(weights)
    horizon = sum(discount**n for n in range(told.t - 1))
    return mean + sqrt((COHORT_SIZE + 1) * log(max(horizon, 1.0)) / sum(weights))


def counted(told: Story, k: int, policy: BSFL | PAUSE) -> list[tuple[float, float]]:
    """(weight, speed) of the samples that the policy's estimator counts."""
    seen, estimator = speeds(told, k, policy.tau_min_seconds), policy.estimator
    if isinstance(estimator, WindowedMean):
        seen = seen[-estimator.window :]
    discount = estimator.discount if isinstance(estimator, DiscountedMean) else 1.0
    return [(discount ** (told.t - 1 - t), speed) for t, speed in seen]


@cache
def spread_ucb(told: Story, k: int, policy: BSFL | PAUSE) -> float:
    """Mean and ``scale sqrt(2 s² L / c)``, L = ln t or ln+(mean count / c), of what counts."""
    seen = counted(told, k, policy)
    if not seen:
        return UNSEEN
    count = sum(w for w, _ in seen)
    mean = sum(w * x for w, x in seen) / count
    squares = sum(w * (x - mean) ** 2 for w, x in seen)
    discount = getattr(policy.estimator, "discount", 1.0)
    horizon = sum(discount**n for n in range(told.t - 1))
    logarithm = log(max(horizon, 1.0))
    if policy.bonus == "minimax":
        counts = [sum(w for w, _ in counted(told, j, policy)) for j in range(NUM_CLIENTS)]
        logarithm = max(log(sum(counts) / NUM_CLIENTS / count), 0.0)
    variance = (squares + 0.02) / (count + 2)
    zeta = getattr(policy, "zeta", 1.0)
    return zeta * mean + policy.scale * sqrt(2 * variance * logarithm / count)


def spread_value(told: Story, cohort: Cohort, policy: BSFL) -> float:
    """BSFL Eq. 13 with another index."""
    return min(spread_ucb(told, k, policy) for k in cohort) + policy.alpha * mean_over(
        cohort, lambda k: generalisation(told, k, policy.beta)
    )


def spread_pause_value(told: Story, cohort: Cohort, policy: PAUSE) -> float:
    """PAUSE Eq. 14 with another index."""
    return min(spread_ucb(told, k, policy) for k in cohort) + beyond_speed(told, cohort, policy)


def mean_over(cohort: Cohort, term: Callable[[int], float]) -> float:
    return sum(term(k) for k in cohort) / len(cohort)


def bsfl_value(told: Story, cohort: Cohort, policy: BSFL) -> float:
    """BSFL Eq. 13."""
    slowest = min(ucb(told, k, policy.tau_min_seconds) for k in cohort)
    return slowest + policy.alpha * mean_over(
        cohort, lambda k: generalisation(told, k, policy.beta)
    )


def scaled_value(told: Story, cohort: Cohort, policy: BSFL) -> float:
    """The same with ``scale`` on the bonus."""

    def index(k: int) -> float:
        seen = [speed for _, speed in speeds(told, k, policy.tau_min_seconds)]
        if not seen:
            return UNSEEN
        mean = sum(seen) / len(seen)
        return mean + policy.scale * (ucb(told, k, policy.tau_min_seconds) - mean)

    return min(map(index, cohort)) + policy.alpha * mean_over(
        cohort, lambda k: generalisation(told, k, policy.beta)
    )


def windowed_value(told: Story, cohort: Cohort, policy: BSFL) -> float:
    assert isinstance(policy.estimator, WindowedMean)
    window = policy.estimator.window
    slowest = min(windowed_ucb(told, k, window) for k in cohort)
    return slowest + policy.alpha * mean_over(
        cohort, lambda k: generalisation(told, k, policy.beta)
    )


def discounted_value(told: Story, cohort: Cohort, policy: BSFL) -> float:
    assert isinstance(policy.estimator, DiscountedMean)
    discount = policy.estimator.discount
    slowest = min(discounted_ucb(told, k, discount) for k in cohort)
    return slowest + policy.alpha * mean_over(
        cohort, lambda k: generalisation(told, k, policy.beta)
    )


def beyond_speed(told: Story, cohort: Cohort, policy: PAUSE | Genie) -> float:
    """alpha Phi_g + gamma Phi_p of PAUSE Eq. 14 with Eq. 18 and 22."""
    phi_g = mean_over(cohort, lambda k: generalisation(told, k, policy.beta))
    phi_g -= policy.rho * crowding(told, cohort)
    schedule = policy.schedule
    assert isinstance(schedule, Geometric)
    phi_p = mean_over(cohort, lambda k: privacy(told, k, schedule.eta))
    return policy.alpha * phi_g + policy.gamma * phi_p


def pause_value(told: Story, cohort: Cohort, policy: PAUSE) -> float:
    """PAUSE Eq. 14."""
    slowest = min(ucb(told, k, policy.tau_min_seconds, policy.zeta) for k in cohort)
    return slowest + beyond_speed(told, cohort, policy)


def genie_value(told: Story, cohort: Cohort, policy: Genie) -> float:
    """BSFL Eq. 6; PAUSE Eq. 10."""
    assert told.view.truth is not None
    mu = told.view.truth.mean_speed
    return min(float(mu[k]) for k in cohort) + beyond_speed(told, cohort, policy)


# --- The baselines -----------------------------------------------------------------------------


@cache
def mean_reward(told: Story, k: int, tau_max: float | None) -> float:
    """Mean of 1 - tau / tau_max; no answer earns 0."""
    if tau_max is None:
        tau_max = max(answers(told), default=1.0)
    rewards = [0.0 if tau is None else 1 - tau / tau_max for _, tau in samples(told, k)]
    return sum(rewards) / len(rewards)


@cache
def reward_bonus(told: Story, k: int, policy: CSUCB | CSUCBQ, factor: float) -> float:
    """``scale`` times sqrt(factor ln t / z), or sqrt(2 s² L / z) with the variance of rewards."""
    asked = samples(told, k)
    z = len(asked)
    if policy.bonus == "published":
        return policy.scale * sqrt(factor * log(told.t) / z)
    tau_max = policy.tau_max_seconds or max(answers(told), default=1.0)
    rewards = [0.0 if tau is None else 1 - tau / tau_max for _, tau in asked]
    squares = sum((x - sum(rewards) / z) ** 2 for x in rewards)
    logarithm = log(told.t)
    if policy.bonus == "minimax":
        usual = sum(len(samples(told, j)) for j in range(NUM_CLIENTS)) / NUM_CLIENTS
        logarithm = max(log(usual / z), 0.0)
    return policy.scale * sqrt(2 * (squares + 0.02) / (z + 2) * logarithm / z)


def cs_ucb_value(told: Story, cohort: Cohort, policy: CSUCB) -> float:
    """Each client once, then the top m of mean + sqrt((m+1) ln t / z)."""

    def index(k: int) -> float:
        if not samples(told, k):
            return UNSEEN
        bonus = reward_bonus(told, k, policy, COHORT_SIZE + 1)
        return mean_reward(told, k, policy.tau_max_seconds) + bonus

    return sum(index(k) for k in cohort)


@cache
def queue(told: Story, k: int, rate: float) -> float:
    """Z <- max(0, Z + rate - chosen), once for each round that is over."""
    length = 0.0
    for t in range(1, told.t):
        length = max(0.0, length + rate - participated(told, k, t))
    return length


def cs_ucb_q_value(told: Story, cohort: Cohort, policy: CSUCBQ) -> float:
    """The top m of (1-b) y + b D with y = min(mean + sqrt(2 ln t / z), 1)."""

    def index(k: int) -> float:
        y = 1.0
        if samples(told, k):
            reward = mean_reward(told, k, policy.tau_max_seconds)
            y = min(reward + reward_bonus(told, k, policy, 2), 1.0)
        owed = queue(told, k, policy.fairness * COHORT_SIZE / NUM_CLIENTS)
        return (1 - policy.queue_weight) * y + policy.queue_weight * owed

    return sum(index(k) for k in cohort)


def rbcs_f_value(told: Story, cohort: Cohort, policy: RBCSF) -> float:
    """V max tau - sum Z, to be minimised; tau = max(c theta - alpha ||c||_{H^-1}, 0)."""
    latency = [optimistic_latency(told, k, policy) for k in cohort]
    owed = [queue(told, k, policy.beta) for k in cohort]
    return -(policy.patience * max(latency) - sum(owed))


@cache
def optimistic_latency(told: Story, k: int, policy: RBCSF) -> float:
    """The ridge regression of client k, solved from scratch."""
    dimension = 2 if told.view.features is None else 3
    H, b = policy.regularisation * np.eye(dimension), np.zeros(dimension)
    longest = 0.0
    for selection, feedback in told.history:
        answered = feedback.latency_seconds[feedback.answered].tolist()
        longest = max([longest, *answered])
        for row, client in enumerate(selection.clients.tolist()):
            if client == k:
                features = None if selection.features is None else selection.features[row]
                c = rbcs_f_context(told, k, selection.round, features)
                seconds = float(feedback.latency_seconds[row])
                H += np.outer(c, c)
                b += c * (seconds if feedback.answered[row] else longest)
    features = None if told.view.features is None else told.view.features[k]
    c = rbcs_f_context(told, k, told.t, features)
    theta = np.linalg.solve(H, b)
    width = sqrt(float(c @ np.linalg.solve(H, c)))
    return max(float(c @ theta) - policy.alpha * width, 0.0)


def rbcs_f_context(told: Story, k: int, t: int, features: Any) -> Any:
    first = [1.0] if features is None else features.tolist()
    return np.array([*first, float(participated(told, k, t - 1))])


def fastest_value(told: Story, cohort: Cohort, policy: FastestInExpectation) -> float:
    del policy
    assert told.view.truth is not None
    return -sum(float(told.view.truth.mean_latency_seconds[k]) for k in cohort)


@cache
def last_losses(told: Story) -> dict[int, float]:
    """The loss that each client last reported; the median of the others where it failed to."""
    last: dict[int, float] = {}
    for _, feedback in told.history:
        rows = list(zip(feedback.clients.tolist(), feedback.signals["loss"].tolist(), strict=True))
        last |= {k: loss for k, loss in rows if isfinite(loss)}
        silent = [k for k, loss in rows if not isfinite(loss)]
        others = [loss for k, loss in last.items() if k not in silent]
        last |= {k: median(others) for k in silent if others}
    return last


def power_of_choice_value(told: Story, cohort: Cohort, policy: PowerOfChoice) -> float:
    """The m highest losses, of all clients."""
    if policy.variant == "rpow-d":
        return sum(last_losses(told).get(k, UNSEEN) for k in cohort)
    assert told.view.ask_loss is not None
    batch_size = policy.batch_size if policy.variant == "cpow-d" else None
    asked = told.view.ask_loss(np.array(cohort), batch_size=batch_size).tolist()
    return sum(loss if isfinite(loss) else -UNSEEN for loss in asked)


@cache
def pisces_scores(told: Story, power: float, window: int) -> dict[int, float]:
    """n · loss / (mean of the last stalenesses + 1)^power of all that were tried.

    A failure costs half of what a client had, or half of the usual if it was never tried: the
    usual is a moving average of what the rounds brought.
    """
    utility: dict[int, float] = {}
    ages: dict[int, list[float]] = {}
    usual = 0.0
    for _, feedback in told.history:
        brought, failed = [], []
        for row, k in enumerate(feedback.clients.tolist()):
            if not feedback.answered[row]:
                failed.append(k)
                continue
            sizes = told.problem.num_samples
            samples = 1.0 if sizes is None else float(sizes[k])
            utility[k] = samples * float(feedback.signals["loss"][row])
            ages.setdefault(k, []).append(float(feedback.signals["staleness"][row]))
            brought.append(utility[k])
        if brought:
            mean = sum(brought) / len(brought)
            usual = 0.9 * usual + 0.1 * mean if usual > 0 else mean
        for k in failed:
            sizes = told.problem.num_samples
            samples = 1.0 if sizes is None else float(sizes[k])
            utility[k] = utility.get(k, usual or samples) / 2
    scores = {}
    for k, worth in utility.items():
        last = ages.get(k, [])[-window:]
        age = sum(last) / len(last) if last else 0.0
        scores[k] = worth / (age + 1) ** power
    return scores


def pisces_value(told: Story, cohort: Cohort, policy: Pisces) -> float:
    """Without exploration: the highest scores, and clients never tried only where none is left."""
    scores = pisces_scores(told, policy.staleness_power, policy.window)
    return sum(scores.get(k, -UNSEEN) for k in cohort)


# --- The comparison ----------------------------------------------------------------------------

GOLDEN: dict[str, tuple[Policy[Any], Callable[[Story, Cohort, Any], float]]] = {
    "bsfl": (BSFL(), bsfl_value),
    "bsfl, non-i.i.d.": (BSFL(alpha=3.0, beta=1.2, tau_min_seconds=0.05), bsfl_value),
    "bsfl, fast": (BSFL(alpha=0.3, beta=2.0), bsfl_value),
    "bsfl, windowed": (BSFL(alpha=0.5, estimator=WindowedMean(window=2)), windowed_value),
    "bsfl, discounted": (BSFL(alpha=0.5, estimator=DiscountedMean(discount=0.7)), discounted_value),
    "pause": (PAUSE(), pause_value),
    "pause, balanced": (
        PAUSE(alpha=4.0, beta=1.5, gamma=3.0, schedule=Geometric(eta=0.3), zeta=3.0),
        pause_value,
    ),
    "pause, clusters": (PAUSE(alpha=4.0, gamma=1.0, rho=0.05, tau_min_seconds=0.1), pause_value),
    "pause, spread": (PAUSE(alpha=10.0, rho=0.5), pause_value),
    **{
        f"bsfl, {bonus}": (BSFL(alpha=0.3, bonus=bonus, scale=2.0), spread_value)
        for bonus in ("variance", "minimax")
    },
    "bsfl, variance, tau_min": (
        BSFL(alpha=0.1, tau_min_seconds=0.05, bonus="variance"),
        spread_value,
    ),
    **{
        f"bsfl, {bonus}, {estimator.name}": (
            BSFL(alpha=0.2, estimator=estimator, bonus=bonus),
            spread_value,
        )
        for bonus in ("variance", "minimax")
        for estimator in (WindowedMean(window=3), DiscountedMean(discount=0.7))
    },
    "bsfl, half the bonus": (BSFL(alpha=0.3, scale=0.5), scaled_value),
    "pause, variance": (
        PAUSE(alpha=4.0, gamma=1.0, rho=0.05, zeta=3.0, bonus="variance"),
        spread_pause_value,
    ),
    "pause, minimax": (PAUSE(alpha=0.5, gamma=0.3, bonus="minimax"), spread_pause_value),
    "cs-ucb, variance": (CSUCB(bonus="variance"), cs_ucb_value),
    "cs-ucb, minimax": (CSUCB(tau_max_seconds=3.0, bonus="minimax", scale=3.0), cs_ucb_value),
    "cs-ucb, a tenth of the bonus": (CSUCB(scale=0.1), cs_ucb_value),
    "cs-ucb-q, variance": (CSUCBQ(queue_weight=0.3, bonus="variance"), cs_ucb_q_value),
    "genie": (Genie(), genie_value),
    "genie, pause's reward": (
        Genie(alpha=4.0, beta=2.0, gamma=2.0, schedule=Geometric(eta=0.2)),
        genie_value,
    ),
    "genie, clusters": (Genie(alpha=4.0, gamma=1.0, rho=0.04), genie_value),
    "cs-ucb": (CSUCB(), cs_ucb_value),
    "cs-ucb, tau_max": (CSUCB(tau_max_seconds=3.0), cs_ucb_value),
    "cs-ucb-q": (CSUCBQ(), cs_ucb_q_value),
    "cs-ucb-q, fair": (CSUCBQ(fairness=1.0, queue_weight=0.3), cs_ucb_q_value),
    "cs-ucb-q, fast": (CSUCBQ(fairness=0.3, queue_weight=0.2), cs_ucb_q_value),
    "rbcs-f": (RBCSF(), rbcs_f_value),
    "rbcs-f, fair": (RBCSF(beta=0.4, patience=5.0, regularisation=0.5, alpha=0.4), rbcs_f_value),
    "power-of-choice": (PowerOfChoice(), power_of_choice_value),
    "pow-d": (PowerOfChoice(variant="pow-d"), power_of_choice_value),
    "cpow-d": (PowerOfChoice(variant="cpow-d", num_candidates=7), power_of_choice_value),
    "fastest": (FastestInExpectation(), fastest_value),
    "pisces": (Pisces(exploration=0.0, exploration_floor=0.0), pisces_value),
    "pisces, other powers": (
        Pisces(exploration=0.0, exploration_floor=0.0, staleness_power=1.5, window=2),
        pisces_value,
    ),
}


@pytest.mark.parametrize("label", GOLDEN)
def test_cohort_is_the_best_by_the_papers_equations(label: str) -> None:
    policy, value = GOLDEN[label]
    for seed in range(INSTANCES):
        told = story(seed, data=seed % 2 > 0, features=seed % 4 > 1)

        def worth(cohort: Cohort, told: Story = told) -> float:
            return value(told, cohort, policy) if cohort else 0.0

        state = replay(policy, told.problem, told.history)
        assert_cohort_is_optimal(policy, state, told.view, worth, seed=seed)


def test_every_policy_that_optimises_something_is_golden() -> None:
    """Those that maximise nothing but follow steps are worked by hand in a file of their own."""
    aimless = {"all-clients"}
    steps = {
        "test_mab_cs": {"fedcs", "extended-fedcs", "naive-mab-cs", "element-wise-mab-cs"},
        "test_fedsuv": {"fedsuv"},
        "test_oort": {"oort"},
        "test_divfl": {"divfl"},
        "test_exploring": {"exploring"},
        "test_optimal_sampling": {"optimal-sampling"},
        "test_fedbuff": {"fedbuff", "fedasync"},
        "test_fedcor": {"fedcor"},
        "test_hics_fl": {"hics-fl"},
        "test_optimistic_candidates": set[str](),  # that blocks choose what plain indices choose
        "test_pisces": set[str](),  # how it explores, and its credits
        "test_refl": {"refl"},
        "test_tempo": {"tempo"},
        "test_tempo_in_its_model": {"tempo"},
        "test_safa": {"safa"},
        "test_tifl": {"tifl"},
        "test_cocs": {"cocs"},
        "test_cucb": {"cucb"},
        "test_lifted": {"lifted"},
        "test_linucb": {"linucb"},
        "test_oracle": {"oracle"},
        "test_random_edges": {"random"},
        "test_sampling_bins": {"clustered-sampling"},
        "test_similar_groups": {"clustered-sampling"},
        "test_without_rounds": set[str](),  # what several of them do where there are none
    }
    folder = Path(__file__).parents[1] / "policies"
    assert {path.stem for path in folder.glob("test_*.py")} == set(steps)
    maximising = {type(policy).name for policy, _ in GOLDEN.values()}
    assert maximising == set(POLICIES) - aimless - set().union(*steps.values())


def test_a_round_of_bsfl_worked_by_hand() -> None:
    """K = 4, m = 2, alpha = 1, beta = 1, tau_min = 0.1 s, in round 4.

    client  latencies        c  mean speed  radius = sqrt(3 ln 3 / c)  ucb    g = 1/2 - c/4
    0       0.1 0.1 0.1      3  1           1.0481                     2.0481  -0.25
    1       0.2              1  0.5         1.8154                     2.3154   0.25
    2       1.0              1  0.1         1.8154                     1.9154   0.25
    3       0.4              1  0.25        1.8154                     2.0654   0.25

    {1, 3}: 2.0654 + 0.25 = 2.3154; {2, .}: 1.9154 + 0.25 = 2.1654; {0, .}: 2.0481 + 0 at most.
    """
    rounds = [([0, 1], [0.1, 0.2]), ([0, 2], [0.1, 1.0]), ([0, 3], [0.1, 0.4])]
    assert choice(BSFL(alpha=1.0, tau_min_seconds=0.1), rounds) == [1, 3]
    # With client 1 away, {2, 3} is worth 2.1654 and {0, 3} only 2.0481.
    assert choice(BSFL(alpha=1.0, tau_min_seconds=0.1), rounds, away=1) == [2, 3]
    # With a tenth of the weight on generalisation 1.9404 < 2.0481.
    assert choice(BSFL(alpha=0.1, tau_min_seconds=0.1), rounds, away=1) == [0, 3]


def test_a_round_of_pause_worked_by_hand() -> None:
    """As above with alpha = 0.1, gamma = 1, eta = ln 2, so that p = 2^-c.

    client  ucb      p
    0       2.0481   0.125
    1       2.3154   0.5
    2       1.9154   0.5
    3       2.0654   0.5

    Client 1 away: {2, 3} 1.9154 + 0.025 + 0.5 = 2.4404; {0, 3} 2.0481 + 0.3125 = 2.3606.
    Were 2 and 3 in one cluster and alpha rho = 0.1, {2, 3} would fall to 2.3404.
    """
    rounds = [([0, 1], [0.1, 0.2]), ([0, 2], [0.1, 1.0]), ([0, 3], [0.1, 0.4])]
    policy = PAUSE(
        alpha=0.1, beta=1.0, gamma=1.0, schedule=Geometric(eta=log(2)), tau_min_seconds=0.1
    )
    assert choice(policy, rounds, away=1) == [2, 3]
    assert choice(replace(policy, rho=1.0), rounds, away=1) == [0, 3]


def test_chances_of_hics_fl_worked_by_hand() -> None:
    """C = 2, T = 1, lambda = 10, M = 2, gamma = 4, in round 50 of 200, so gamma_t = 3.

    client  change of biases  softmax      H       data
    0       ln 3, 0           0.75, 0.25   0.5623  1
    1       0, ln 3           0.25, 0.75   0.5623  2
    2       1, 1              0.5, 0.5     0.6931  1
    3       2 ln 3, 0         0.9, 0.1     0.3251  5

    Distances: 01 pi/2 + 0 = 1.571; 02 and 12 pi/4 + 1.308 = 2.093; 03 0 + 2.372; 13 3.943; 23
    4.465. Ward's method joins 0 and 1, then 2 to them (2.240 against 3.646 for 3). The clusters
    have mean entropies of 0.6059 and 0.3251, so they are drawn like e^1.8178 to e^0.9753: 0.699
    and 0.301. In the first 1/4, 2/4 and 1/4 of the data are those of clients 0, 1 and 2.
    """
    policy = HiCSFL(temperature=1.0, num_clusters=2)
    problem = Problem(
        num_clients=4, cohort_size=4, num_classes=2, num_samples=np.array([1, 2, 1, 5])
    )
    clients = np.arange(4)
    biases = np.array([[log(3), 0.0], [0.0, log(3)], [1.0, 1.0], [2 * log(3), 0.0]])
    answer = Feedback(round=1, clients=clients, latency_seconds=np.ones(4), output_bias=biases)
    state = replay(policy, problem, [(Selection(round=1, clients=clients), answer)])
    view = RoundView(round=50, cohort_size=1, available=np.ones(4, dtype=np.bool_))
    scores = policy.scores(state, view)
    np.testing.assert_allclose(scores["entropy"], [0.5623, 0.5623, 0.6931, 0.3251], atol=5e-5)
    np.testing.assert_allclose(scores["chance"], [0.1748, 0.3495, 0.1748, 0.3010], atol=5e-5)


def test_a_round_of_divfl_worked_by_hand() -> None:
    """Updates at 0, 1, 2, 2.5 and 10 on a line, m = 2.

    client  sum of distances to it  with client 2
    0       15.5                    0 + 1 + 0 + 0.5 + 8 = 9.5
    1       12.5                    1 + 0 + 0 + 0.5 + 8 = 9.5
    2       11.5
    3       12                      2 + 1 + 0 + 0 + 7.5 = 10.5
    4       34.5                    2 + 1 + 0 + 0.5 + 0 = 3.5
    """
    policy = DivFL(sketch_size=1)
    clients = np.arange(5)
    answer = Feedback(
        round=1,
        clients=clients,
        latency_seconds=np.ones(5),
        sketches=np.array([[0.0], [1.0], [2.0], [2.5], [10.0]]),
    )
    problem = Problem(num_clients=5, cohort_size=2)
    state = replay(policy, problem, [(Selection(round=1, clients=clients), answer)])
    view = RoundView(round=2, cohort_size=2, available=np.ones(5, dtype=np.bool_))
    assert policy.select(state, view, stream(0, "golden")).clients.tolist() == [2, 4]
    gain = policy.scores(state, view)["gain"]
    np.testing.assert_allclose(gain[[2, 4]], [(34.5 - 11.5) / 5, (11.5 - 3.5) / 5])


def test_a_round_of_fedcor_worked_by_hand() -> None:
    """X = (2, 1, 0)', s = 1, p = (1/4, 1/4, 1/2), m = 2.

    S = [[5, 2, 0], [2, 2, 0], [0, 0, 1]]. Gains: 7/4 / sqrt 5 = 0.783, 4/4 / sqrt 2 = 0.707, 1/2.
    Given client 0, S_11 is 2 - 4/5 = 1.2, and client 1 gains 1.2/4 / sqrt 1.2 = 0.274: {0, 2}.
    Had client 0 been chosen once, with beta = 1/2 it would gain 0.391, client 1 comes first, S_00
    is then 5 - 4/2 = 3, and client 0 gains 1/2 · 3/4 / sqrt 3 = 0.217: {1, 2}.
    """
    policy = FedCor(noise=1.0, discount=0.5, dimension=1)
    problem = Problem(num_clients=3, cohort_size=2, num_samples=np.array([1, 1, 2]))
    state = policy.init(problem)
    state.embedding[:, 0], state.tried[:] = [2.0, 1.0, 0.0], True
    view = RoundView(round=17, cohort_size=2, available=np.ones(3, dtype=np.bool_))
    assert policy.select(state, view, stream(0, "golden")).clients.tolist() == [0, 2]
    gain = policy.scores(state, view)["gain"]
    np.testing.assert_allclose(gain, [7 / 4 / sqrt(5), 0.3 / sqrt(1.2), 0.5])
    state.chosen[0] = 1
    assert policy.select(state, view, stream(0, "golden")).clients.tolist() == [1, 2]
    gain = policy.scores(state, view)["gain"]
    np.testing.assert_allclose(gain, [3 / 8 / sqrt(3), 1 / sqrt(2), 0.5])


def test_a_round_of_bsfl_with_variances_worked_by_hand() -> None:
    """K = 4, m = 2, beta = 1, tau_min = 0.1 s, in round 4.

    client  speeds       c  mean   squares  s²      sqrt(2 s² ln 3 / c)  index   g = 1/2 - c/4
    0       1 0.5 1      3  0.8333 0.1667   0.0373  0.1654               0.9987  -0.25
    1       0.5          1  0.5    0        0.0067  0.1210               0.6210   0.25
    2       0.1          1  0.1    0        0.0067  0.1210               0.2210   0.25
    3       0.25         1  0.25   0        0.0067  0.1210               0.3710   0.25

    {0, 1}: 0.6210 + 0 = 0.6210; {1, 3}: 0.3710 + 0.25 alpha, which is more if alpha > 1.
    The mean count is 1.5, so that the minimax bonus of client 0 is 0, and that of the others
    sqrt(2 · 0.0067 · ln 1.5) = 0.0735.
    """
    rounds = [([0, 1], [0.1, 0.2]), ([0, 2], [0.2, 1.0]), ([0, 3], [0.1, 0.4])]
    policy = BSFL(alpha=1.1, tau_min_seconds=0.1, bonus="variance")
    assert choice(policy, rounds) == [1, 3]
    assert choice(replace(policy, alpha=0.9), rounds) == [0, 1]
    view = RoundView(round=4, cohort_size=2, available=np.ones(4, dtype=np.bool_))
    by_hand: dict[Bonus, list[float]] = {
        "variance": [0.99870, 0.62103, 0.22103, 0.37103],
        "minimax": [0.83333, 0.57353, 0.17353, 0.32353],
    }
    for bonus, expected in by_hand.items():
        policy = replace(policy, bonus=bonus)
        state = replay(policy, Problem(num_clients=4, cohort_size=2), told_by_hand(rounds))
        np.testing.assert_allclose(policy.scores(state, view)["score"], expected, atol=1e-5)


def told_by_hand(rounds: list[tuple[list[int], list[float]]]) -> list[tuple[Selection, Feedback]]:
    """The history of the hand-worked problem."""
    history = []
    for t, (clients, seconds) in enumerate(rounds, start=1):
        asked = np.array(clients)
        answer = Feedback(round=t, clients=asked, latency_seconds=np.array(seconds))
        history.append((Selection(round=t, clients=asked), answer))
    return history


def choice(
    policy: Policy[Any], rounds: list[tuple[list[int], list[float]]], away: int | None = None
) -> list[int]:
    """What a policy takes in round 4 of the hand-worked problem."""
    problem = Problem(num_clients=4, cohort_size=2, clusters=np.array([0, 1, 2, 2]))
    state = replay(policy, problem, told_by_hand(rounds))
    available = np.arange(4) != (-1 if away is None else away)
    view = RoundView(round=4, cohort_size=2, available=available)
    chosen: list[int] = policy.select(state, view, stream(0, "golden")).clients.tolist()
    return chosen
