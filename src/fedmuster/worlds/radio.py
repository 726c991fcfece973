"""Radio links between clients and edge servers: path loss, shadowing, fading, Shannon's rate."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.worlds.laws.latency import gauss_legendre

_THERMAL_NOISE_DBM_PER_MHZ = -174.0 + 60.0
_NEAREST_KM = 0.01
"""COCS's path loss has no limit at 0 km: a client that is nearer counts as at this distance."""

NEPERS_PER_DB = np.log(10.0) / 10.0
"""A decibel of power, in natural logarithms."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Radio:
    """The signal-to-noise ratio of a link (COCS Sec. III-C and VI-A).

    Large-scale gain: path loss ``128.1 + 37.6 log10 d[km]`` dB and log-normal shadowing. On top
    of it comes Rayleigh fading: the power is exponential with mean 1. The noise power N0 is
    thermal, -174 dBm/Hz, over the allocated bandwidth, with a noise figure.

    Args:
        transmit_dbm: P, of both ends. Paper: 23.
        shadowing_db: standard deviation of the shadowing; 0 for none. The paper has "random
            shadowing" and no number.
        noise_figure_db: of the receivers, and whatever else the paper does not state of N0.
            Calibrated: with 5 dB, a deadline of 8 s instead of 4 s gives the best placements 5 %
            more participants, as the paper reports (5,125 and 5,378, COCS Sec. VI-C).
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
        """``ln(P G / N0)`` over 1 MHz, without shadowing and fading.

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
    """``128.1 + 37.6 log10 d`` (COCS Sec. VI-A)."""
    return np.asarray(128.1 + 37.6 * np.log10(np.maximum(distance_km, _NEAREST_KM)))


def rate_mbit_per_second(
    bandwidth_mhz: FloatArray, log_snr: FloatArray, fading: FloatArray
) -> FloatArray:
    """``b c = b log2(1 + P g / N0)`` (COCS Eq. 4), where N0 grows with the bandwidth b.

    ``log_snr`` is over 1 MHz and includes shadowing; ``fading`` is a power with mean 1.

    Example:
        >>> rate_mbit_per_second(np.array(2.0), np.log(3.0), np.array(2.0))
        array(4.)
    """
    snr = np.exp(log_snr) * fading / bandwidth_mhz
    return np.asarray(bandwidth_mhz * np.log1p(snr) / np.log(2.0))  # COCS Eq. 4


def transfer_seconds(megabits: float, rate: FloatArray) -> FloatArray:
    """``a / r``, the time to send ``megabits`` at rates in Mbit/s; long but finite at rate 0."""
    return np.asarray(megabits / np.maximum(rate, 1e-100))


_NUM_BANDWIDTHS = 16
_STEP = 0.05  # of logarithms of signal-to-noise ratios: small against the 1.3 of Rayleigh fading
_TAIL = 8.0  # standard deviations of the shadowing that are kept
_CHUNK = 4096


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class UplinkLaw:
    """``P(r_UT >= rho | r_DT = r)`` at each edge: COCS's ``p_{n,m}`` of a context.

    Both rates come from the same bandwidth b and the same large-scale signal-to-noise ratio
    ``G`` (over 1 MHz: path loss, shadowing), with independent Rayleigh fading h:
    ``r = b log2(1 + G h / b)``. That ``r_DT = r`` weighs each (b, G) by the density of
    ``h = b (2^(r/b) - 1) / G``, which is ``ln 2 · 2^(r/b) e^-h / G``. So with

        Psi(s) = E[e^(-s / G) / G]  over the law of G at an edge,
        p = E_b[2^(r/b) Psi(s_b(r) + s_b(rho))] / E_b[2^(r/b) Psi(s_b(r))],
        s_b(r) = b (2^(r/b) - 1).

    ``ln Psi`` is smooth in ``ln s``: it is tabulated once for all.

    ``bandwidth_mhz`` and ``bandwidth_weight`` [n] are the nodes of the law of b; the columns of the
    table ``log_psi`` [M, S] follow ``first_log_s`` in steps of 0.05.
    """

    bandwidth_mhz: FloatArray
    bandwidth_weight: FloatArray
    first_log_s: float
    log_psi: FloatArray

    @classmethod
    def of(
        cls, log_snr: Sequence[FloatArray], *, shadowing: float, bandwidth_mhz: tuple[float, float]
    ) -> Self:
        """The law for a bandwidth that is uniform in the range ``bandwidth_mhz``.

        ``log_snr`` has a sample [n_m] of ``ln G`` without shadowing for each edge; ``shadowing`` is
        the standard deviation that shadowing adds to ``ln G``, 0 for none.
        """
        tail = int(np.ceil(_TAIL * shadowing / _STEP))
        lowest = min(float(values.min()) for values in log_snr)
        highest = max(float(values.max()) for values in log_snr)
        size = int(np.ceil((highest - lowest) / _STEP)) + 1
        x = lowest + _STEP * np.arange(-tail, size + tail)  # nodes of ln G
        bell = np.exp(-0.5 * (_STEP / max(shadowing, 1e-9) * np.arange(-tail, tail + 1)) ** 2)
        bell /= bell.sum()
        weight = np.empty((len(log_snr), len(x)))
        for row, values in zip(weight, log_snr, strict=True):
            node = np.rint((values - lowest) / _STEP).astype(np.int64)
            row[:] = np.convolve(np.bincount(node, minlength=size) / len(values), bell)
        # Psi is constant far below the lowest G, and too small for a number far above the highest.
        log_s = np.arange(x[0] - 15.0, x[-1] + 7.0, _STEP)
        psi = (weight * np.exp(-x)) @ np.exp(-np.exp(log_s - x[:, None]))
        nodes, node_weights = gauss_legendre(_NUM_BANDWIDTHS)
        low, high = bandwidth_mhz
        return cls(
            bandwidth_mhz=low + 0.5 * (high - low) * (1.0 + nodes),
            bandwidth_weight=node_weights,
            first_log_s=float(log_s[0]),
            log_psi=np.log(np.maximum(psi, np.finfo(np.float64).tiny)),
        )

    def at_least(self, edge: IntArray, download: FloatArray, upload: FloatArray) -> FloatArray:
        """[P, n], the probability that the uplink of a pair reaches the rate ``upload`` [P, n].

        ``edge`` [P] and ``download`` [P] (Mbit/s, > 0) describe the pairs; ``upload`` may be
        infinite.
        """
        result = np.empty(upload.shape)
        for first in range(0, len(edge), _CHUNK):
            rows = slice(first, first + _CHUNK)
            result[rows] = self._at_least(edge[rows], download[rows], upload[rows])
        return result

    def _at_least(self, edge: IntArray, download: FloatArray, upload: FloatArray) -> FloatArray:
        bits = np.log(2.0) * download[:, None] / self.bandwidth_mhz  # [P, b]
        log_s = self._log_s(download[:, None])
        likelihood = bits + self._log_psi(edge[:, None], log_s)
        scale = likelihood.max(axis=1, keepdims=True)
        evidence = np.exp(likelihood - scale) @ self.bandwidth_weight
        with np.errstate(invalid="ignore"):  # infinite rates need infinite signals, see below
            both = np.logaddexp(log_s[:, None, :], self._log_s(upload[..., None]))  # [P, n, b]
        joint = (bits - scale)[:, None, :] + self._log_psi(edge[:, None, None], both)
        return np.asarray(
            np.where(
                np.isinf(upload), 0.0, np.exp(joint) @ self.bandwidth_weight / evidence[:, None]
            )
        )

    def _log_s(self, rate: FloatArray) -> FloatArray:
        """``ln(b (2^(r/b) - 1))`` at every bandwidth on the last axis; no rate is too high."""
        bits = np.log(2.0) * rate / self.bandwidth_mhz
        with np.errstate(divide="ignore"):  # ln 0 for the rate 0
            return np.asarray(np.log(self.bandwidth_mhz) + bits + np.log(-np.expm1(-bits)))

    def _log_psi(self, edge: IntArray, log_s: FloatArray) -> FloatArray:
        """The table at ``log_s``, linear in between, constant beyond its ends."""
        last = self.log_psi.shape[1] - 1
        place = np.clip((log_s - self.first_log_s) / _STEP, 0.0, last)
        left = np.minimum(place.astype(np.int64), last - 1)
        share = place - left
        lower, upper = self.log_psi[edge, left], self.log_psi[edge, left + 1]
        return np.asarray(lower + share * (upper - lower))
