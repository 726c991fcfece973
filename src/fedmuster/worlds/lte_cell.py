"""The world of MAB-CS's experiments: one cell of a mobile network."""

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Literal

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import FloatArray
from fedmuster.core.config import require
from fedmuster.core.records import SHORTEST_SECONDS
from fedmuster.core.streams import LAYOUT, stream
from fedmuster.worlds.laws.latency import gauss_legendre, normal_density, partial_mean_inverse
from fedmuster.worlds.layout import ClientData, UniformSizes, speed_groups
from fedmuster.worlds.round_time import RoundTime
from fedmuster.worlds.setting import DATA_KEY, Setting
from fedmuster.worlds.world import WORLDS, WorldRun

_THERMAL_NOISE_DBM_PER_HZ = -174.0
_NEAREST_M = 10.0
"""The path loss of M.2135-1 holds from 10 m on; a client that is nearer counts as at 10 m."""
_USUAL_SAMPLES = 550
"""The mean of 100 … 1000, for data that do not differ between clients."""
MASS: Final = math.erf(math.sqrt(0.5))
"""How much of a normal law is within a standard deviation of its mean, ``Φ(1) - Φ(-1)``."""

_TINIEST = 1e-12
"""The least relative sd in integrals: a smaller one gives the same expectations."""

# Algorithm AS 241 (Wichura 1988): the normal quantile within 0.425 of the median, to 1e-16.
_NUMERATOR = (
    2.5090809287301226727e3,
    3.3430575583588128105e4,
    6.7265770927008700853e4,
    4.5921953931549871457e4,
    1.3731693765509461125e4,
    1.9715909503065514427e3,
    1.3314166789178437745e2,
    3.3871328727963666080e0,
)
_DENOMINATOR = (
    5.2264952788528545610e3,
    2.8729085735721942674e4,
    3.9307895800092710610e4,
    2.1213794301586595867e4,
    5.3941960214247511077e3,
    6.8718700749205790830e2,
    4.2313330701600911252e1,
    1.0,
)


def within_one_sd(share: FloatArray) -> FloatArray:
    """The quantile of the standard normal law truncated to [-1, 1], for shares in [0, 1].

    Example:
        >>> within_one_sd(np.array([0.0, 0.5, 1.0])).round(12)
        array([-1.,  0.,  1.])
    """
    q = MASS * (share - 0.5)  # Eq. 8, solved for x
    r = 0.180625 - q * q
    return np.asarray(q * np.polyval(_NUMERATOR, r) / np.polyval(_DENOMINATOR, r))


def density(z: FloatArray) -> FloatArray:
    """The density of the standard normal law truncated to [-1, 1], for z within."""
    return normal_density(z) / MASS


@dataclass(frozen=True, kw_only=True, slots=True)
class FluctuatingRate:
    """``mean + sd Z`` per second, Z standard normal in [-1, 1]; 0 <= sd < mean, one per client."""

    mean: FloatArray
    sd: FloatArray

    def draw(self, rng: Generator) -> FloatArray:
        """[K], by inversion."""
        return np.asarray(self.mean + self.sd * within_one_sd(rng.random(len(self.mean))))

    def mean_inverse(self) -> FloatArray:
        """[K], ``E[1 / rate]``: the expected seconds for one unit of work."""
        one = np.ones_like(self.mean)
        return partial_mean_inverse(
            density, location=self.mean, scale=self.scale, low=-one, high=one
        )

    @property
    def scale(self) -> FloatArray:
        """The standard deviation, but never 0: an integral over Z divides by it."""
        return np.maximum(self.sd, _TINIEST * self.mean)

    def at(self, z: float) -> FloatArray:
        """[K], the rates at this Z: the slowest at -1, the fastest at 1."""
        return np.asarray(self.mean + z * self.sd)

    def rows(self, rows: slice) -> "FluctuatingRate":
        """The rates of these clients."""
        return FluctuatingRate(mean=self.mean[rows], sd=self.sd[rows])


