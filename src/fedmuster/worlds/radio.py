"""Radio links between clients and edge servers: path loss, shadowing, fading, Shannon's rate."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.config import check_types, require
from fedmuster.core.records import FloatArray

_THERMAL_NOISE_DBM_PER_MHZ = -174.0 + 60.0
_NEAREST_KM = 0.01
"""The path loss of COCS Sec. VI-A is infinitely small at 0 km: whoever is nearer counts as here."""

NEPERS_PER_DB = np.log(10.0) / 10.0
"""A decibel of power, in natural logarithms."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Radio:
    """COCS Sec. III-C and VI-A: what reaches the other end of a link.

    Large-scale gain: path loss ``128.1 + 37.6 log10 d[km]`` dB and log-normal shadowing. On top
    of it comes Rayleigh fading: the power is exponential with mean 1. The noise power N0 is
    thermal, -174 dBm/Hz, over the allocated bandwidth, with a noise figure.

    Args:
        transmit_dbm: P, of both ends. Paper: 23.
        shadowing_db: standard deviation of the shadowing; 0 for none. The paper has "random
            shadowing" and no number.
        noise_figure_db: of the receivers, and all else that the paper leaves unsaid of N0.
            Calibrated: with 5 dB, a deadline of 8 s instead of 4 s gives the best choices in an
            :class:`~fedmuster.worlds.edge_network.EdgeNetwork` 5 % more participants, as the
            paper reports of its policy (5,125 and 5,378, COCS Sec. VI-C).
    """

    transmit_dbm: float = 23.0
    shadowing_db: float = 8.0
    noise_figure_db: float = 5.0

    def __post_init__(self) -> None:
        check_types(self)
        require(0 <= self.shadowing_db <= 20, self, "shadowing_db", "a number in [0, 20]")
        for name in ("transmit_dbm", "noise_figure_db"):
            require(abs(getattr(self, name)) <= 200, self, name, "a number in [-200, 200]")

    def log_snr(self, distance_km: FloatArray) -> FloatArray:
        """``ln(P G / N0)`` over 1 MHz, but for shadowing and fading.

        Example:
            >>> snr_db = 23 - 128.1 + 114 - 5  # at 1 km
            >>> bool(np.isclose(Radio().log_snr(np.array(1.0)), snr_db * NEPERS_PER_DB))
            True
        """
        noise_dbm = _THERMAL_NOISE_DBM_PER_MHZ + self.noise_figure_db
        return np.asarray(
            NEPERS_PER_DB * (self.transmit_dbm - path_loss_db(distance_km) - noise_dbm)
        )

    @property
    def shadowing_nepers(self) -> float:
        """Standard deviation of ``log_snr`` by shadowing."""
        return float(NEPERS_PER_DB * self.shadowing_db)


def path_loss_db(distance_km: FloatArray) -> FloatArray:
    """``128.1 + 37.6 log10 d`` (COCS Sec. VI-A).

    Example:
        >>> path_loss_db(np.array([0.1, 1.0, 2.0])).round(1)
        array([ 90.5, 128.1, 139.4])
    """
    return np.asarray(128.1 + 37.6 * np.log10(np.maximum(distance_km, _NEAREST_KM)))


def rate_mbit_per_second(
    bandwidth_mhz: FloatArray, log_snr: FloatArray, fading: FloatArray
) -> FloatArray:
    """``b c = b log2(1 + P g / N0)`` (COCS Eq. 4), where N0 grows with the bandwidth b.

    Args:
        bandwidth_mhz: b.
        log_snr: over 1 MHz, shadowing included, see :meth:`Radio.log_snr`.
        fading: the power of the fading, mean 1.

    Example:
        >>> rate_mbit_per_second(np.array(2.0), np.log(3.0), np.array(2.0))
        array(4.)
    """
    snr = np.exp(log_snr) * fading / bandwidth_mhz
    return np.asarray(bandwidth_mhz * np.log1p(snr) / np.log(2.0))  # COCS Eq. 4


def transfer_seconds(megabits: float, rate: FloatArray) -> FloatArray:
    """``a / r``, the time to send so much at these rates in Mbit/s; long but finite at rate 0."""
    return np.asarray(megabits / np.maximum(rate, 1e-100))
