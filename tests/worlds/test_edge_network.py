"""The edge network: Eq. 5 by hand, who sees what, the truth against simulation."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedmuster.core.records import FloatArray
from fedmuster.worlds import EdgeNetwork, Radio, RandomWaypoint, Redrawn
from fedmuster.worlds.edge_network import Pairs
from fedmuster.worlds.world import WorldRound


def rounds(world: EdgeNetwork, count: int, *, seed: int = 1) -> list[WorldRound]:
    run = world.start(seed)
    return [run.realise(t) for t in range(1, count + 1)]


def coverage(drawn: WorldRound) -> FloatArray:
    assert drawn.edges is not None
    return drawn.edges.coverage.astype(np.float64)


def test_latency_by_hand() -> None:
    pairs = Pairs(
        coverage=np.array([[True, False], [True, True]]),
        compute_mhz=np.array([2.0, 4.0]),
        compute_seconds=np.array([1.205, 0.6025]),
        download_rate=np.array([0.9, 0.36, 1.8]),
        upload_rate=np.array([0.18, 1e-30, 0.6]),
        download_mbit=0.18,
        upload_mbit=0.36,
    )
    expected = [0.2 + 1.205 + 2.0, np.inf, 0.1 + 0.6025 + 0.6]
    assert pairs.latency_seconds == pytest.approx(expected)
    table = pairs.table(pairs.latency_seconds, elsewhere=-1.0)
    assert table == pytest.approx(np.array([[expected[0], -1.0], expected[1:]]))
    np.testing.assert_array_equal(pairs.fastest_download, [0, 2])


def test_the_stages_of_a_round_add_up() -> None:
    world = EdgeNetwork()
    for drawn in rounds(world, 5):
        stage = drawn.signals
        total = stage["download_seconds"] + stage["upload_seconds"]
        total = total + stage["compute_seconds"][:, None]
        here = coverage(drawn) > 0
        assert drawn.latency_seconds[here] == pytest.approx(total[here])
        assert np.isinf(drawn.latency_seconds[~here]).all()
        assert stage["compute_seconds"].min() >= 2.41 / 4.0
        assert stage["compute_seconds"].max() <= 2.41 / 2.0


def test_table_one() -> None:
    mnist, cifar = EdgeNetwork(), EdgeNetwork.cifar(num_clients=60)
    for world, budget, deadline, clients in ((mnist, 3.5, 3.0, 50), (cifar, 40.0, 20.0, 60)):
        run = world.start(1)
        assert (run.problem.num_clients, run.problem.cohort_size) == (clients, clients)
        assert (run.problem.num_edges, run.problem.num_features) == (3, 2)
        drawn = run.realise(1)
        assert drawn.edges is not None
        np.testing.assert_array_equal(drawn.edges.budget, [budget] * 3)
        assert drawn.time.deadline_seconds == deadline
    assert (cifar.download_mbit, cifar.upload_mbit, cifar.workload) == (18.7, 18.7, 28.3)
    assert (cifar.bandwidth_mhz, cifar.compute_mhz) == ((2.0, 4.0), (8.0, 15.0))


def test_cost_is_the_price_times_the_compute() -> None:
    run = EdgeNetwork(num_clients=2000).start(3)
    price = run.columns["price"]
    assert stats.kstest(price, stats.uniform(0.5, 1.5).cdf).pvalue > 1e-3
    for t in (1, 2):
        drawn = run.realise(t)
        assert drawn.edges is not None
        compute = 2.41 / drawn.signals["compute_seconds"]
        assert stats.kstest(compute, stats.uniform(2.0, 2.0).cdf).pvalue > 1e-3
        for edge in range(3):
            assert drawn.edges.cost[:, edge] == pytest.approx(price * compute)


@pytest.mark.parametrize("mobility", [Redrawn(), RandomWaypoint()])
def test_coverage_is_within_the_radius(mobility: Any) -> None:
    run = EdgeNetwork(mobility=mobility).start(1)
    centres = run.columns["edge_position_km"]
    np.testing.assert_array_equal(run.columns["position_km"], run.realise(1).position_km)
    assert run.columns["edge_radius_km"] == 2.0
    for t in (1, 7):
        drawn = run.realise(t)
        assert drawn.position_km is not None
        distance = np.linalg.norm(drawn.position_km[:, None] - centres, axis=-1)
        np.testing.assert_array_equal(coverage(drawn) > 0, distance <= 2.0)
        np.testing.assert_array_equal(drawn.available, (distance <= 2.0).any(axis=1))


def test_disjoint_overlapping_and_total_coverage() -> None:
    count = {
        spacing: np.concatenate(
            [coverage(drawn).sum(axis=1) for drawn in rounds(EdgeNetwork(spacing_km=spacing), 20)]
        )
        for spacing in (4.0, 2.5, 0.0)
    }
    assert set(count[4.0]) == {1.0}
    assert set(count[2.5]) == {1.0, 2.0, 3.0}
    assert set(count[0.0]) == {3.0}


def test_uncovered_clients_are_not_available_and_have_no_truth() -> None:
    world = EdgeNetwork(mobility=RandomWaypoint(), spacing_km=15.0)
    drawn = rounds(world, 1)[0]
    assert 0 < np.count_nonzero(drawn.available) < 50
    away = ~drawn.available
    assert drawn.truth.success is not None
    assert not drawn.truth.success[away].any()
    assert np.all(drawn.truth.mean_latency_seconds[away] == 3.0)
    assert not drawn.truth.mean_speed[away].any()


def test_the_context_is_download_rate_and_compute() -> None:
    world = EdgeNetwork()
    for drawn in rounds(world, 3):
        assert drawn.features is not None
        here = coverage(drawn) > 0
        rate = 0.18 / drawn.signals["download_seconds"]
        compute = 2.41 / drawn.signals["compute_seconds"]
        assert drawn.features[here, 0] == pytest.approx(np.minimum(rate / 2.0, 1.0)[here])
        scaled = np.broadcast_to((compute[:, None] - 2.0) / 2.0, here.shape)
        assert drawn.features[here, 1] == pytest.approx(scaled[here])
        assert not drawn.features[~here].any()


def test_contexts_spread_over_the_square() -> None:
    """COCS cuts [0, 1]² into 5 × 5 equal cells: none of them may starve."""
    for world in (EdgeNetwork(), EdgeNetwork.cifar()):
        drawn = rounds(world, 100)
        context = np.concatenate(
            [d.features[coverage(d) > 0] for d in drawn if d.features is not None]
        )
        cells = np.histogram2d(context[:, 0], context[:, 1], bins=5, range=[(0, 1), (0, 1)])[0]
        assert cells.min() > 0.005 * len(context)


def test_the_operator_sees_nothing_of_the_upload() -> None:
    """Worlds that differ in the size of the update alone look the same, and are not."""
    world = EdgeNetwork()
    for one, other in zip(
        rounds(world, 3), rounds(replace(world, upload_mbit=1.0), 3), strict=True
    ):
        assert one.edges is not None
        assert other.edges is not None
        np.testing.assert_array_equal(one.features, other.features)
        np.testing.assert_array_equal(one.edges.coverage, other.edges.coverage)
        np.testing.assert_array_equal(one.edges.cost, other.edges.cost)
        np.testing.assert_array_equal(one.edges.budget, other.edges.budget)
        np.testing.assert_array_equal(one.available, other.available)
        here = one.edges.coverage
        assert np.all(one.latency_seconds[here] < other.latency_seconds[here])


def test_down_and_uplink_share_what_the_distance_does_and_nothing_else() -> None:
    """With one place, bandwidth and no shadowing, the rates of the two links are independent."""
    still = EdgeNetwork(
        num_clients=2000,
        num_edges=1,
        radius_km=0.01,  # all are as near as can be
        bandwidth_mhz=(1.0, 1.0),
        radio=Radio(shadowing_db=0.0),
    )
    for world, related in ((still, False), (EdgeNetwork(num_clients=2000, num_edges=1), True)):
        signals = rounds(world, 1)[0].signals
        links = stats.spearmanr(signals["download_seconds"][:, 0], signals["upload_seconds"][:, 0])
        assert bool(links.pvalue < 1e-3) is related


@pytest.mark.parametrize(
    "world",
    [
        EdgeNetwork(num_clients=1000),
        EdgeNetwork.cifar(num_clients=1000),
        EdgeNetwork(num_clients=1000, mobility=RandomWaypoint(), spacing_km=3.5),
        EdgeNetwork(num_clients=1000, mobility=Redrawn(uniform="distance"), dropout=0.3),
    ],
    ids=["mnist", "cifar", "random-waypoint", "uniform distance, dropout"],
)
def test_success_against_simulation(world: EdgeNetwork) -> None:
    """Success in bins of the context, at each edge: 3 × 20 within 4.5 standard errors.

    Of clients that are drawn independently in each round: those of random waypoint in rounds half
    an hour apart.
    """
    run = world.start(2)
    drawn = [run.realise(t) for t in range(1, 24_001, 600)]
    in_time = np.array([d.latency_seconds <= world.deadline for d in drawn])
    success = np.array([d.truth.success for d in drawn])
    context = np.array([d.features for d in drawn])
    covered = np.array([coverage(d) > 0 for d in drawn])
    assert 0.1 < success[covered].mean() < 0.9
    for edge in range(3):
        here = covered[..., edge]
        p, x, features = (
            success[..., edge][here],
            in_time[..., edge][here],
            context[:, :, edge][here],
        )
        assert np.all((p >= 0) & (p <= 1))
        by_rate = np.array_split(np.argsort(features[:, 0]), 5)
        for column in by_rate:
            for cell in np.array_split(column[np.argsort(features[column, 1])], 4):
                error = np.sqrt(np.mean(p[cell] * (1.0 - p[cell])) / len(cell))
                assert abs(np.mean(x[cell] - p[cell])) < 4.5 * error + 1e-3
    # And it is sharp: as good as the best guess that knows the context.
    assert np.mean((in_time - success)[covered] ** 2) == pytest.approx(
        np.mean((success * (1.0 - success))[covered]), rel=0.03
    )


def test_latency_and_speed_against_simulation() -> None:
    """At the edge with the fastest download; means over all clients within 4 standard errors."""
    world = EdgeNetwork(num_clients=20_000, dropout=0.2)
    run = world.start(4)
    drawn = run.realise(1)
    truth = drawn.truth
    best = np.where(coverage(drawn) > 0, drawn.signals["download_seconds"], np.inf).argmin(axis=1)
    latency = drawn.latency_seconds[np.arange(20_000), best]
    capped = np.minimum(latency, 3.0)
    speed = np.where(latency <= 3.0, run.tau_min_seconds / latency, 0.0)
    for found, expected in ((capped, truth.mean_latency_seconds), (speed, truth.mean_speed)):
        gap = found - expected
        assert abs(gap.mean()) < 4.0 * gap.std() / np.sqrt(20_000)
        assert gap.var() < 0.9 * found.var()  # it knows the context
    usual = EdgeNetwork(num_clients=20_000).start(4).typical_latency_seconds()
    assert np.all(usual == usual[0])
    whole = replace(world, dropout=0.0).start(4).realise(1)
    mean = np.minimum(whole.latency_seconds[np.arange(20_000), best], 3.0).mean()
    assert usual[0] == pytest.approx(mean, rel=0.02)


def test_who_succeeds_is_who_is_in_time() -> None:
    drawn = rounds(EdgeNetwork(dropout=0.5), 1)[0]
    np.testing.assert_array_equal(drawn.truth.succeeds, drawn.latency_seconds <= 3.0)
    assert drawn.truth.success is drawn.truth.success  # computed once


def test_a_hopeless_and_a_certain_deadline() -> None:
    for deadline, expected in ((0.5, 0.0), (1e7, 1.0)):  # computing alone takes 0.6 s
        drawn = rounds(EdgeNetwork(deadline_seconds=deadline), 1)[0]
        assert drawn.truth.success is not None
        assert drawn.truth.success[coverage(drawn) > 0] == pytest.approx(expected, abs=1e-4)
        assert np.isfinite(drawn.truth.mean_latency_seconds).all()
