"""Marginal likelihood and its gradient, and what fitting by it finds."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from fedmuster.core.records import FloatArray
from fedmuster.policies.fedsuv.gaussian_process import GaussianProcess, Tally
from fedmuster.policies.fedsuv.kernel import Family, Sample, climb, log_marginal_likelihood

FAMILIES = pytest.mark.parametrize("family", ["squared-exponential", "matern-5/2"])


def observations(seed: int = 6) -> tuple[Sample, FloatArray, FloatArray]:
    """A sample of 30 clients, some observed several times; the same one by one."""
    rng = np.random.default_rng(seed)
    attributes, tally = rng.normal(size=(30, 3)), Tally.init(30)
    rows, values = [], []
    for _ in range(6):
        clients = rng.permutation(30)[:15]
        value = rng.normal(size=15)
        tally.add(clients, value)
        rows.append(attributes[clients])
        values.append(value)
    sample = tally.sample(attributes, 0.0, 1.0, at_most=30)
    assert sample.count.max() > 1
    return sample, np.concatenate(rows), np.concatenate(values)


@FAMILIES
def test_likelihood_and_gradient_are_those_of_scikit_learn_on_single_observations(
    family: Family,
) -> None:
    sample, rows, values = observations()
    lengths, signal, noise = np.array([0.5, 1.0, 2.0]), 1.7, 0.3
    shape = RBF(lengths) if family == "squared-exponential" else Matern(lengths, nu=2.5)
    kernel = ConstantKernel(signal) * shape + WhiteKernel(noise)
    peer = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(rows, values)
    expected, (by_signal, *by_lengths, by_noise) = peer.log_marginal_likelihood(
        kernel.theta, eval_gradient=True
    )
    with np.errstate(divide="ignore"):
        point = np.log([*lengths, signal, 0.0, noise])
    value, gradient = log_marginal_likelihood(family, point, sample)
    assert value == pytest.approx(expected, rel=1e-10)
    np.testing.assert_allclose(gradient, [*by_lengths, by_signal, 0.0, by_noise], rtol=1e-8)


@FAMILIES
def test_the_gradient_is_that_of_finite_differences(family: Family) -> None:
    sample, _, _ = observations()
    point = np.log([0.5, 1.0, 2.0, 1.7, 0.4, 0.3])
    _, gradient = log_marginal_likelihood(family, point, sample)
    for axis, step in enumerate(1e-5 * np.eye(6)):
        higher, _ = log_marginal_likelihood(family, point + step, sample)
        lower, _ = log_marginal_likelihood(family, point - step, sample)
        assert gradient[axis] == pytest.approx((higher - lower) / 2e-5, rel=1e-6, abs=1e-6)


def test_climbing_finds_the_top_and_stays_within_bounds() -> None:
    def hill(point: FloatArray) -> tuple[float, FloatArray]:
        away = point - [1.0, -9.0, 2.0]
        return -float(away @ away), -2.0 * away

    lower = np.array([-3.0, -3.0, -3.0])
    top = climb(hill, np.array([-2.0, 0.0, 1.0]), lower, 5.0)
    np.testing.assert_allclose(top, [1.0, -3.0, 2.0], atol=0.02)


def test_squared_deviations_survive_a_large_offset() -> None:
    rng = np.random.default_rng(8)
    values, tally = 1e9 + rng.normal(size=(50, 4)), Tally.init(4)
    for row in values:
        tally.add(np.arange(4), row)
    np.testing.assert_allclose(tally.mean, values.mean(axis=0), rtol=1e-15)
    np.testing.assert_allclose(tally.spread, 50 * values.var(axis=0), rtol=1e-6)
    location, scale = tally.location_and_scale()
    assert location == pytest.approx(values.mean(), rel=1e-15)
    assert scale == pytest.approx(values.std(), rel=1e-6)


def test_a_large_sample_is_thinned_evenly() -> None:
    tally = Tally.init(1000)
    tally.add(np.arange(0, 1000, 2), np.arange(0.0, 1000.0, 2))
    sample = tally.sample(np.arange(1000.0)[:, None], 10.0, 2.0, at_most=100)
    np.testing.assert_array_equal(sample.attributes[:, 0], np.arange(0, 1000, 10))
    np.testing.assert_allclose(sample.mean, (np.arange(0, 1000, 10) - 10.0) / 2.0)


def learned(truth: FloatArray, attributes: FloatArray, noise: float) -> tuple[FloatArray, ...]:
    """Length-scales, then mean, deviation and noise in units of the values; 30 rounds of 20."""
    rng = np.random.default_rng(9)
    process = GaussianProcess()
    state = process.init(len(truth), attributes)
    for _ in range(30):
        clients = rng.permutation(len(truth))[:20]
        values = truth[clients] + noise * rng.normal(size=20)
        process.observe(state, clients, values)
    deviation_of_noise = np.sqrt(state.hyper.noise) * state.hyper.scale
    return (state.hyper.length_scales, *process.posterior(state), deviation_of_noise)


def test_attributes_that_matter_get_shorter_length_scales() -> None:
    attributes = np.random.default_rng(10).normal(size=(400, 3))
    truth = 5.0 * np.sin(2.0 * attributes[:, 1])
    lengths, mean, deviation, noise = learned(truth, attributes, noise=0.5)
    assert lengths[1] < 1.5
    assert min(lengths[0], lengths[2]) > 3 * lengths[1]
    assert noise == pytest.approx(0.5, rel=0.15)
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.5
    assert np.mean(np.abs(mean - truth) < 2 * deviation) > 0.9


def test_attributes_that_tell_nothing_do_no_harm() -> None:
    rng = np.random.default_rng(11)
    attributes = rng.normal(size=(400, 3))
    # Where clients do not differ, nearly all is noise, and near the average is everyone.
    _, mean, deviation, noise = learned(np.full(400, 100.0), attributes, noise=2.0)
    assert noise == pytest.approx(2.0, rel=0.15)
    assert np.sqrt(np.mean((mean - 100.0) ** 2)) < 1.0
    assert np.mean(np.abs(mean - 100.0) < 2 * deviation) > 0.9
    # Where they do, but not by their attributes, nothing is concluded of one from another.
    truth = rng.normal(100.0, 2.0, size=400)
    _, mean, deviation, noise = learned(truth, attributes, noise=1.0)
    assert noise == pytest.approx(1.0, rel=0.2)
    assert np.mean(np.abs(mean - truth) < 2 * deviation) > 0.9


def test_fits_come_when_observations_have_doubled() -> None:
    process, rng = GaussianProcess(), np.random.default_rng(12)
    state, fits = process.init(50, rng.normal(size=(50, 2))), []
    for number in range(1, 34):
        before = state.hyper.length_scales.copy()
        process.observe(state, np.array([number]), rng.normal(size=1))
        if (state.hyper.length_scales != before).any():
            fits.append(number)
            assert int(state.fitted) == number
    assert fits[-3:] == [8, 16, 32]


def test_without_fitting_values_and_hyperparameters_stay_as_they_are() -> None:
    process = GaussianProcess(fit=False, length_scale=2.0, signal=3.0, noise=0.5)
    state = process.init(50, np.random.default_rng(13).normal(size=(50, 4)))
    process.observe(state, np.arange(9), np.arange(9.0))
    assert state.hyper.length_scales.tolist() == [4.0] * 4
    assert [float(state.hyper.signal), float(state.hyper.noise)] == [3.0, 0.5]
    assert [float(state.hyper.offset), float(state.hyper.scale)] == [0.0, 1.0]
