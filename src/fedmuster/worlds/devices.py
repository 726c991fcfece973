"""A world of phones: devices and links as in FedScale's traces, and a deadline."""

from dataclasses import dataclass, field
from typing import ClassVar

from numpy.random import Generator

from fedmuster.core.records import FloatArray
from fedmuster.core.streams import LAYOUT, stream
from fedmuster.worlds.activity import OnOff
from fedmuster.worlds.availability import Availability
from fedmuster.worlds.device_sources import DeviceTrace, DrawnDevices, attributes_of
from fedmuster.worlds.layout import speed_groups
from fedmuster.worlds.setting import Setting
from fedmuster.worlds.sum_latency import SumLatency
from fedmuster.worlds.traces.device_trace import Devices
from fedmuster.worlds.world import WorldRun

_ATTRIBUTES_KEY = 2
"""Attributes have a layout stream of their own, so that they leave the devices as they were."""
_PASSES = 3.0
"""A backward pass takes about twice as long as a forward pass (FedScale)."""
_WAYS = 2.0
"""The model is sent down and up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceWorld(Setting):
    """Phones that come and go, train and send, and are in time or not.

    FedSUV's setting on FedScale's devices. A round takes a device

        3 · ms per sample · batch_size · local_steps / 1000  +  2 · model size / bandwidth

    seconds (FedScale), each part times a log-normal fluctuation of mean 1, and at least
    ``tau_min_seconds``. The server knows the attributes of each device (compute, cores, memory,
    accelerator, bandwidth), the round time without fluctuation, and of those who answer the
    seconds of the first part ("compute_seconds") and of the way up ("upload_seconds"), which is
    half of the second: the model is as large on the way down. Each phone has a link of its own, so
    that uploads do not queue up. The column "validity" of reports is the exact probability of
    being in time.

    FedScale has no fluctuation, and FedSUV does not say which it has; ours are about as wide as
    what FLASH's measurements show (training time 1 … 18 %, bandwidth 10 … 100 %).

    Args:
        num_clients: K. FedSUV: 3500.
        cohort_size: m. FedSUV: 20.
        deadline_seconds: FedSUV: 100.
        availability: as in FedScale on average.
        devices: drawn, or from a file.
        batch_size: samples of a step. FedSUV: 10 … 20.
        local_steps: of a round. FedScale's default: 20.
        update_mbit: size of a model; 40 are 1.25 million parameters (ShuffleNet).
        compute_relative_sd: of the first part's fluctuation.
        communication_relative_sd: of the second part's.
        tau_min_seconds: the floor.

    References:
        FedSUV: Validity and Utility-Guided Client Selection for Federated Learning, section 6.1.
        F. Lai, Y. Dai, S. Singapuram, J. Liu, X. Zhu, H. Madhyastha, M. Chowdhury, FedScale:
        Benchmarking Model and System Performance of Federated Learning at Scale, ICML 2022.
        C. Yang, Q. Wang, M. Xu, Z. Chen, K. Bian, Y. Liu, X. Liu, Characterizing Impacts of
        Heterogeneity in Federated Learning upon Large-Scale Smartphone Data, WWW 2021 (FLASH).

    Example:
        >>> run = DeviceWorld(num_clients=40, cohort_size=5).start(seed=1)
        >>> run.problem.attributes.shape, sorted(run.realise(1).signals)
        ((40, 5), ['compute_seconds', 'upload_seconds'])
    """

    name: ClassVar[str] = "devices"

    num_clients: int = 3500
    cohort_size: int = 20
    deadline_seconds: float | None = 100.0
    availability: Availability = field(default_factory=OnOff)
    devices: DrawnDevices | DeviceTrace = field(default_factory=DrawnDevices)
    batch_size: int = 20
    local_steps: int = 20
    update_mbit: float = 40.0
    compute_relative_sd: float = 0.1
    communication_relative_sd: float = 0.4
    tau_min_seconds: float = 1.0

    def __post_init__(self) -> None:
        Setting.__post_init__(self)
        for name in ("num_clients", "batch_size", "local_steps"):
            self.require_count(name)
        self.require_positive("update_mbit", "tau_min_seconds")
        self.require_positive("compute_relative_sd", "communication_relative_sd")

    def start(self, seed: int) -> WorldRun:
        """See :class:`~fedmuster.worlds.world.World`."""
        devices = self.devices.draw(self.num_clients, stream(seed, LAYOUT))
        law = self._law(devices)

        def answers(rng: Generator) -> tuple[FloatArray, dict[str, FloatArray]]:
            compute, communication = law.draw_stages(rng)
            signals = {"compute_seconds": compute, "upload_seconds": communication / _WAYS}
            return law.total(compute, communication), signals

        usual = law.mean_seconds()
        return self.begin(
            seed,
            self.stationary(law, self.tau_min_seconds, answers=answers),
            tau_min_seconds=self.tau_min_seconds,
            groups=speed_groups(usual),
            usual_latency_seconds=usual,
            attributes=attributes_of(devices, stream(seed, LAYOUT, _ATTRIBUTES_KEY)),
            expected_seconds=law.compute + law.communication,
            columns={"validity": (1.0 - self.dropout) * law.in_time(self.deadline)},
        )

    def _law(self, devices: Devices) -> SumLatency:
        samples = float(self.batch_size * self.local_steps)
        model_kbit = 1000.0 * self.update_mbit
        return SumLatency(
            compute=_PASSES * devices.compute_ms_per_sample * samples / 1000.0,
            communication=_WAYS * model_kbit / devices.bandwidth_kbit_per_second,
            compute_relative_sd=self.compute_relative_sd,
            communication_relative_sd=self.communication_relative_sd,
            floor=self.tau_min_seconds,
        )
