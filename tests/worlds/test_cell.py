"""The LTE cell: throughput and its calibration, fluctuation, expectations, scheduled rounds."""

import tomllib
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import tomli_w
from scipy import integrate, stats

from fedmuster.core.config import named, to_table
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import FloatArray, Selection
from fedmuster.worlds.layout import Alike, ExponentialSizes, UniformSizes
from fedmuster.worlds.lte_cell import (
    FluctuatingRate,
    LTECell,
    UpdateUploadLatency,
    density,
    within_one_sd,
)

STILL = LTECell(fluctuating=False)
BITS = 18.3e6 * 8


def stages(run: Any, round_: int) -> tuple[FloatArray, FloatArray]:
    signals = run.realise(round_).signals
    return signals["compute_seconds"], signals["upload_seconds"]


# --- Throughput ---------------------------------------------------------------------------------


def test_throughput_by_hand() -> None:
    """At 1 km: PL = 36.7 · 3 + 22.7 + 26 log10 2.5 = 143.146 dB.

    Noise -174 + 10 log10 1.8e6 = -111.447 dBm; SNR = 20 + 12 - 143.146 + 111.447 = 0.301 dB;
    10^(-0.1299) = 0.74146; log2 1.74146 = 0.80030; 1.8 MHz of it.
    """
    at = LTECell().throughput(np.array([1000.0, 10.0, 3.0, 0.0]))
    assert at[0] == pytest.approx(1.8e6 * 0.80030, rel=1e-4)
    assert at[1:].tolist() == [8.64e6] * 3  # 4.8 bit/s/Hz at most, and nobody is nearer than 10 m


def test_calibration_of_the_link_gain() -> None:
    """12 dB give the mean over the disc and the maximum that the paper states, 1.4 and 8.6."""

    def mean_mbit(gain: float) -> float:
        world = LTECell(link_gain_db=gain)

        def ring(d: float) -> float:  # density of the distance in a disc: 2 d / R^2
            return float(world.throughput(np.array(d))) * 2 * d / 2000.0**2

        # The cap at 4.8 bit/s/Hz is a kink, which needs an edge of its own.
        edges = [0.0, 10.0, *np.linspace(100.0, 2000.0, 39)]
        parts = [integrate.quad(ring, low, high)[0] for low, high in pairwise(edges)]
        return float(sum(parts)) / 1e6

    assert mean_mbit(LTECell().link_gain_db) == pytest.approx(1.4, abs=0.005)
    assert mean_mbit(11.0) < 1.33
    assert mean_mbit(13.0) > 1.48
    assert float(LTECell().throughput(np.array(10.0))) == pytest.approx(8.6e6, rel=0.005)


def test_clients_are_uniform_in_the_disc() -> None:
    """Uploads of still clients tell their distance, whose square is uniform: K-S at 1e-3."""
    _, upload = stages(LTECell(num_clients=4000, fluctuating=False).start(2), 1)
    distance = np.linspace(10.0, 2000.0, 20_000)
    seconds = BITS / STILL.throughput(distance)
    far = upload > seconds[distance < 600].max()  # nearer, the cap hides the distance
    found = np.interp(upload[far], seconds, distance)
    assert stats.kstest(found**2, stats.uniform(600**2, 2000**2 - 600**2).cdf).pvalue > 1e-3
    assert np.mean(far) == pytest.approx(1 - 0.3**2, abs=4 * np.sqrt(0.0819 / 4000))


# --- Fluctuation --------------------------------------------------------------------------------


def test_truncated_normal_is_that_of_scipy() -> None:
    law = stats.truncnorm(-1.0, 1.0)
    share = np.linspace(0.0, 1.0, 2001)
    np.testing.assert_allclose(within_one_sd(share), law.ppf(share), atol=4e-16, rtol=1e-14)
    z = np.linspace(-1.0, 1.0, 101)
    np.testing.assert_allclose(density(z), law.pdf(z), rtol=1e-13)


