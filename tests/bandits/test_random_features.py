"""Random features against regression on the same features, and against the exact process."""

import numpy as np
import pytest

from fedmuster.core.records import FloatArray
from fedmuster.policies.fedsuv import posterior as random_features
from fedmuster.policies.fedsuv.gaussian_process import GaussianProcess, GPState
from fedmuster.policies.fedsuv.kernel import Family, Kernel
from fedmuster.policies.fedsuv.posterior import FeatureBelief

CLIENTS = 1500  # more than one block
ATTRIBUTES = np.random.default_rng(1).normal(size=(CLIENTS, 3))
TRUTH = np.sin(ATTRIBUTES[:, 0]) + 0.3 * ATTRIBUTES[:, 1]


def play(process: GaussianProcess, *, rounds: int, size: int) -> tuple[GPState, FloatArray]:
    """The state after some rounds, and the sum of counts and values of each client."""
    rng = np.random.default_rng(2)
    state, sums = process.init(CLIENTS, ATTRIBUTES), np.zeros((2, CLIENTS))
    for _ in range(rounds):
        clients = rng.permutation(CLIENTS // 3)[:size]  # many of them again and again
        values = TRUTH[clients] + 0.5 * rng.normal(size=size)
        process.observe(state, clients, values)
        sums[:, clients] += np.stack([np.ones(size), values])
    return state, sums


@pytest.mark.parametrize("individual", [False, True])
@pytest.mark.parametrize("size", [1, 20, 40])
def test_it_is_bayesian_regression_on_the_features(size: int, individual: bool) -> None:
    """Also for a cohort (40) of more clients than there are features (32)."""
    process = GaussianProcess(
        exact_up_to=10, num_features=32, fit=False, signal=2.0, noise=0.25, individual=individual
    )
    state, (count, total) = play(process, rounds=40, size=size)
    belief = state.belief
    assert isinstance(belief, FeatureBelief)
    kernel = Kernel("squared-exponential", state.hyper.length_scales, 2.0)
    phase = state.attributes / state.hyper.length_scales @ belief.frequencies.T
    features = np.sqrt(2.0 / 16) * np.hstack([np.cos(phase), np.sin(phase)])
    np.testing.assert_allclose(belief.features(kernel, state.attributes), features)
    # A client's mean has the variance of its own part and of the noise that is left.
    seen = count > 0
    own = 0.25 if individual else 0.0
    weight = 1.0 / (own + 0.25 / count[seen])
    precision = np.eye(32) + (features[seen].T * weight) @ features[seen]
    covariance = np.linalg.inv(precision)
    weights = covariance @ (features[seen].T @ (weight * total[seen] / count[seen]))
    np.testing.assert_allclose(belief.weights, weights, rtol=0, atol=1e-10)
    np.testing.assert_allclose(belief.covariance, covariance, rtol=0, atol=1e-10)
    variance = np.einsum("ij,jk,ik->i", features, covariance, features)
    # Clients' own values are in single precision.
    np.testing.assert_allclose(belief.mean, features @ weights, rtol=0, atol=1e-5)
    np.testing.assert_allclose(belief.variance, variance, rtol=0, atol=1e-5)
    if not individual:
        expected = features @ weights, np.sqrt(variance)
        np.testing.assert_allclose(process.posterior(state), expected, rtol=0, atol=1e-4)


def test_own_parts_are_those_of_the_exact_process_with_the_approximate_kernel() -> None:
    process = GaussianProcess(
        exact_up_to=10, num_features=32, fit=False, signal=2.0, noise=0.25, individual=True
    )
    state, (count, total) = play(process, rounds=10, size=20)
    assert isinstance(state.belief, FeatureBelief)
    kernel = Kernel("squared-exponential", state.hyper.length_scales, 2.0)
    features = state.belief.features(kernel, state.attributes)
    prior = features @ features.T + 0.25 * np.eye(CLIENTS)
    seen = np.flatnonzero(count)
    gram = prior[np.ix_(seen, seen)] + np.diag(0.25 / count[seen])
    gain = np.linalg.solve(gram, prior[seen]).T
    deviation = np.sqrt(prior.diagonal() - np.einsum("ij,ij->i", gain, prior[:, seen]))
    expected = gain @ (total[seen] / count[seen]), deviation
    np.testing.assert_allclose(process.posterior(state), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("family", ["squared-exponential", "matern-5/2"])
def test_the_error_of_the_kernel_falls_with_the_root_of_the_number(family: Family) -> None:
    """The mean of D/2 cosines, each of variance at most 1/2: an error of at most 1/sqrt(D)."""
    kernel = Kernel(family, np.array([0.7, 1.0, 3.0]), 1.0)
    rows = ATTRIBUTES[:60]
    exact = kernel(rows, rows)
    error = {}
    for count in (64, 256, 1024, 4096):
        squares = []
        for seed in range(20):
            belief = FeatureBelief.init(60, 3, family=family, num_features=count, seed=seed)
            features = belief.features(kernel, rows)
            squares.append(np.mean((features @ features.T - exact) ** 2))
            np.testing.assert_allclose(np.einsum("ij,ij->i", features, features), np.ones(60))
        error[count] = np.sqrt(np.mean(squares))
        assert error[count] < 1.0 / np.sqrt(count)
    # Eight times as accurate with 64 times as many; 20 seeds give that to some 10 %.
    assert error[64] / error[4096] == pytest.approx(8.0, rel=0.3)


def test_the_posterior_comes_close_to_the_exact_one() -> None:
    def fixed(features: int, exact_up_to: int = 10) -> GaussianProcess:
        return GaussianProcess(
            exact_up_to=exact_up_to, num_features=features, fit=False, noise=0.25
        )

    exact = fixed(2, exact_up_to=CLIENTS)
    mean, deviation = exact.posterior(play(exact, rounds=4, size=30)[0])
    error = {}
    for count in (16, 64, 256, 1024):
        process = fixed(count)
        theirs = process.posterior(play(process, rounds=4, size=30)[0])
        error[count] = np.array([np.std(theirs[0] - mean), np.std(theirs[1] - deviation)])
        # Of a prior deviation of 1: within 2 / sqrt(D), 0.125 for the default of 256.
        assert (error[count] < 2.0 / np.sqrt(count)).all()
    assert (error[1024] < error[16] / 4).all()


def test_frequencies_follow_from_the_seed_alone() -> None:
    def frequencies(seed: int) -> FloatArray:
        return FeatureBelief.init(
            5, 3, family="squared-exponential", num_features=64, seed=seed
        ).frequencies

    np.testing.assert_array_equal(frequencies(1), frequencies(1))
    assert (frequencies(1) != frequencies(2)).all()


def test_fitted_on_many_clients_it_covers_the_truth() -> None:
    process = GaussianProcess(exact_up_to=10)
    mean, deviation = process.posterior(play(process, rounds=30, size=20)[0])
    assert np.sqrt(np.mean((mean - TRUTH) ** 2)) < 0.25 * np.std(TRUTH)
    assert np.mean(np.abs(mean - TRUTH) < 3 * deviation) > 0.95


def test_no_bit_depends_on_the_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    num_clients = 5_000
    attributes = np.random.default_rng(0).standard_normal((num_clients, 3))
    found = []
    for cores in (1, 2, 3):
        monkeypatch.setattr(random_features, "_WORTH_THREADS", 1)
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        process = GaussianProcess(exact_up_to=1, num_features=32)
        state = process.init(num_clients, attributes)
        for round_ in (1, 2):
            clients = np.arange(round_, num_clients, 250)
            process.observe(state, clients, np.sin(attributes[clients, 0]))
        mean, sd = process.posterior(state)
        found.append(mean.tobytes() + sd.tobytes())
    assert found[0] == found[1] == found[2]
