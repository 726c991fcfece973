"""The posterior against computations on all raw observations, however they came in."""

from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from fedmuster.bandits.linear import standardised
from fedmuster.core import state as states
from fedmuster.core.config import from_table, to_table
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.policies.fedsuv.gaussian_process import GaussianProcess, GPState
from fedmuster.policies.fedsuv.kernel import Family, Kernel


@dataclass(frozen=True)
class History:
    """Rounds of (clients, values), and all of them end to end."""

    rounds: list[tuple[IntArray, FloatArray]]

    @property
    def clients(self) -> IntArray:
        return np.concatenate([clients for clients, _ in self.rounds])

    @property
    def values(self) -> FloatArray:
        return np.concatenate([values for _, values in self.rounds])

    def play(self, process: GaussianProcess, state: GPState) -> None:
        for clients, values in self.rounds:
            process.observe(state, clients, values)


def history(num_clients: int, rounds: int, size: int, seed: int = 3) -> History:
    rng = np.random.default_rng(seed)
    draws = (rng.permutation(num_clients)[:size] for _ in range(rounds))
    return History([(clients, rng.normal(size=size)) for clients in draws])


def brute_force(
    prior: FloatArray, noise: float, clients: IntArray, values: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Posterior of a normal prior covariance [K, K], one row for every single observation."""
    gram = prior[np.ix_(clients, clients)] + noise * np.eye(len(clients))
    cross = prior[:, clients]
    mean = cross @ np.linalg.solve(gram, values)
    explained = np.einsum("ij,ji->i", cross, np.linalg.solve(gram, cross.T))
    return mean, np.sqrt(prior.diagonal() - explained)


def squared_exponential(x: FloatArray, lengths: FloatArray, signal: float) -> FloatArray:
    difference = (x[:, None, :] - x[None, :, :]) / lengths
    return np.asarray(signal * np.exp(-0.5 * (difference**2).sum(axis=2)))


def as_fitted(state: GPState, past: History) -> tuple[FloatArray, FloatArray]:
    """The same hyper-parameters as ``state``, the rest by brute force."""
    hyper = state.hyper
    prior = squared_exponential(state.attributes, hyper.length_scales, float(hyper.signal))
    prior += float(hyper.individual) * np.eye(len(prior))
    values = (past.values - hyper.offset) / hyper.scale
    mean, deviation = brute_force(prior, float(hyper.noise), past.clients, values)
    return mean * hyper.scale + hyper.offset, deviation * hyper.scale


ATTRIBUTES = np.random.default_rng(1).normal(size=(40, 3)) * [1.0, 100.0, 1e-3] + [0.0, 7.0, 1.0]
FIXED = GaussianProcess(fit=False, signal=1.7, noise=0.2)


@pytest.mark.parametrize("individual", [False, True])
def test_the_posterior_is_exact(individual: bool) -> None:
    process = GaussianProcess(fit=False, signal=1.7, noise=0.2, individual=individual)
    state, past = process.init(40, ATTRIBUTES), history(40, rounds=30, size=5)
    state.hyper.length_scales[:] = 0.5, 1.0, 2.0
    past.play(process, state)
    prior = squared_exponential(standardised(ATTRIBUTES), np.array([0.5, 1.0, 2.0]), 1.7)
    prior += (0.2 if individual else 0.0) * np.eye(40)
    expected = brute_force(prior, 0.2, past.clients, past.values)
    np.testing.assert_allclose(process.posterior(state), expected, rtol=0, atol=1e-10)


def test_it_is_exact_for_more_clients_than_a_block() -> None:
    attributes, past = np.random.default_rng(6).normal(size=(300, 2)), history(300, 20, 30)
    state = FIXED.init(300, attributes)
    past.play(FIXED, state)
    expected = as_fitted(state, past)
    np.testing.assert_allclose(FIXED.posterior(state), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("family", ["squared-exponential", "matern-5/2"])
def test_against_scikit_learn(family: Family) -> None:
    process = GaussianProcess(fit=False, signal=1.7, noise=0.2, kernel=family)
    state, past = process.init(40, ATTRIBUTES), history(40, rounds=30, size=5)
    lengths = np.array([0.5, 1.0, 2.0])
    state.hyper.length_scales[:] = lengths
    past.play(process, state)
    shape = RBF(lengths) if family == "squared-exponential" else Matern(lengths, nu=2.5)
    peer = GaussianProcessRegressor(ConstantKernel(1.7) * shape, alpha=0.2, optimizer=None)
    peer.fit(state.attributes[past.clients], past.values)
    expected = peer.predict(state.attributes, return_std=True)
    np.testing.assert_allclose(process.posterior(state), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("individual", [False, True])
def test_the_posterior_is_exact_under_fitted_hyperparameters(individual: bool) -> None:
    process = GaussianProcess(individual=individual)
    state, past = process.init(40, ATTRIBUTES), history(40, rounds=21, size=5)
    for end in (1, 2, 7, 21):
        state = process.init(40, ATTRIBUTES)
        recent = History(past.rounds[:end])
        recent.play(process, state)
        expected = as_fitted(state, recent)
        np.testing.assert_allclose(process.posterior(state), expected, rtol=0, atol=1e-9)


def test_before_anything_is_observed_everyone_has_the_prior() -> None:
    for attributes in (None, ATTRIBUTES):
        mean, deviation = FIXED.posterior(FIXED.init(40, attributes))
        np.testing.assert_array_equal(mean, np.zeros(40))
        np.testing.assert_allclose(deviation, np.full(40, np.sqrt(1.7)))


def test_without_attributes_every_client_is_an_arm_of_its_own() -> None:
    state, past = FIXED.init(40, None), history(40, rounds=30, size=5)
    past.play(FIXED, state)
    expected = brute_force(1.7 * np.eye(40), 0.2, past.clients, past.values)
    np.testing.assert_allclose(FIXED.posterior(state), expected, rtol=0, atol=1e-12)
    assert max(array.size for array in states.to_arrays(state).values()) == 40


def test_without_attributes_noise_is_told_from_differences() -> None:
    rng = np.random.default_rng(4)
    process, truth = GaussianProcess(), rng.normal(10.0, 3.0, size=200)
    state = process.init(200, None)
    for _ in range(10):
        process.observe(state, np.arange(200), truth + rng.normal(size=200))
    scale = float(state.hyper.scale)
    # 200 draws of each: their standard deviations are known to 5 % and, from repeats, 2 %.
    assert np.sqrt(state.hyper.individual) * scale == pytest.approx(3.0, rel=0.2)
    assert np.sqrt(state.hyper.noise) * scale == pytest.approx(1.0, rel=0.1)
    mean, deviation = process.posterior(state)
    assert np.mean(np.abs(mean - truth) < 2 * deviation) > 0.9


def test_a_thousand_rounds_leave_no_trace_of_rounding() -> None:
    process = GaussianProcess(fit=False, noise=1e-3)
    state, past = process.init(40, ATTRIBUTES), history(40, rounds=1000, size=8)
    past.play(process, state)
    assert (state.belief.variance > 0).all()
    afresh = process._blank(state.attributes)
    process._rebuild(state, afresh)
    np.testing.assert_allclose(state.belief.mean, afresh.mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(state.belief.variance, afresh.variance, rtol=1e-6)


def test_the_order_of_rows_does_not_change_a_bit() -> None:
    past = history(40, rounds=10, size=6)
    turned = History([(clients[::-1], values[::-1]) for clients, values in past.rounds])
    process = GaussianProcess()
    one, other = process.init(40, ATTRIBUTES), process.init(40, ATTRIBUTES)
    past.play(process, one)
    turned.play(process, other)
    np.testing.assert_array_equal(process.posterior(one), process.posterior(other))


def test_no_observations_change_nothing() -> None:
    process, past = GaussianProcess(), history(40, rounds=3, size=6)
    state = process.init(40, ATTRIBUTES)
    past.play(process, state)
    before = {name: array.copy() for name, array in states.to_arrays(state).items()}
    process.observe(state, np.array([], dtype=np.int64), np.array([]))
    process.posterior(state)
    for name, array in states.to_arrays(state).items():
        np.testing.assert_array_equal(array, before[name])


KINDS = pytest.mark.parametrize(
    ("process", "attributes"),
    [
        (GaussianProcess(), ATTRIBUTES),
        (GaussianProcess(individual=True), ATTRIBUTES),
        (GaussianProcess(exact_up_to=10, num_features=64), ATTRIBUTES),
        (GaussianProcess(), None),
    ],
)


@KINDS
def test_restored_states_go_on_with_the_same_bits(
    process: GaussianProcess, attributes: FloatArray | None
) -> None:
    past = history(40, rounds=14, size=6)
    state = process.init(40, attributes)
    shapes = {name: array.shape for name, array in states.to_arrays(state).items()}
    History(past.rounds[:9]).play(process, state)
    image = states.to_bytes(states.learned_arrays(state), {})
    restored = process.init(40, attributes)
    states.load_arrays(restored, states.from_bytes(image, source="memory")[0])
    for each in (state, restored):
        History(past.rounds[9:]).play(process, each)
    np.testing.assert_array_equal(process.posterior(state), process.posterior(restored))
    assert shapes == {name: array.shape for name, array in states.to_arrays(state).items()}


@pytest.mark.parametrize("exact_up_to", [4000, 35, 10])
@pytest.mark.parametrize("observe_after", [False, True])
def test_clients_who_join_are_believed_as_if_they_had_always_been_there(
    exact_up_to: int, observe_after: bool
) -> None:
    """Also where the exact posterior (of 30) gives way to the approximate one (of 40)."""
    process = GaussianProcess(fit=False, noise=0.3, exact_up_to=exact_up_to, num_features=512)
    early, late = history(30, rounds=6, size=5), history(40, rounds=2, size=5, seed=8)
    old = process.init(30, ATTRIBUTES[:30])
    early.play(process, old)
    grown = states.grow(old, process.init(40, ATTRIBUTES))
    always = process.init(40, ATTRIBUTES)
    early.play(process, always)
    if observe_after:
        late.play(process, grown)
        late.play(process, always)
    # Single precision, where the posterior is approximate.
    exact = exact_up_to == 4000
    np.testing.assert_allclose(
        process.posterior(grown), process.posterior(always), rtol=0, atol=1e-10 if exact else 1e-4
    )


def test_hyperparameters_are_fitted_anew_after_clients_have_joined() -> None:
    process, early, late = GaussianProcess(), history(30, 6, 5), history(40, 1, 5, seed=8)
    old = process.init(30, ATTRIBUTES[:30])
    early.play(process, old)
    grown = states.grow(old, process.init(40, ATTRIBUTES))
    kept = grown.hyper.length_scales.copy()
    expected = as_fitted(grown, early)
    np.testing.assert_allclose(process.posterior(grown), expected, rtol=0, atol=1e-9)
    late.play(process, grown)
    assert (grown.hyper.length_scales != kept).any()
    expected = as_fitted(grown, History(early.rounds + late.rounds))
    np.testing.assert_allclose(process.posterior(grown), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
@KINDS
def test_units_of_the_values_do_not_matter(
    process: GaussianProcess, attributes: FloatArray | None, scale: float
) -> None:
    past = history(40, rounds=9, size=6)
    scaled = History([(clients, (values + 3.0) * scale) for clients, values in past.rounds])
    state, other = process.init(40, attributes), process.init(40, attributes)
    past.play(process, state)
    scaled.play(process, other)
    (mean, deviation), (scaled_mean, scaled_deviation) = (
        process.posterior(state),
        process.posterior(other),
    )
    np.testing.assert_allclose(scaled_mean / scale, mean + 3.0, rtol=1e-4)
    np.testing.assert_allclose(scaled_deviation / scale, deviation, rtol=1e-3)


@KINDS
@pytest.mark.parametrize("value", [0.0, 5.0, 1e9, -1e-6])
def test_all_observations_equal(
    process: GaussianProcess, attributes: FloatArray | None, value: float
) -> None:
    state = process.init(40, attributes)
    for number in range(1, 6):
        process.observe(state, np.arange(number, number + 5), np.full(5, value))
    mean, deviation = process.posterior(state)
    np.testing.assert_allclose(mean, np.full(40, value))
    assert (deviation > 0).all()
    assert (deviation <= 10 * (abs(value) or 1.0)).all()


@KINDS
def test_one_client_observed_a_thousand_times(
    process: GaussianProcess, attributes: FloatArray | None
) -> None:
    rng = np.random.default_rng(5)
    state, values = process.init(40, attributes), rng.normal(7.0, 2.0, size=1000)
    for value in values:
        process.observe(state, np.array([4]), np.array([value]))
    mean, deviation = process.posterior(state)
    # 2 / sqrt(1000) = 0.063: four standard errors.
    assert mean[4] == pytest.approx(7.0, abs=0.26)
    assert deviation[4] == pytest.approx(2.0 / np.sqrt(1000), rel=0.2)
    assert np.isfinite(mean).all()
    assert (np.delete(deviation, 4) > deviation[4]).all()


@pytest.mark.parametrize("exact_up_to", [10, 0])
def test_a_single_client(exact_up_to: int) -> None:
    process = GaussianProcess(exact_up_to=exact_up_to)
    state = process.init(1, np.array([[3.0, 4.0]]))
    for number in range(1, 40):
        process.observe(state, np.array([0]), np.array([number % 2]))
    mean, deviation = process.posterior(state)
    assert mean[0] == pytest.approx(0.5, abs=0.1)
    assert 0 < deviation[0] < 0.3


@pytest.mark.parametrize("exact_up_to", [100, 0])
def test_clients_of_the_same_attributes_are_one_unless_told_otherwise(exact_up_to: int) -> None:
    attributes = np.repeat(np.random.default_rng(2).normal(size=(10, 2)), 4, axis=0)
    past = history(40, rounds=12, size=9)
    for individual in (False, True):
        process = GaussianProcess(individual=individual, exact_up_to=exact_up_to)
        state = process.init(40, attributes)
        past.play(process, state)
        mean, deviation = process.posterior(state)
        assert (np.ptp(mean.reshape(10, 4), axis=1) < 1e-9).all() != individual
        assert (deviation > 0).all()


def test_the_configuration_is_checked_and_can_be_written() -> None:
    process = GaussianProcess(num_features=64, kernel="matern-5/2")
    assert from_table(GaussianProcess, to_table(process)) == process
    for wrong in (
        {"num_features": 3},
        {"exact_up_to": -1},
        {"kernel": "linear"},
        {"noise": 0.0},
        {"refit_growth": 1.0},
        {"noise_floor": 0.0},
        {"fit_clients": 0},
        {"feature_seed": -1},
    ):
        with pytest.raises(ConfigError):
            from_table(GaussianProcess, wrong)


def test_kernels_by_hand() -> None:
    at, to = np.array([[0.0, 0.0]]), np.array([[2.0, 1.0]])
    lengths = np.array([2.0, 1.0])  # r^2 = 2
    smooth = Kernel("squared-exponential", lengths, 3.0)(at, to)
    np.testing.assert_allclose(smooth, [[3.0 * np.exp(-1.0)]])
    rough = Kernel("matern-5/2", lengths, 3.0)(at, to)
    root = np.sqrt(10.0)
    np.testing.assert_allclose(rough, [[3.0 * (1 + root + 10 / 3) * np.exp(-root)]])
