"""Speeds that change: by the clock, with the same luck for everybody, and exact expectations."""

import math
from typing import Any

import numpy as np
import pytest

from fedmuster.core.arrays import FloatArray
from fedmuster.core.errors import ConfigError
from fedmuster.federation import Federation, Simulation
from fedmuster.worlds import DriftingWorld
from fedmuster.worlds.job_draws import JobDraws
from fedmuster.worlds.laws.latency import LogNormalLatency

JUMPS = DriftingWorld(num_clients=400, every_seconds=10.0)
WAVES = DriftingWorld(num_clients=400, every_seconds=10.0, change="waves")


def slowdowns(world: DriftingWorld, *times: float) -> list[FloatArray]:
    drift = world.start(seed=3).drift
    assert drift is not None
    return [drift(time).slowdown for time in times]


def test_a_client_keeps_its_speed_between_jumps() -> None:
    start, soon, half, later = slowdowns(JUMPS, 0.0, 0.001, 5.0, 10.0)
    assert (start == soon).mean() > 0.99
    # Jumps are spread evenly over the period; five standard deviations of Binomial(400, 1/2).
    assert abs((start == half).sum() - 200) < 50
    assert not (start == later).any()


def test_speeds_after_a_jump_are_log_uniform() -> None:
    levels = np.concatenate([np.log10(found) for found in slowdowns(JUMPS, *range(0, 100, 10))])
    assert levels.min() >= 0.0
    assert levels.max() <= 1.0
    # Five standard deviations of the mean of 4,000 uniform numbers, and of their squares.
    assert levels.mean() == pytest.approx(0.5, abs=5 / math.sqrt(12 * 4000))
    assert (levels**2).mean() == pytest.approx(1 / 3, abs=5 * math.sqrt(4 / 45 / 4000))


def test_waves_come_back() -> None:
    start, quarter, whole = slowdowns(WAVES, 0.0, 2.5, 10.0)
    np.testing.assert_allclose(whole, start)
    np.testing.assert_allclose(
        (2 * np.log10(start) - 1) ** 2 + (2 * np.log10(quarter) - 1) ** 2, 1.0
    )


@pytest.mark.parametrize("world", [JUMPS, WAVES])
def test_the_usual_latency_is_the_mean_over_time(world: DriftingWorld) -> None:
    run = world.start(seed=1)
    assert run.drift is not None
    times = np.arange(0.0, 1000.0, 2.5)
    mean = np.mean([run.drift(time).expectation().mean_latency_seconds for time in times])
    assert run.typical_latency_seconds().mean() == pytest.approx(mean, rel=0.02)


@pytest.mark.parametrize("deadline", [None, 0.3])
def test_the_truth_is_what_is_drawn(deadline: float | None) -> None:
    world = DriftingWorld(num_clients=5, tau_min_seconds=0.09, deadline_seconds=deadline)
    run = world.start(seed=2)
    truth = run.realise(1, now_seconds=30.0).truth
    drawn = np.array([run.realise(t, now_seconds=30.0).latency_seconds for t in range(1, 4001)])
    speed = np.where(drawn <= world.deadline, 0.09 / drawn, 0.0)
    for expected, values in ((truth.mean_latency_seconds, drawn), (truth.mean_speed, speed)):
        error = values.std(axis=0) / math.sqrt(len(values))
        assert (abs(values.mean(axis=0) - expected) <= 5 * error + 1e-12).all()


def test_floors_of_their_own_scale_the_law() -> None:
    factor = np.array([1.0, 2.0, 5.0])
    base = LogNormalLatency(mean=np.ones(3), relative_sd=0.5, floor=0.6)
    scaled = LogNormalLatency(mean=factor, relative_sd=0.5, floor=0.6 * factor)
    np.testing.assert_allclose(scaled.mean_seconds(), factor * base.mean_seconds())
    np.testing.assert_allclose(scaled.mean_inverse(), base.mean_inverse() / factor)
    by_hand = [base.mean_inverse(4.0 / f)[0] / f for f in factor]
    np.testing.assert_allclose(scaled.mean_inverse(4.0), by_hand)
    assert scaled.mean_inverse(1.0).tolist()[1:] == [0.0, 0.0]  # floors of 1.2 and 3


def test_luck_is_paired_in_rounds_and_without() -> None:
    run = JUMPS.start(seed=5)
    jobs = JobDraws(run)
    first, second = jobs.at(0.0), jobs.at(25.0)
    assert run.drift is not None
    np.testing.assert_array_equal(first.latency_seconds, run.realise(1).latency_seconds)
    np.testing.assert_allclose(
        second.latency_seconds / run.drift(25.0).slowdown,
        first.latency_seconds / run.drift(0.0).slowdown,
    )
    np.testing.assert_array_equal(
        second.truth.mean_latency_seconds, run.drift(25.0).expectation().mean_latency_seconds
    )


@pytest.mark.parametrize("federation", [Federation(), Federation(concurrency=10, buffer=3)])
def test_a_run_continues_bit_for_bit(federation: Federation) -> None:
    def begin() -> Simulation[Any]:
        return Simulation("oort", JUMPS, seed=1, federation=federation)

    whole, part, resumed = begin(), begin(), begin()
    rows = [whole.step() for _ in range(60)]
    for _ in range(30):
        part.step()
    resumed.load(part.checkpoint(), source="memory")
    for row in rows[30:]:
        again = resumed.step()
        assert again.seconds == row.seconds
        np.testing.assert_array_equal(again.clients, row.clients)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"fastest_seconds": 0.05}, "fastest_seconds"),
        ({"slowest_seconds": 0.01}, "slowest_seconds"),
        ({"every_seconds": 0.0}, "every_seconds"),
        ({"change": "slides"}, "change"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DriftingWorld(**settings)
    assert caught.value.key == (key,)
