"""The world in which MAB-CS was tried: one cell of a mobile network."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import FloatArray
from fedmuster.core.config import require
from fedmuster.core.streams import LAYOUT, stream
from fedmuster.worlds.laws.update_upload import FluctuatingRate, UpdateUploadLatency
from fedmuster.worlds.layout import ClientData, UniformSizes, speed_groups
from fedmuster.worlds.setting import DATA_KEY, Setting
from fedmuster.worlds.world import WorldRun

_THERMAL_NOISE_DBM_PER_HZ = -174.0
_NEAREST_M = 10.0
"""The path loss is that of M.2135-1 from 10 m on; whoever is nearer counts as there."""
_USUAL_SAMPLES = 550
"""The mean of 100 … 1000, where the data say that all clients have alike."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LTECell(Setting):
    """Clients around a base station, whose compute and throughput fluctuate, and who queue up.

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
        data: how many samples D each client has; 550 where all have alike.
        radius_km: of the disc.
        carrier_ghz: f.
        transmit_dbm: power.
        bandwidth_mhz: W; 10 resource blocks have 1.8 MHz.
        link_gain_db: all that the paper leaves unsaid (noise figure, diversity, shadowing) in one
            number, on top of the thermal noise of -174 dBm/Hz. Calibrated: with 12 dB the mean
            over the disc is 1.40 Mbit/s and the maximum 8.64, where the paper has 1.4 and 8.6.
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
            update, upload = law.draw_stages(rng)
            signals = {"compute_seconds": update, "upload_seconds": upload}
            return law.total(update, upload), signals

        usual_latency = law.mean_seconds()
        return self.begin(
            seed,
            self.stationary(law, tau_min, answers=answers),
            tau_min_seconds=tau_min,
            groups=speed_groups(usual_latency),
            usual_latency_seconds=usual_latency,
            sequential=self.uploads == "scheduled",
        )

    def _law(self, seed: int) -> UpdateUploadLatency:
        """Who is where, with how much data and how fast a processor."""
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
