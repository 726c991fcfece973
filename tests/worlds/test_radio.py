"""Radio links: path loss, noise and Shannon's rate by hand; the hidden uplink by simulation."""

import numpy as np
import pytest

from fedmuster.core.errors import ConfigError
from fedmuster.core.records import FloatArray
from fedmuster.worlds.radio import (
    Radio,
    UplinkLaw,
    path_loss_db,
    rate_mbit_per_second,
    transfer_seconds,
)


def test_path_loss_by_hand() -> None:
    loss = path_loss_db(np.array([1.0, 10.0, 0.1, 2.0]))
    assert loss == pytest.approx([128.1, 165.7, 90.5, 128.1 + 37.6 * np.log10(2.0)])


def test_nobody_is_nearer_than_ten_metres() -> None:
    assert path_loss_db(np.array([0.0, 0.01])) == pytest.approx([52.9, 52.9])


def test_rate_by_hand() -> None:
    """At 1 km: 23 dBm - 128.1 dB over -114 dBm + 5 dB of noise in 1 MHz, so 3.9 dB."""
    radio = Radio(noise_figure_db=5.0)
    log_snr = radio.log_snr(np.array(1.0))
    assert 10.0 * float(log_snr) / np.log(10.0) == pytest.approx(3.9)
    # Half the bandwidth has half the noise: b log2(1 + 2 · 10^0.39 · h).
    rate = rate_mbit_per_second(np.array(0.5), log_snr, np.array(0.7))
    assert float(rate) == pytest.approx(0.5 * np.log2(1.0 + 2.0 * 10.0**0.39 * 0.7))


def test_tiny_and_huge_signals_keep_their_digits() -> None:
    one = np.array(1.0)
    tiny = rate_mbit_per_second(one, np.array(np.log(1e-20)), one)
    assert float(tiny) == pytest.approx(1e-20 / np.log(2.0))
    huge = rate_mbit_per_second(one, np.array(np.log(1e30)), one)
    assert float(huge) == pytest.approx(30.0 * np.log2(10.0))


def test_transfers_take_long_without_a_signal_but_no_warning() -> None:
    seconds = transfer_seconds(0.18, np.array([0.09, 0.0]))
    assert seconds[0] == 2.0
    assert 1e90 < seconds[1] < np.inf


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shadowing_db", -1.0),
        ("shadowing_db", 21.0),
        ("transmit_dbm", 201.0),
        ("noise_figure_db", float("nan")),
    ],
)
def test_radio_refuses(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        Radio(**{name: value})


def links(
    log_snr: FloatArray, shadowing: float, bandwidth: tuple[float, float], seed: int
) -> tuple[FloatArray, FloatArray]:
    """Down- and uplink rates, drawn as the paper's Sec. VI-A says and not as the law has it."""
    rng = np.random.default_rng(seed)
    snr = np.exp(log_snr + shadowing * rng.standard_normal(len(log_snr)))
    b = rng.uniform(*bandwidth, len(log_snr))
    fading = np.square(rng.standard_normal((2, 2, len(log_snr)))).sum(axis=0) / 2.0
    down, up = b * np.log2(1.0 + snr * fading / b)
    return down, up


@pytest.mark.parametrize(
    ("shadowing", "bandwidth"), [(0.0, (2.0, 2.0)), (0.3, (0.3, 1.0)), (1.84, (0.3, 1.0))]
)
def test_the_uplink_given_the_downlink(shadowing: float, bandwidth: tuple[float, float]) -> None:
    """Twelve bins of r_DT by three rates, each within 4.5 standard errors: < 1e-3 in all."""
    count = 60_000
    rng = np.random.default_rng(5)
    log_snr = 1.0 - 1.88 * np.log(rng.random(count))
    law = UplinkLaw.of([log_snr], shadowing=shadowing, bandwidth_mhz=bandwidth)
    down, up = links(log_snr, shadowing, bandwidth, seed=6)
    rates = np.quantile(up, [0.1, 0.4, 0.8])
    edge = np.zeros(count, dtype=np.int64)
    expected = law.at_least(edge, down, np.broadcast_to(rates, (count, 3)))
    assert expected.min() >= 0.0
    assert expected.max() <= 1.0 + 1e-9
    surprise = (up[:, None] >= rates) - expected
    for bin_ in np.array_split(np.argsort(down), 12):
        error = np.sqrt(np.mean(expected[bin_] * (1.0 - expected[bin_]), axis=0) / len(bin_))
        assert np.all(np.abs(surprise[bin_].mean(axis=0)) < 4.5 * error + 1e-3)


def test_without_anything_hidden_but_the_fading_it_is_exponential() -> None:
    """One bandwidth and one gain: the downlink says nothing new, P(h >= s / G) = e^(-s / G)."""
    law = UplinkLaw.of([np.full(3, np.log(5.0))], shadowing=0.0, bandwidth_mhz=(2.0, 2.0))
    rate = np.array([[0.0, 0.5, 3.0, np.inf]])
    expected = np.exp(-2.0 * (2.0 ** (rate / 2.0) - 1.0) / 5.0)
    for download in (1e-9, 0.3, 8.0):
        found = law.at_least(np.zeros(1, dtype=np.int64), np.array([download]), rate)
        # Interpolation between ln s in steps of 0.05: up to s / G · 0.05² / 8.
        assert found == pytest.approx(expected, abs=1e-3)


def test_each_edge_has_its_own_law() -> None:
    near, far = np.full(2, 6.0), np.full(2, -2.0)
    law = UplinkLaw.of([near, far], shadowing=1.0, bandwidth_mhz=(0.3, 1.0))
    both = law.at_least(np.array([0, 1]), np.array([1.0, 1.0]), np.array([[1.0], [1.0]]))
    assert both[0, 0] > 0.8 > 0.6 > both[1, 0]
