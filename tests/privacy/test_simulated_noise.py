"""Simulated noise follows the law of the real mechanism."""

import numpy as np
import pytest
from scipy import stats

from fedmuster.privacy.mechanism import Gaussian, Laplace, Mechanism
from fedmuster.privacy.randomness import seeded_bytes
from fedmuster.privacy.simulated_noise import simulated_release

LEAST_P = 1e-4  # fixed seeds: fails only if the laws differ

MECHANISMS = [
    Laplace(clip=2.0),
    Laplace(mode="per-coordinate", clip=0.3),
    Gaussian(clip=0.5),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_it_has_the_law_of_the_real_one(mechanism: Mechanism) -> None:
    update = np.zeros(20_000, dtype=np.float32)
    simulated = simulated_release(mechanism, update, 0.7, np.random.default_rng(1))
    real = mechanism.release(update, 0.7, seeded_bytes(np.random.default_rng(2)))
    assert stats.ks_2samp(simulated, real).pvalue > LEAST_P


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@pytest.mark.parametrize("size", [0.01, 3.0], ids=["within the clip", "beyond it"])
def test_it_clips_as_the_real_one(mechanism: Mechanism, size: float) -> None:
    """With next to no noise, what is left is the clipped update."""
    update = size * np.array([0.5, -1.0, 0.0, 0.25, 2.0], dtype=np.float32)
    simulated = simulated_release(mechanism, update, 1e6, np.random.default_rng(1))
    real = mechanism.release(update, 1e6, seeded_bytes(np.random.default_rng(2)))
    assert simulated == pytest.approx(real, abs=0.01 * mechanism.clip)