@pytest.mark.parametrize("ratio", [0.0, 1e-9, 0.3, 0.9, 0.99])
def test_mean_inverse_of_a_rate_is_that_of_scipy(ratio: float) -> None:
    rate = FluctuatingRate(mean=np.array([5.0, 2e6]), sd=np.array([5.0, 2e6]) * ratio)
    law = stats.truncnorm(-1.0, 1.0)
    expected = integrate.quad(lambda z: law.pdf(z) / (1 + ratio * z), -1, 1, epsabs=1e-13)[0]
    assert rate.mean_inverse() == pytest.approx([expected / 5.0, expected / 2e6], rel=1e-10)


def test_draws_follow_the_law_with_the_papers_variance() -> None:
    """Standardised by ``mean`` and ``mean^(eta/2)``, all rates have one law: K-S at 1e-3 / 2."""
    world, still = LTECell(num_clients=500), LTECell(num_clients=500, fluctuating=False)
    law = stats.truncnorm(-1.0, 1.0)
    run, rest = world.start(4), still.start(4)
    samples = run.problem.num_samples
    assert samples is not None
    for work, part in ((samples, 0), (BITS, 1)):
        mean = work / stages(rest, 1)[part]
        z = [(work / stages(run, t)[part] - mean) / mean**0.75 for t in range(1, 21)]
        assert np.abs(z).max() <= 1 + 1e-9
        assert stats.kstest(np.ravel(z), law.cdf).pvalue > 1e-3 / 2


@pytest.mark.parametrize("eta", [-100.0, 0.0, 1.5, 1.99, 1.9999999])
def test_no_resource_is_ever_negative(eta: float) -> None:
    run = LTECell(num_clients=2000, eta=eta, samples_per_second=(1.01, 100.0)).start(1)
    for t in range(1, 6):
        for seconds in stages(run, t):
            assert np.isfinite(seconds).all()
            assert seconds.min() > 0


def test_without_fluctuation_every_round_is_the_mean() -> None:
    run = STILL.start(3)
    for one, other in zip(stages(run, 1), stages(run, 2), strict=True):
        np.testing.assert_array_equal(one, other)
    update, upload = stages(run, 1)
    truth = run.realise(1).truth
    assert truth.mean_latency_seconds == pytest.approx(update + upload, rel=1e-12)
    assert truth.mean_speed == pytest.approx(run.tau_min_seconds / (update + upload), rel=1e-11)
    assert truth.mean_speed.max() == pytest.approx(1.0)
    samples = run.problem.num_samples
    assert samples is not None
    gamma = samples / update
    assert stats.kstest(gamma, stats.uniform(10, 90).cdf).pvalue > 1e-3


# --- Expectations -------------------------------------------------------------------------------


def law_of(eta: float, num_clients: int = 12) -> UpdateUploadLatency:
    """Clients from the middle of the cell to its edge, with slow and fast processors."""
    theta = LTECell().throughput(np.linspace(100.0, 2000.0, num_clients))
    gamma = np.linspace(10.0, 100.0, num_clients)[np.arange(num_clients) * 5 % num_clients]
    return UpdateUploadLatency(
        samples=np.linspace(1000.0, 100.0, num_clients),
        compute=FluctuatingRate(mean=gamma, sd=gamma ** (eta / 2)),
        bits=BITS,
        throughput=FluctuatingRate(mean=theta, sd=theta ** (eta / 2)),
    )


def latencies(law: UpdateUploadLatency, k: int, y: FloatArray, z: FloatArray) -> FloatArray:
    """Of client k, for all pairs of standardised compute y and throughput z."""
    update = law.samples[k] / (law.compute.mean[k] + law.compute.sd[k] * y)
    upload = BITS / (law.throughput.mean[k] + law.throughput.sd[k] * z)
    return np.asarray(update[:, None] + upload)


@pytest.mark.parametrize("eta", [0.0, 1.5, 1.99])
def test_mean_speed_agrees_with_more_nodes(eta: float) -> None:
    law = law_of(eta)
    z, weight = np.polynomial.legendre.leggauss(400)
    weight *= stats.truncnorm(-1.0, 1.0).pdf(z)
    expected = [weight @ (1.0 / latencies(law, k, z, z)) @ weight for k in range(12)]
    assert law.mean_inverse() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("deadline", [1000.0, 300.0, 80.0, 20.0])