_NUM_NODES = 48
_CHUNK = 64
"""Clients integrated together: keeps the temporaries at a megabyte whatever K is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateUploadLatency:
    """``tau = samples / compute + bits / throughput``, with rates that fluctuate independently.

    ``samples`` [K] is what each client trains on; ``compute`` is in samples per second, ``bits``
    the size of the model, ``throughput`` in bits per second.
    """

    samples: FloatArray
    compute: FluctuatingRate
    bits: float
    throughput: FluctuatingRate

    def draw_stages(self, rng: Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
        """tau, update and upload of one round."""
        upload = self.bits / self.throughput.draw(rng)  # Eq. 11
        update = self.samples / self.compute.draw(rng)  # Eq. 10
        return update + upload, update, upload

    def draw(self, rng: Generator) -> FloatArray:
        """See :class:`~fedmuster.worlds.laws.latency.LatencyLaw`."""
        return self.draw_stages(rng)[0]

    def shortest_seconds(self) -> float:
        """The shortest latency that any client can have."""
        return float(
            (self.samples / self.compute.at(1.0) + self.bits / self.throughput.at(1.0)).min()
        )

    def mean_seconds(self) -> FloatArray:
        """See :class:`~fedmuster.worlds.laws.latency.LatencyLaw`."""
        upload = self.bits * self.throughput.mean_inverse()
        return np.asarray(self.samples * self.compute.mean_inverse() + upload)

    def mean_inverse(self, deadline_seconds: float = np.inf) -> FloatArray:
        """See :class:`~fedmuster.worlds.laws.latency.LatencyLaw`."""
        result = np.empty_like(self.samples)
        for first in range(0, len(result), _CHUNK):
            rows = slice(first, first + _CHUNK)
            compute, throughput = self.compute.rows(rows), self.throughput.rows(rows)
            part = replace(self, samples=self.samples[rows], compute=compute, throughput=throughput)
            result[rows] = part._mean_inverse(deadline_seconds)
        return result

    def _mean_inverse(self, deadline: float) -> FloatArray:
        """Gauss-Legendre over both rates.

        The integral over the throughput has other limits where only some uploads are in time than
        where all are, so the two parts, which are smooth, are integrated apart.
        """
        some = self._needed(deadline - self.bits / self.throughput.at(1.0))
        every = self._needed(deadline - self.bits / self.throughput.at(-1.0))
        return self._between(some, every, deadline) + self._between(
            every, np.ones_like(every), deadline
        )

    def _needed(self, seconds: FloatArray) -> FloatArray:
        """The Z of the slowest computation that takes at most ``seconds``, in [-1, 1]."""
        rate = self.samples / np.maximum(seconds, SHORTEST_SECONDS)
        return np.clip((rate - self.compute.mean) / self.compute.scale, -1.0, 1.0)

    def _between(self, low: FloatArray, high: FloatArray, deadline: float) -> FloatArray:
        """``E[1/tau; tau <= deadline]`` over computations with Z between ``low`` and ``high``."""
        if not np.any(high > low):
            return np.zeros_like(low)
        z, weight = _nodes(low[:, None], high[:, None])
        rate = self.compute.mean[:, None] + self.compute.scale[:, None] * z
        update = self.samples[:, None] / rate
        mean, scale = self.throughput.mean[:, None], self.throughput.scale[:, None]
        needed = self.bits / np.maximum(deadline - update, SHORTEST_SECONDS)
        slowest = np.clip((needed - mean) / scale, -1.0, 1.0)
        y, inner_weight = _nodes(slowest[..., None], np.ones_like(slowest)[..., None])
        upload = self.bits / (mean[..., None] + scale[..., None] * y)
        inner = np.sum(inner_weight / (update[..., None] + upload), axis=-1)
        return np.asarray(np.sum(weight * inner, axis=-1))


def _nodes(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Nodes between ``low`` and ``high`` on a new last axis, and their shares of probability."""
    nodes, weights = gauss_legendre(_NUM_NODES)
    half = 0.5 * (high - low)
    z = low + half * (1.0 + nodes)
    return z, half * weights * density(z)


