"""Coverage and mobility: uniform in the union of discs, straight ways, any order of rounds."""

import numpy as np
import pytest
from scipy import stats

from fedmuster.core.errors import ConfigError
from fedmuster.core.records import FloatArray
from fedmuster.worlds.mobility import (
    CoverageArea,
    Mobility,
    RandomWaypoint,
    Redrawn,
    hexagonal_spiral,
)

STEP = 3.0


def area(edges: int = 3, spacing: float = 2.5, radius: float = 2.0) -> CoverageArea:
    return CoverageArea(centres_km=hexagonal_spiral(edges, spacing), radius_km=radius)


def walk(mobility: Mobility, rounds: int, *, clients: int = 200, seed: int = 1) -> FloatArray:
    run = mobility.start(area(), clients, step_seconds=STEP, seed=seed)
    return np.array([run.at(t) for t in range(1, rounds + 1)])


def test_the_spiral_is_a_lattice() -> None:
    points = hexagonal_spiral(37, 1.5)  # three full rings
    assert points[0] == pytest.approx([0.0, 0.0])
    gaps = np.hypot(*(points[:, None] - points).transpose(2, 0, 1))
    np.fill_diagonal(gaps, np.inf)
    assert gaps.min(axis=1) == pytest.approx(np.full(37, 1.5))
    neighbours = np.count_nonzero(gaps < 1.51, axis=1)
    np.testing.assert_array_equal(neighbours[:19], 6)  # all but the outermost ring
    np.testing.assert_array_equal(hexagonal_spiral(5, 1.5), points[:5])


def test_distances_by_hand() -> None:
    here = area(edges=2, spacing=3.0)
    distance = here.distance_km(np.array([[0.0, 0.0], [3.0, 4.0]]))
    assert distance == pytest.approx(np.array([[0.0, 3.0], [5.0, 4.0]]))


