"""FedSUV's simulation: validity is exact, attributes are linear, the truth is that of the draws."""

import tomllib

import numpy as np
import pytest
import tomli_w
from scipy import stats

from fedmuster.core.config import named, to_table
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import Selection
from fedmuster.core.streams import stream
from fedmuster.worlds.laws.latency import normal_cdf
from fedmuster.worlds.validity_utility import ValidityLatency, ValidityUtilityWorld

ROUNDS = 400
LEVEL = 1e-6


def world(**fields: object) -> ValidityUtilityWorld:
    table = {"num_clients": 300, "cohort_size": 5, **fields}
    kinds = {"validity-utility": ValidityUtilityWorld}
    return named(kinds, {"name": "validity-utility", **table}, key=(), what="world")


def test_the_papers_setting_is_the_default_and_survives_toml() -> None:
    default = ValidityUtilityWorld()
    assert (default.num_clients, default.cohort_size) == (2500, 20)
    assert default.deadline_seconds == 100.0
    other = world(num_attributes=2, attribute_noise=0.1, utility_sd=0.0, fastest_seconds=5)
    for config in (default, other):
        text = tomli_w.dumps(to_table(config))
        kinds = {config.name: ValidityUtilityWorld}
        assert named(kinds, tomllib.loads(text), key=(), what="world") == config


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_clients": 0}, "num_clients = 0, expected an integer >= 1"),
        ({"num_attributes": 1}, "num_attributes = 1, expected an integer in"),
        ({"attribute_noise": -0.1}, "attribute_noise"),
        ({"utility_sd": float("nan")}, "utility_sd"),
        ({"fastest_seconds": 0.0}, "fastest_seconds"),
        ({"fastest_seconds": 100.0}, "a number > 0 and < deadline_seconds"),
    ],
)
def test_refuses(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        world(**fields)


def test_needs_a_deadline() -> None:
    with pytest.raises(ConfigError, match="without a deadline everybody is in time"):
        ValidityUtilityWorld(deadline_seconds=None)


def test_expectations_are_uniform_on_the_square() -> None:
    columns = ValidityUtilityWorld().start(3).columns
    for name in ("validity", "utility"):
        assert stats.kstest(columns[name], "uniform").pvalue > LEVEL
    dependence = stats.pearsonr(columns["validity"], columns["utility"])
    assert dependence.pvalue > LEVEL


@pytest.mark.parametrize("num_attributes", [2, 4, 6])
def test_attributes_tell_validity_and_utility_linearly(num_attributes: int) -> None:
    run = world(num_attributes=num_attributes).start(1)
    attributes = run.problem.attributes
    assert attributes is not None
    assert attributes.shape == (300, num_attributes)
    expected = np.column_stack([run.columns["validity"], run.columns["utility"]])
    mixture, *_ = np.linalg.lstsq(expected, attributes)
    np.testing.assert_allclose(expected @ mixture, attributes, atol=1e-12)
    np.testing.assert_allclose(mixture @ mixture.T, np.eye(2), atol=1e-12)  # well conditioned
    np.testing.assert_allclose(attributes @ mixture.T, expected, atol=1e-12)


def test_noise_hides_part_of_it_once_and_for_all() -> None:
    plain, noisy = world().start(1), world(attribute_noise=0.5).start(1)
    assert plain.problem.attributes is not None
    assert noisy.problem.attributes is not None
    noise = noisy.problem.attributes - plain.problem.attributes
    assert stats.kstest(noise.ravel() / 0.5, "norm").pvalue > LEVEL
    np.testing.assert_array_equal(plain.columns["validity"], noisy.columns["validity"])


def test_clients_are_in_time_as_often_as_their_validity_says() -> None:
    run = world(utility_sd=0.1).start(2)
    in_time, utility = np.zeros(300), np.zeros((ROUNDS, 300))
    for t in range(1, ROUNDS + 1):
        drawn = run.realise(t)
        everyone = Selection(round=t, clients=np.arange(300))
        outcome = drawn.play(everyone)
        in_time += outcome.feedback.answered
        np.testing.assert_array_equal(outcome.feedback.answered, drawn.latency_seconds <= 100.0)
        assert outcome.round_seconds <= 100.0
        utility[t - 1] = drawn.signals["utility"]
    validity = run.columns["validity"]
    z = (in_time - ROUNDS * validity) / np.sqrt(ROUNDS * validity * (1 - validity))
    assert 2 * 300 * normal_cdf(-np.abs(z).max(keepdims=True))[0] > LEVEL
    residual = (utility - run.columns["utility"]) / 0.1
    assert stats.kstest(residual.ravel()[::7], "norm").pvalue > LEVEL


def test_utility_reaches_those_who_answer() -> None:
    drawn = world(utility_sd=0.0).start(2).realise(1)
    cohort = Selection(round=1, clients=np.arange(0, 300, 3))
    feedback = drawn.play(cohort).feedback
    answered = feedback.answered
    assert 0 < answered.sum() < len(answered)
    truth = world(utility_sd=0.0).start(2).columns["utility"][cohort.clients]
    np.testing.assert_array_equal(feedback.signals["utility"][answered], truth[answered])


def test_the_extremes_never_and_always_answer() -> None:
    law = ValidityLatency(validity=np.array([0.0, 1.0]), deadline=10.0, floor=1.0)
    drawn = np.array([law.draw(stream(seed, "x")) for seed in range(2_000)])
    assert (drawn[:, 0] > 10.0).all()
    assert (drawn[:, 0] <= 20.0).all()
    assert (drawn[:, 1] >= 1.0).all()
    assert (drawn[:, 1] <= 10.0).all()


@pytest.mark.parametrize("deadline", [0.5, 1.0, 4.0, 10.0, 15.0, 20.0, np.inf])
def test_expectations_by_integration(deadline: float) -> None:
    validity = np.array([0.0, 0.3, 1.0])
    law = ValidityLatency(validity=validity, deadline=10.0, floor=1.0)
    seconds = np.linspace(1.0, 20.0, 1_900_001)
    middle = 0.5 * (seconds[1:] + seconds[:-1])
    early = middle < 10.0
    counted = middle <= deadline
    for k, v in enumerate(validity):
        density = np.where(early, v / 9.0, (1 - v) / 10.0) * 1e-5
        assert law.mean_seconds()[k] == pytest.approx(np.sum(density * middle), rel=1e-6)
        inverse = np.sum(density[counted] / middle[counted])
        assert law.mean_inverse(deadline)[k] == pytest.approx(inverse, rel=1e-4, abs=1e-12)


def test_dropping_out_lowers_validity() -> None:
    steady, dropping = world().start(1), world(dropout=0.25).start(1)
    np.testing.assert_allclose(
        dropping.columns["validity"], 0.75 * steady.columns["validity"], rtol=1e-12
    )
    np.testing.assert_allclose(
        dropping.realise(1).truth.mean_speed, 0.75 * steady.realise(1).truth.mean_speed
    )


def test_the_truth_is_what_a_policy_sees_on_average() -> None:
    run = world().start(4)
    seen = np.mean(
        [
            np.where((tau := run.realise(t).latency_seconds) <= 100.0, 1.0 / tau, 0.0)
            for t in range(1, 2_001)
        ],
        axis=0,
    )
    truth = run.realise(1).truth
    assert abs(seen - truth.mean_speed).max() < 0.03  # 1/tau reaches 1, and has a heavy tail
    assert seen.mean() == pytest.approx(truth.mean_speed.mean(), rel=0.02)