@pytest.mark.parametrize("eta", [0.0, 1.5, 1.99])
def test_mean_speed_within_a_deadline_agrees_with_a_fine_grid(eta: float, deadline: float) -> None:
    """A grid of 1000 quantiles in each rate: at most one in each row is on the wrong side."""
    law = law_of(eta)
    z = stats.truncnorm(-1.0, 1.0).ppf((np.arange(1000) + 0.5) / 1000)
    found = law.mean_inverse(deadline)
    for k in range(0, 12, 2):
        tau = latencies(law, k, z, z)
        expected = np.where(tau <= deadline, 1.0 / tau, 0.0).mean()
        assert found[k] == pytest.approx(expected, abs=1e-3 / deadline, rel=1e-5)


@pytest.mark.parametrize("deadline", [np.inf, 300.0, 100.0])
@pytest.mark.parametrize("eta", [1.0, 1.9, 1.99])
def test_expectations_agree_with_draws(eta: float, deadline: float) -> None:
    """Two-sided z-tests at 1e-3 over all clients and both expectations together (Bonferroni)."""
    law, times = law_of(eta), 20_000
    many = UpdateUploadLatency(
        samples=np.tile(law.samples, times),
        compute=FluctuatingRate(
            mean=np.tile(law.compute.mean, times), sd=np.tile(law.compute.sd, times)
        ),
        bits=BITS,
        throughput=FluctuatingRate(
            mean=np.tile(law.throughput.mean, times), sd=np.tile(law.throughput.sd, times)
        ),
    )
    draws = many.draw(np.random.default_rng(30)).reshape(times, -1)
    for values, expected in (
        (draws, law.mean_seconds()),
        (np.where(draws <= deadline, 1 / draws, 0.0), law.mean_inverse(deadline)),
    ):
        frequent = np.count_nonzero(values, axis=0) >= 100  # enough for a normal approximation
        assert np.all(frequent | (expected < 1e-2 / draws.min(axis=0)))
        error = values.std(axis=0) / np.sqrt(times)
        bound = stats.norm.isf(1e-3 / 2 / (2 * draws.shape[1]))
        gap = np.abs(values.mean(axis=0) - expected)
        assert np.all(gap[frequent] <= bound * error[frequent] + 1e-12)


def test_clients_do_not_see_the_chunks() -> None:
    whole = law_of(1.5, 150).mean_inverse(200.0)
    part = law_of(1.5, 150)
    last = UpdateUploadLatency(
        samples=part.samples[100:],
        compute=part.compute.rows(slice(100, None)),
        bits=BITS,
        throughput=part.throughput.rows(slice(100, None)),
    )
    assert whole[100:] == pytest.approx(last.mean_inverse(200.0), rel=1e-13)


# --- Rounds -------------------------------------------------------------------------------------


def test_a_scheduled_round_is_that_of_eq_1() -> None:
    run = LTECell().start(5)
    drawn = run.realise(2)
    update, upload = drawn.signals["compute_seconds"], drawn.signals["upload_seconds"]
    sequence = [7, 93, 11, 4, 50]
    clients = np.sort(sequence)
    order = np.searchsorted(clients, sequence)
    outcome = drawn.play(Selection(round=2, clients=clients, order=order))
    t, longest = 0.0, 0.0
    for k in sequence:
        grown = max(longest, upload[k])
        t += (grown - longest) + max(update[k] - (t - longest), 0.0) + upload[k]
        longest = grown
    assert outcome.round_seconds == pytest.approx(t, rel=1e-12)
    np.testing.assert_array_equal(outcome.feedback.signals["upload_seconds"], upload[clients])


def test_a_parallel_round_is_as_long_as_its_slowest_client() -> None:
    scheduled, parallel = LTECell().start(5), LTECell(uploads="parallel").start(5)
    clients = np.array([4, 7, 11, 50, 93])
    drawn = parallel.realise(2)
    outcome = drawn.play(Selection(round=2, clients=clients))
    assert outcome.round_seconds == drawn.latency_seconds[clients].max()
    np.testing.assert_array_equal(drawn.latency_seconds, scheduled.realise(2).latency_seconds)
    np.testing.assert_array_equal(
        drawn.latency_seconds, drawn.signals["compute_seconds"] + drawn.signals["upload_seconds"]
    )


