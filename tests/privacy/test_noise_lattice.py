"""Updates on the lattice: in the ball, unbiased; and no output tells which update it came from."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from fedmuster.core.errors import DataError
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.core.streams import NOISE, stream
from fedmuster.privacy.discrete_noise import (
    Lattice,
    checked_update,
    discrete_gaussian,
    discrete_laplace,
    into_box,
    into_l1_ball,
    into_l2_ball,
)
from fedmuster.privacy.mechanisms import Gaussian, Laplace
from fedmuster.privacy.randomness import RandomBytes, secure_bytes, seeded_bytes

SIGNIFICANCE = 1e-6  # of each statistical test; the seeds are fixed
IntoBall = Callable[[FloatArray, Lattice, RandomBytes], IntArray]
BALLS: list[tuple[IntoBall, float]] = [(into_l1_ball, 1), (into_l2_ball, 2), (into_box, math.inf)]


def norm_is_within(steps: IntArray, radius: int, order: float) -> bool:
    """Exact, in Python's integers."""
    values = [abs(int(value)) for value in steps]
    if order == math.inf:
        return max(values, default=0) <= radius
    squares = [value**2 for value in values] if order == 2 else values
    return sum(squares) <= (radius**2 if order == 2 else radius)


@given(
    clip=st.floats(1e-30, 1e30), scale=st.floats(1e-9, 1e12), least=st.sampled_from([2**10, 2**16])
)
def test_the_grid_is_a_power_of_two_that_neither_noise_nor_clip_feels(
    clip: float, scale: float, least: int
) -> None:
    lattice = Lattice.of(clip=clip, noise_scale=scale * clip, least_radius=least)
    assert math.frexp(lattice.grid)[0] == 0.5
    assert lattice.grid <= scale * clip / 2**10
    assert lattice.radius >= least
    assert lattice.radius * lattice.grid <= clip < (lattice.radius + 1) * lattice.grid
    finer = 4 * lattice.grid
    assert finer > scale * clip / 2**10 or clip / finer < least, "needlessly fine"


@pytest.mark.parametrize(("into_ball", "order"), BALLS)
@given(
    update=arrays.arrays(np.float64, st.integers(0, 60), elements=st.floats(-1e100, 1e100)),
    magnitude=st.sampled_from([0.0, 1e-300, 1e-3, 1.0, 1e3]),
    radius=st.integers(1, 10**6),
    seed=st.integers(0, 10**6),
)
def test_always_in_the_ball(
    into_ball: IntoBall, order: float, update: FloatArray, magnitude: float, radius: int, seed: int
) -> None:
    lattice = Lattice(grid=2.0**-5, radius=radius)
    steps = into_ball(magnitude * update, lattice, seeded_bytes(stream(seed, NOISE)))
    assert steps.dtype == np.int64
    assert steps.shape == update.shape
    assert norm_is_within(steps, radius, order)
    assert (steps * update >= 0).all(), "a sign was turned"


@pytest.mark.parametrize(("into_ball", "order"), BALLS)
@pytest.mark.parametrize("byte", [b"\x00", b"\xff"])
def test_in_the_ball_with_the_most_unlikely_bytes(
    into_ball: IntoBall, order: float, byte: bytes
) -> None:
    lattice = Lattice(grid=2.0**-10, radius=2**10 + 1)
    for size in (1, 3, 1000):
        update = stream(size, NOISE).normal(size=size) * 100
        steps = into_ball(update, lattice, lambda count: byte * count)
        assert norm_is_within(steps, lattice.radius, order)


@pytest.mark.parametrize(("into_ball", "order"), BALLS)
def test_every_coordinate_is_unbiased_however_small(into_ball: IntoBall, order: float) -> None:
    lattice = Lattice(grid=0.25, radius=200_000)
    update = np.array([0.01, -0.01, 0.2, -0.3, 0.25, 0.0, 7.13, -1e-3, 1000.06])
    random_bytes, draws = seeded_bytes(stream(0, NOISE)), 10_000
    steps = np.array([into_ball(update, lattice, random_bytes) for _ in range(draws)])
    part = update / lattice.grid - np.floor(update / lattice.grid)
    deviation = np.sqrt(part * (1 - part) / draws) + 2.0**-17  # the resolution of 16 bits
    z = stats.norm.isf(SIGNIFICANCE / 2)
    assert (np.abs(steps.mean(axis=0) - update / lattice.grid) <= z * deviation).all()
    assert (np.abs(steps - update / lattice.grid) < 1).all()


def test_a_vector_of_dust_keeps_its_norm() -> None:
    """Half a million coordinates, each a thousandth of the grid: to the nearest would be 0."""
    update = stream(1, NOISE).normal(size=500_000)
    update /= np.abs(update).sum()
    lattice = Lattice(grid=2.0**-10, radius=2**10)
    steps = into_l1_ball(update, lattice, seeded_bytes(stream(2, NOISE)))
    assert 2**10 - 1 <= np.abs(steps).sum() <= 2**10
    assert np.abs(steps).max() == 1