@WORLDS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class LTECell(Setting):
    """Clients around a base station, with fluctuating compute and throughput, that upload in turn.

    Clients are uniform in a disc. Their mean throughput follows from path loss and a Shannon
    capacity with losses,

        PL [dB] = 36.7 log10 d[m] + 22.7 + 26 log10 f[GHz]     (ITU-R M.2135-1, urban micro NLOS)
        theta = W min(log2(1 + 10^((SNR - 1.6 dB) / 10)), 4.8);

    their mean speed gamma is uniform. Each round both are drawn anew within a standard deviation
    of their means, from normal laws (Eq. 8) with the variances ``theta^eta`` and ``gamma^eta``
    (in the text below Eq. 9), theta in bit/s and gamma in samples/s. Then ``t_UD = D / gamma`` and
    ``t_UL = M / theta`` (Eq. 10, 11), which answers report as the signals "compute_seconds" and
    "upload_seconds".

    The truth is that of a client alone which has the model already: ``t_UD + t_UL``.

    Args:
        num_clients: K.
        data: how many samples D each client has; 550 where the data do not differ.
        radius_km: of the disc.
        carrier_ghz: f.
        transmit_dbm: power.
        bandwidth_mhz: W; 10 resource blocks have 1.8 MHz.
        link_gain_db: what the paper does not state (noise figure, diversity, shadowing), on top of
            the thermal noise of -174 dBm/Hz. Calibrated: with 12 dB the mean over the disc is
            1.40 Mbit/s and the maximum 8.64, where the paper has 1.4 and 8.6.
        model_megabytes: M.
        samples_per_second: range of gamma, above 1; uniform over clients.
        eta: how much resources fluctuate; below 2, or they could be negative. With 0 the standard
            deviations are 1 bit/s and 1 sample/s. Paper: 0 to 1.99.
        fluctuating: False for resources that are always at their mean.
        uploads: "scheduled" one after the other, after a distribution of the model that takes as
            long as the longest of them (Eq. 1, 2); or "parallel", each on resources of its own.

    References:
        N. Yoshida, T. Nishio, M. Morikura, K. Yamamoto, MAB-based Client Selection for Federated
        Learning with Uncertain Resources in Mobile Networks, IEEE Globecom Workshops 2020.

    Example:
        >>> drawn = LTECell().start(seed=1).realise(1)
        >>> sorted(drawn.signals)
        ['compute_seconds', 'upload_seconds']
    """

    name: ClassVar[str] = "lte-cell"

    num_clients: int = 100
    cohort_size: int = 5
    data: ClientData = field(default_factory=UniformSizes)
    radius_km: float = 2.0
    carrier_ghz: float = 2.5
    transmit_dbm: float = 20.0
    bandwidth_mhz: float = 1.8
    link_gain_db: float = 12.0
    model_megabytes: float = 18.3
    samples_per_second: tuple[float, float] = (10.0, 100.0)
    eta: float = 1.5
    fluctuating: bool = True
    uploads: Literal["scheduled", "parallel"] = "scheduled"

    _SNR_LOSS_DB: ClassVar[float] = 1.6
    _MOST_BITS_PER_HZ: ClassVar[float] = 4.8

    def __post_init__(self) -> None:
        Setting.__post_init__(self)
        self.require_count("num_clients")
        self.require_positive("radius_km", "carrier_ghz", "bandwidth_mhz", "model_megabytes")
        for name in ("transmit_dbm", "link_gain_db"):
            require(abs(getattr(self, name)) <= 200, self, name, "a number in [-200, 200]")
        self.require_range("samples_per_second")
        require(self.samples_per_second[0] > 1, self, "samples_per_second", "numbers above 1")
        # Below 2 the standard deviation mean^(eta/2) of whatever exceeds 1 is less than its mean.
        expected = "a number in [-100, 2): from 2 on, what fluctuates could fall to 0 or below"
        require(-100 <= self.eta < 2, self, "eta", expected)
        edge = float(self.throughput(np.array(1000.0 * self.radius_km)))
        require(edge > 1, self, "radius_km", "a radius at whose end throughput exceeds 1 bit/s")

    def throughput(self, distance_m: FloatArray) -> FloatArray:
        """The mean bit/s of clients at these distances.

        Example:
            >>> LTECell().throughput(np.array([10.0, 500.0, 2000.0])).round(-3)
            array([8640000., 6091000.,  147000.])
        """
        bandwidth = 1e6 * self.bandwidth_mhz
        distance = np.maximum(distance_m, _NEAREST_M)
        path_loss = 36.7 * np.log10(distance) + 22.7 + 26.0 * np.log10(self.carrier_ghz)
        noise = _THERMAL_NOISE_DBM_PER_HZ + 10.0 * np.log10(bandwidth)
        snr = self.transmit_dbm + self.link_gain_db - path_loss - noise
        shannon = np.log2(1.0 + 10.0 ** ((snr - self._SNR_LOSS_DB) / 10.0))
        return np.asarray(bandwidth * np.minimum(shannon, self._MOST_BITS_PER_HZ))

    def start(self, seed: int) -> WorldRun:
        """See :class:`~fedmuster.worlds.world.World`."""
        law = self._law(seed)
        tau_min = law.shortest_seconds()

        def answers(rng: Generator) -> tuple[FloatArray, dict[str, FloatArray]]:
            latency, update, upload = law.draw_stages(rng)
            return latency, {"compute_seconds": update, "upload_seconds": upload}

        usual_latency = law.mean_seconds()
        return self.begin(
            seed,
            self.stationary(law, tau_min, answers=answers),
            tau_min_seconds=tau_min,
            groups=speed_groups(usual_latency),
            usual_latency_seconds=usual_latency,
            time=RoundTime(sequential=self.uploads == "scheduled"),
        )

    def _law(self, seed: int) -> UpdateUploadLatency:
        K, layout = self.num_clients, stream(seed, LAYOUT)
        distance = 1000.0 * self.radius_km * np.sqrt(layout.random(K))  # uniform in the disc
        speed = layout.uniform(*self.samples_per_second, K)
        samples, _ = self.data.draw(K, stream(seed, LAYOUT, DATA_KEY))  # as the problem has them
        return UpdateUploadLatency(
            samples=np.full(K, _USUAL_SAMPLES) if samples is None else samples.astype(np.float64),
            compute=self._rate(speed),
            bits=8e6 * self.model_megabytes,
            throughput=self._rate(self.throughput(distance)),
        )

    def _rate(self, mean: FloatArray) -> FluctuatingRate:
        # sigma^2 = theta^eta, in the text below Eq. 9
        sd = mean ** (0.5 * self.eta) if self.fluctuating else np.zeros_like(mean)
        return FluctuatingRate(mean=mean, sd=sd)