def test_the_same_luck_for_the_same_seed() -> None:
    one, other = LTECell().start(5), LTECell().start(5)
    np.testing.assert_array_equal(one.groups, other.groups)
    for t in (3, 1, 2, 3):
        for a, b in zip(stages(one, t), stages(other, t), strict=True):
            np.testing.assert_array_equal(a, b)
    assert not np.array_equal(stages(one, 1)[0], stages(one, 2)[0])
    assert not np.array_equal(stages(one, 1)[1], stages(LTECell().start(6), 1)[1])


def test_fluctuation_leaves_the_layout_alone() -> None:
    """With more of it the same clients stand at the same places, with the same luck."""
    mean = [8.64e6, 1.4e6]
    low, high = LTECell(eta=1.0).start(5), LTECell(eta=1.9).start(5)
    assert low.problem.num_samples is not None
    np.testing.assert_array_equal(low.problem.num_samples, high.problem.num_samples)
    still = BITS / stages(STILL.start(5), 1)[1]
    moved = [BITS / stages(run, 1)[1] - still for run in (low, high)]
    np.testing.assert_array_equal(np.sign(moved[0]), np.sign(moved[1]))
    assert mean[1] < still.max() <= mean[0]


def test_data_sizes_are_those_of_the_paper() -> None:
    problem = LTECell(num_clients=3000).start(1).problem
    sizes = problem.num_samples
    assert sizes is not None
    assert problem.quality is None
    assert (sizes.min(), sizes.max()) == (100, 1000)  # each with probability 96 %
    assert stats.kstest(sizes, stats.randint(100, 1001).cdf).pvalue > 1e-3
    assert (problem.num_clients, problem.cohort_size) == (3000, 5)


def test_other_data() -> None:
    run = LTECell(data=Alike(), fluctuating=False).start(1)
    assert run.problem.num_samples is None
    gamma = 550 / stages(run, 1)[0]
    assert gamma.min() >= 10
    assert gamma.max() <= 100
    sized = LTECell(data=ExponentialSizes(), fluctuating=False).start(1)
    assert sized.problem.num_samples is not None
    assert sized.problem.num_samples / stages(sized, 1)[0] == pytest.approx(gamma, rel=1e-12)


def test_groups_are_by_mean_latency() -> None:
    run = LTECell().start(1)
    usual = run.typical_latency_seconds()
    assert usual == pytest.approx(run.realise(4).truth.mean_latency_seconds)
    assert usual[run.groups == 0].max() < usual[run.groups == 9].min()


# --- Configuration ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "world",
    [
        LTECell(),
        LTECell(eta=1.99, uploads="parallel", data=UniformSizes(low=5, high=6), radius_km=1.0),
        LTECell(fluctuating=False, data=Alike(), samples_per_second=(2.0, 2.0)),
    ],
    ids=repr,
)
def test_configs_survive_toml(world: LTECell) -> None:
    text = tomli_w.dumps(to_table(world))
    assert named({"lte-cell": LTECell}, tomllib.loads(text), key=(), what="world") == world


def test_eta_says_why_it_is_below_2() -> None:
    with pytest.raises(ConfigError, match=r"2.*0"):
        LTECell(eta=2.0)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (LTECell, {"num_clients": 0}),
        (LTECell, {"eta": 2.0}),
        (LTECell, {"eta": float("nan")}),
        (LTECell, {"radius_km": 0.0}),
        (LTECell, {"radius_km": 1e6}),
        (LTECell, {"bandwidth_mhz": -1.8}),
        (LTECell, {"link_gain_db": float("inf")}),
        (LTECell, {"samples_per_second": (1.0, 100.0)}),
        (LTECell, {"samples_per_second": (100.0, 10.0)}),
        (LTECell, {"uploads": "serial"}),
        (LTECell, {"model_megabytes": 0.0}),
        (UniformSizes, {"low": 0}),
        (UniformSizes, {"low": 10, "high": 9}),
        (UniformSizes, {"high": 100.5}),
    ],
)
def test_refusals(kind: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=list(fields)[-1]):
        kind(**fields)
