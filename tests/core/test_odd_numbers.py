"""What no float can hold, complex numbers, dates and the like: an error that says what to do."""

import datetime
import warnings
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from fedmuster import POLICIES, Feedback, Problem, Selector, Truth
from fedmuster.core.edges import EdgeView
from fedmuster.core.errors import DataError, FedmusterError, FeedbackError
from fedmuster.testing.playing import nan_fault

HUGE = 10**400


def label(value: object) -> str:
    return repr(value)[:30]


ODD: tuple[Any, ...] = (
    [HUGE] * 4,
    [object] * 4,
    ["a"] * 4,
    [None] * 4,
    [[1], [2, 3], 1, 1],
    np.ones(4) * 1j,
    np.array(["2020-01-01"] * 4, dtype="datetime64[D]"),
    "abcd",
    {1, 2},
    HUGE,
)
PER_CLIENT = {
    "num_samples": np.full(4, 5),
    "quality": np.ones(4),
    "clusters": np.zeros(4, dtype=np.int64),
    "attributes": np.ones((4, 2)),
    "expected_seconds": np.ones(4),
}


def selector(**more: Any) -> Selector[Any]:
    return Selector("bsfl", Problem(num_clients=4, cohort_size=2, **more))


def refused(call: Callable[[], object], error: type[FedmusterError] = DataError) -> None:
    """Nor may a warning be all that is heard, such as numpy's at complex numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(error):
            call()


@pytest.mark.parametrize("odd", ODD, ids=label)
@pytest.mark.parametrize("name", PER_CLIENT)
class TestProblem:
    def test_it_is_refused(self, name: str, odd: Any) -> None:
        refused(lambda: Problem(num_clients=4, cohort_size=2, **{name: odd}))

    def test_so_it_is_of_joining_clients(self, name: str, odd: Any) -> None:
        one = selector(**{name: PER_CLIENT[name]})
        refused(lambda: one.join(4, **{name: odd}))
        assert one.problem.num_clients == 4


@pytest.mark.parametrize("odd", ODD, ids=label)
@pytest.mark.parametrize(
    "name", ["count", "available", "cohort_size", "edges", "privacy_left", "ask_loss", "forecast"]
)
def test_select_refuses_it(name: str, odd: Any) -> None:
    one = selector()
    refused(lambda: one.select(**{name: odd}))
    assert one.round == 1
    assert len(one.select().clients) == 2


@pytest.mark.parametrize("odd", ODD, ids=label)
def test_features_truth_and_edges_refuse_it(odd: Any) -> None:
    refused(lambda: selector(num_features=2).select(features=odd))
    refused(lambda: Selector("fastest", Problem(num_clients=4, cohort_size=2)).select(truth=odd))
    for name in ("cost", "budget"):
        told: dict[str, Any] = {"coverage": np.ones((4, 1), bool), "cost": np.ones(4)}
        refused(partial(EdgeView, **{**told, "budget": np.ones(1), name: odd}))


@pytest.mark.parametrize("count", [HUGE, 10**15, -1, 0, 1.5, "x", None, True], ids=label)
def test_counts_that_no_server_can_hold_are_refused(count: Any) -> None:
    refused(lambda: selector().join(count))
    refused(lambda: Problem(num_clients=count, cohort_size=1))
    refused(lambda: Problem(num_clients=4, cohort_size=count))
    if count is not None:
        refused(lambda: selector().select(count=count))
        refused(lambda: selector().select(cohort_size=count))


@pytest.mark.parametrize(
    "answer",
    ["abc", [HUGE] * 4, None, np.ones(4) * 1j, [[1], [2, 3]], ["a"] * 4, [datetime.date.max] * 4],
    ids=label,
)
@pytest.mark.parametrize("policy", ["fedcor", "power-of-choice:variant=pow-d"])
def test_losses_that_are_no_numbers_are_refused(policy: str, answer: Any) -> None:
    one: Selector[Any] = Selector(policy, Problem(num_clients=4, cohort_size=2))
    refused(lambda: one.select(ask_loss=lambda clients, batch_size=None: answer))


@pytest.mark.parametrize(
    "answer",
    [3, None, (1, 2), "ab", (np.ones(4, bool),), (np.ones(3, bool),) * 2, ([[1], [2, 3]],) * 2],
    ids=label,
)
def test_forecasts_that_are_no_pair_of_flags_are_refused(answer: Any) -> None:
    one: Selector[Any] = Selector("refl", Problem(num_clients=4, cohort_size=2))
    clients = one.select().clients  # it asks when it knows how long a round takes
    one.observe(Feedback(round=1, clients=clients, latency_seconds=np.ones(2)))
    refused(lambda: one.select(forecast=lambda window: answer))


@pytest.mark.parametrize("number", [HUGE, Fraction(HUGE), -HUGE], ids=["int", "fraction", "below"])
def test_an_answer_beyond_all_floats_costs_its_own_client_alone(number: Any) -> None:
    for column in ("latency_seconds", "signals"):
        one = selector()
        clients = one.select().clients
        told: dict[str, Any] = {"latency_seconds": [1.0, 2.0], "signals": {"loss": [1.0, 2.0]}}
        rows = [1.0, number]
        told[column] = {"loss": rows} if column == "signals" else rows
        report = one.observe(Feedback(round=1, clients=clients, **told))
        assert (report.accepted, sum(report.refused.values())) == (1, 1)
        assert report.not_completed.tolist() == clients[1:].tolist()


@pytest.mark.parametrize("odd", [[HUGE], "abc", None, object, 3], ids=label)
def test_what_is_no_feedback_is_refused(odd: Any) -> None:
    one = selector()
    one.select()
    refused(lambda: one.observe(odd), FeedbackError)


@pytest.mark.parametrize("policy", ["rbcs-f", "linucb"])
class TestLinearModels:
    def play(self, policy: str, size: float, *, rounds: int = 150, seed: int = 0) -> Selector[Any]:
        problem = Problem(num_clients=8, cohort_size=3, num_features=2)
        one: Selector[Any] = Selector(policy, problem, seed=seed)
        rng = np.random.default_rng(seed)
        for _ in range(rounds):
            features = rng.standard_normal((8, 2))
            features[rng.random(8) < 0.3] = size * rng.choice([-1.0, 1.0], 2)
            clients = one.select(features=features).clients
            scores = one.scores()
            one.observe(
                Feedback(
                    round=one.round,
                    clients=clients,
                    latency_seconds=10 ** rng.uniform(-3, 6, 3),
                    completed=rng.random(3) < 0.8,
                )
            )
            assert np.isfinite(scores["expected_seconds" if policy == "rbcs-f" else "score"]).all()
        return one

    @pytest.mark.parametrize("size", [1e3, 1e6])
    @pytest.mark.parametrize("seed", range(5))
    def test_features_up_to_a_million_leave_no_nan(
        self, policy: str, size: float, seed: int
    ) -> None:
        assert nan_fault(self.play(policy, size, seed=seed).state) is None

    @pytest.mark.parametrize("size", [1.1e6, 1e8, 1e20, 1e160, 1e307])
    def test_larger_ones_are_refused_by_client_and_the_federation_goes_on_without_it(
        self, policy: str, size: float
    ) -> None:
        one: Selector[Any] = Selector(policy, Problem(num_clients=8, cohort_size=3, num_features=2))
        features = np.ones((8, 2))
        features[5, 1] = size
        with pytest.raises(DataError, match="client 5"):
            one.select(features=features)
        clients = one.select(features=features, available=np.arange(8) != 5).clients
        assert len(clients) == 3
        for name, values in one.scores().items():
            assert np.isfinite(np.delete(values, 5)).all(), name
        one.observe(Feedback(round=1, clients=clients, latency_seconds=np.ones(3)))
        assert nan_fault(one.state) is None


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_scores_of_a_round_in_which_clients_joined_are_those_of_its_choice(name: str) -> None:
    policy = POLICIES[name]()
    told: dict[str, Any] = {column: PER_CLIENT[column][[0] * 8] for column in PER_CLIENT}
    one: Selector[Any] = Selector(
        policy, Problem(num_clients=8, cohort_size=2, num_features=2, num_classes=2, **told)
    )
    seen: dict[str, Any] = {
        "features": np.ones((8, 2)),
        "ask_loss": lambda clients, batch_size=None: np.ones(len(clients)),
    }
    if policy.oracle:
        seen["truth"] = Truth(mean_latency_seconds=np.ones(8), mean_speed=np.ones(8))
    for _ in range(3):
        clients = one.select(**seen).clients
        before = one.scores()
        if one.round == 3:
            break
        losses = {"loss": np.ones(len(clients))}
        one.observe(
            Feedback(
                round=one.round,
                clients=clients,
                latency_seconds=np.ones(len(clients)),
                signals=losses,
            )
        )
    one.join(3, **{column: values[[0] * 3] for column, values in PER_CLIENT.items()})
    after = one.scores()
    assert after.keys() == before.keys()
    for column, values in after.items():
        np.testing.assert_array_equal(values, np.append(before[column], [np.nan] * 3))