@pytest.mark.parametrize("spacing", [0.0, 1.0, 2.5, 4.0, 50.0])
def test_uniform_in_the_union(spacing: float) -> None:
    """Chi-squared on cells of equal area, with the share of the union counted on a fine grid."""
    here = area(edges=4, spacing=spacing)
    sample = here.uniform(20_000, np.random.default_rng(3))
    assert np.all(here.distance_km(sample).min(axis=1) <= here.radius_km)
    low, high = here.centres_km.min(axis=0) - 2.0, here.centres_km.max(axis=0) + 2.0
    axes = [low[i] + (high[i] - low[i]) * (np.arange(1200) + 0.5) / 1200 for i in (0, 1)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    land = grid[here.distance_km(grid).min(axis=1) <= here.radius_km]
    edges = [np.linspace(low[i], high[i], 9) for i in (0, 1)]
    expected = np.histogram2d(land[:, 0], land[:, 1], bins=edges)[0].ravel()
    observed = np.histogram2d(sample[:, 0], sample[:, 1], bins=edges)[0].ravel()
    many = expected / expected.sum() * len(sample) > 20  # slivers are left to the bounds above
    counts = np.append(observed[many], observed[~many].sum())
    shares = np.append(expected[many], expected[~many].sum())
    kept = shares > 0
    result = stats.chisquare(counts[kept], shares[kept] / shares.sum() * len(sample))
    assert result.pvalue > 1e-3


def test_redrawn_at_a_uniform_distance() -> None:
    """The paper's law, at one edge: Kolmogorov-Smirnov at 1e-3."""
    run = Redrawn(uniform="distance").start(area(1), 5000, step_seconds=STEP, seed=2)
    distance = np.hypot(*run.at(1).T)
    assert stats.kstest(distance, stats.uniform(0, 2).cdf).pvalue > 1e-3
    even = Redrawn().start(area(1), 5000, step_seconds=STEP, seed=2)
    squared = np.square(even.at(1)).sum(axis=1)
    assert stats.kstest(squared, stats.uniform(0, 4).cdf).pvalue > 1e-3


@pytest.mark.parametrize("mobility", [Redrawn(), Redrawn(uniform="distance"), RandomWaypoint()])
def test_rounds_in_any_order(mobility: Mobility) -> None:
    forward = walk(mobility, 300, clients=20)
    run = mobility.start(area(), 20, step_seconds=STEP, seed=1)
    for t in (300, 1, 150, 2, 299, 150):
        np.testing.assert_array_equal(run.at(t), forward[t - 1])
    other = mobility.start(area(), 20, step_seconds=STEP, seed=2)
    assert not np.allclose(other.at(1), forward[0])


def test_redrawn_places_are_new_in_each_round() -> None:
    path = walk(Redrawn(), 400, clients=1)[:, 0, 0]
    assert abs(np.corrcoef(path[1:], path[:-1])[0, 1]) < 3.3 / np.sqrt(400)  # at 1e-3


def test_nobody_is_faster_than_the_limit_and_nobody_jumps() -> None:
    mobility = RandomWaypoint(speed_m_per_second=(2.0, 10.0), pause_seconds=(0.0, 30.0))
    steps = np.linalg.norm(np.diff(walk(mobility, 1000), axis=0), axis=-1)
    assert steps.max() <= 10.0 * STEP / 1000 + 1e-12
    assert steps.max() > 9.0 * STEP / 1000
    assert 0.0 < np.mean(steps == 0) < 0.5  # pauses


def test_ways_are_straight_at_constant_speed() -> None:
    mobility = RandomWaypoint(speed_m_per_second=(5.0, 5.0), pause_seconds=(0.0, 0.0))
    steps = np.diff(walk(mobility, 300, clients=50), axis=0)
    length = np.linalg.norm(steps, axis=-1)
    on_the_way = np.isclose(length, 5.0 * STEP / 1000)  # but for steps with a waypoint in them
    assert on_the_way.mean() > 0.98
    both = on_the_way[1:] & on_the_way[:-1]
    turn = np.linalg.norm(np.diff(steps, axis=0), axis=-1)[both]
    assert np.mean(turn < 1e-9) > 0.98


def test_random_waypoint_begins_as_it_goes_on() -> None:
    """The law of place and of motion is the same in all rounds: Kolmogorov-Smirnov at 1e-3."""
    mobility = RandomWaypoint(speed_m_per_second=(1.0, 30.0), pause_seconds=(50.0, 400.0))
    run = mobility.start(area(), 4000, step_seconds=STEP, seed=4)
    early, late = (np.array([run.at(t), run.at(t + 1)]) for t in (1, 2001))
    for axis in (0, 1):
        assert stats.ks_2samp(early[0, :, axis], late[0, :, axis]).pvalue > 1e-3
    early_step, late_step = (np.linalg.norm(p[1] - p[0], axis=-1) for p in (early, late))
    assert stats.ks_2samp(early_step, late_step).pvalue > 1e-3
    still = [np.count_nonzero(step == 0) for step in (early_step, late_step)]
    table = [still, [4000 - n for n in still]]
    assert min(still) > 400
    assert stats.chi2_contingency(table).pvalue > 1e-3
    sample = run.sample(4000, np.random.default_rng(9))
    for axis in (0, 1):
        assert stats.ks_2samp(sample[:, axis], late[0, :, axis]).pvalue > 1e-3


def test_ways_between_distant_discs_lead_through_uncovered_land() -> None:
    far = area(edges=3, spacing=20.0)
    run = RandomWaypoint().start(far, 200, step_seconds=STEP, seed=1)
    covered = far.distance_km(run.at(1)).min(axis=1) <= far.radius_km
    assert 0.05 < covered.mean() < 0.8


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"speed_m_per_second": (0.0, 1.0)}, "speed_m_per_second"),
        ({"speed_m_per_second": (2.0, 1.0)}, "the lower first"),
        ({"pause_seconds": (-1.0, 1.0)}, "pause_seconds"),
        ({"pause_seconds": (0.0, float("nan"))}, "pause_seconds"),
    ],
)
def test_random_waypoint_refuses(fields: dict[str, tuple[float, float]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RandomWaypoint(**fields)