@pytest.mark.parametrize(("into_ball", "order"), BALLS[:2])
def test_clipping_keeps_the_direction(into_ball: IntoBall, order: float) -> None:
    update = stream(3, NOISE).normal(size=1000)
    lattice = Lattice(grid=2.0**-20, radius=2**20)
    steps = into_ball(update, lattice, seeded_bytes(stream(4, NOISE))) * lattice.grid
    clipped = update / np.linalg.norm(update, ord=order)
    np.testing.assert_allclose(steps, clipped, atol=1.5 * lattice.grid, rtol=2e-4)


def test_l2_clipping_leaves_room_for_what_rounding_adds() -> None:
    update = stream(5, NOISE).normal(size=300_000)  # rounding adds 75,000 to the sum of squares
    lattice = Lattice(grid=2.0**-10, radius=1000)
    steps = into_l2_ball(update, lattice, seeded_bytes(stream(6, NOISE)))
    assert 0.97 * 1000**2 < int(steps @ steps) <= 1000**2


def test_a_small_update_is_not_clipped() -> None:
    update = np.array([0.5, -0.25, 0.125])
    lattice = Lattice(grid=2.0**-10, radius=2**10)
    for into_ball, _ in BALLS:
        steps = into_ball(update, lattice, seeded_bytes(stream(7, NOISE)))
        assert steps.tolist() == [512, -256, 128]


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ([1.0, math.nan], "1 of 2"),
        ([math.inf, -math.inf, 0.0], "2 of 3"),
        ([[1.0]], "shape"),
        (["a"], "numbers"),
        ([1j], "numbers"),
        ([True], "numbers"),
    ],
)
def test_refuses_what_is_not_an_update(update: list[object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        checked_update(np.array(update))


def test_takes_any_real_type_and_leaves_it_alone() -> None:
    for kind in (np.float32, np.float16, np.int32, np.float64):
        update = np.array([1, 2, -3], dtype=kind)
        checked = checked_update(update)
        checked += 1
        assert checked.dtype == np.float64
        assert update.tolist() == [1, 2, -3]
    assert np.isfinite(Laplace().release(np.full(10, 1.7e308), 1.0, secure_bytes)).all()


# What floating-point noise gives away (Mironov 2012), and the lattice does not.


def numpy_can_reach(output: float, location: float, scale: float) -> bool:
    """Whether some uniform number k / 2^53 makes ``Generator.laplace`` return ``output``."""
    half = math.exp(-abs(output - location) / scale) / 2
    if output >= location:
        k = round((1 - half) * 2**53)
        uniforms = [i / 2**53 for i in range(k - 8, k + 9) if 2**52 <= i < 2**53]
        return any(location - scale * math.log(2.0 - u - u) == output for u in uniforms)
    k = round(half * 2**53)
    uniforms = [i / 2**53 for i in range(k - 8, k + 9) if 0 < i < 2**52]
    return any(location + scale * math.log(u + u) == output for u in uniforms)


def test_the_attack_on_numpys_laplace_works() -> None:
    outputs = stream(0, NOISE).laplace(1.0, 2.0, size=2000).tolist()
    assert all(numpy_can_reach(output, 1.0, 2.0) for output in outputs)
    betrayed = sum(not numpy_can_reach(output, -1.0, 2.0) for output in outputs)
    assert betrayed / 2000 > 0.27


MECHANISMS: list[tuple[Laplace | Gaussian, float]] = [
    (Laplace(clip=1.0), 1.0),
    (Laplace(clip=0.7), 0.013),
    (Laplace(mode="per-coordinate", clip=0.3), 3.0),
    (Gaussian(clip=1.3), 0.1),
]


@pytest.mark.parametrize(("mechanism", "amount"), MECHANISMS)
def test_every_output_could_come_from_every_update(
    mechanism: Laplace | Gaussian, amount: float
) -> None:
    """All outputs are multiples of one grid, whatever the update; and whole noise has no gaps."""
    grid = mechanism._lattice(amount)[0].grid
    random_bytes = seeded_bytes(stream(1, NOISE))
    updates = [np.zeros(2000), np.full(2000, 1e-5), stream(2, NOISE).normal(size=2000) * 1e6]
    for update in updates:
        steps = mechanism.release(update, amount, random_bytes) / grid
        assert (steps == np.round(steps)).all()
        assert np.abs(steps).max() < 2**53
        assert {0, 1} <= set((steps % 2).tolist()), "only some multiples are reached"


def test_small_noise_has_no_gaps() -> None:
    random_bytes = seeded_bytes(stream(3, NOISE))
    for noise in (
        discrete_laplace(Fraction(1, 300), 10**6, random_bytes),
        discrete_gaussian(Fraction(300**2), 10**6, random_bytes),
    ):
        assert set(range(-500, 501)) <= set(noise.tolist())


def test_the_l1_ball_is_all_reached_and_nothing_else() -> None:
    lattice = Lattice(grid=1.0, radius=2)
    reached = {
        tuple(into_l1_ball(np.array(update), lattice, seeded_bytes(stream(seed, NOISE))).tolist())
        for update in product(np.linspace(-3, 3, 13), repeat=2)
        for seed in range(20)
    }
    ball = {(a, b) for a in range(-2, 3) for b in range(-2, 3) if abs(a) + abs(b) <= 2}
    assert reached == ball
