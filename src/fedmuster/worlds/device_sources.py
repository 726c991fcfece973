"""Where devices come from: drawn from published statistics, or from a file."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.config import check_types, require
from fedmuster.core.records import FloatArray
from fedmuster.worlds.layout import beta_law
from fedmuster.worlds.traces.device_trace import Devices, read_devices
from fedmuster.worlds.traces.reader import rows_for

ATTRIBUTES = ("compute_gflops", "cores", "memory_gb", "accelerator", "bandwidth_mbit_per_second")
"""What the server knows of each device."""

_TYPICAL_MS_PER_SAMPLE = 78.0
_GFLOP_PER_SAMPLE = 0.3
"""Of a small vision model's forward pass; only the unit of a column."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnDevices:
    """Devices and links that are like FedScale's on average.

    FedScale's capacity trace (500,000 clients) publishes of the time for a sample its range,
    15 … 199 ms, and its mean, 78 ms; of the bandwidth its range, 1,017 … 204,057 kbit/s, its mean,
    13,736, and its median, about 6,100, to which a log-normal was fitted. All else is this
    package's choice: compute time follows a Beta law on its range, and is independent of
    bandwidth, which follows that log-normal within its range.

    Args:
        compute_ms_range: of the time for the forward pass of a sample.
        compute_ms_mean: its mean over clients.
        compute_ms_sd: its standard deviation over clients. Not published; the ten values that are
            have one of 57.
        bandwidth_log_mean: of ln(kbit/s).
        bandwidth_log_sd: likewise.
        bandwidth_kbit_range: what is drawn outside of it is drawn again.
    """

    name: ClassVar[str] = "drawn"

    compute_ms_range: tuple[float, float] = (15.0, 199.0)
    compute_ms_mean: float = 78.0
    compute_ms_sd: float = 50.0
    bandwidth_log_mean: float = 8.716
    bandwidth_log_sd: float = 1.274
    bandwidth_kbit_range: tuple[float, float] = (1017.0, 204_057.0)

    def __post_init__(self) -> None:
        check_types(self)
        for field in ("compute_ms_range", "bandwidth_kbit_range"):
            low, high = getattr(self, field)
            require(1e-9 <= low < high <= 1e15, self, field, "two numbers > 0, the lower first")
        low, high = self.compute_ms_range
        fits = low < self.compute_ms_mean < high
        require(fits, self, "compute_ms_mean", "a number within compute_ms_range")
        limit = math.sqrt((self.compute_ms_mean - low) * (high - self.compute_ms_mean))
        fits = 0 < self.compute_ms_sd < limit
        require(fits, self, "compute_ms_sd", f"a number in (0, {limit:g}), as the mean and range")
        require(0 < self.bandwidth_log_sd < 100, self, "bandwidth_log_sd", "a number in (0, 100)")
        require(
            self._share_within_range() >= 0.01,
            self,
            "bandwidth_log_mean",
            "a law that is within bandwidth_kbit_range at least once in 100 times",
        )

    def draw(self, num_clients: int, rng: Generator) -> Devices:
        """As many as wanted."""
        low, high = self.compute_ms_range
        mean, sd = (self.compute_ms_mean - low) / (high - low), self.compute_ms_sd / (high - low)
        return Devices(
            compute_ms_per_sample=low + (high - low) * beta_law(mean, sd, num_clients, rng),
            bandwidth_kbit_per_second=self._bandwidth(num_clients, rng),
        )

    def _bandwidth(self, num_clients: int, rng: Generator) -> FloatArray:
        low, high = self.bandwidth_kbit_range
        bandwidth = np.zeros(num_clients)
        outside = np.arange(num_clients)
        while len(outside):
            drawn = rng.lognormal(self.bandwidth_log_mean, self.bandwidth_log_sd, len(outside))
            bandwidth[outside] = drawn
            outside = outside[(drawn < low) | (drawn > high)]
        return bandwidth

    def _share_within_range(self) -> float:
        low, high = (
            math.erf((math.log(end) - self.bandwidth_log_mean) / self.bandwidth_log_sd / 2**0.5)
            for end in self.bandwidth_kbit_range
        )
        return 0.5 * (high - low)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceTrace:
    """Measured devices from a file: FedScale's ``client_device_capacity``, CSV or Parquet.

    A table has the columns ``client``, ``compute_ms_per_sample``, ``bandwidth_kbit_per_second``
    and perhaps some of ``compute_gflops``, ``cores``, ``memory_gb``, ``accelerator``; FedScale's
    own file has no ending, .pkl or .pickle. Where the world has as many clients as the file,
    client k is the k-th of the file; where it has fewer, they are drawn from the file; where it has
    more, each of the file occurs equally often, but for one.

    Args:
        path: relative to the working directory, or absolute.
    """

    name: ClassVar[str] = "device-trace"

    path: str

    def __post_init__(self) -> None:
        check_types(self)

    def draw(self, num_clients: int, rng: Generator) -> Devices:
        """As many as wanted."""
        devices = read_devices(self.path)
        return devices.of_clients(rows_for(num_clients, len(devices.compute_ms_per_sample), rng))


def attributes_of(devices: Devices, rng: Generator) -> FloatArray:
    """[K, 5], what the server knows of each device: :data:`ATTRIBUTES`.

    What a file does not say is made up, so that it tells something of how fast a device is, but
    not all: how many octaves it is faster than a typical device, each time plus N(0, ½²), decides
    on cores (2 … 8), memory (1 … 16 GB) and whether there is an accelerator; the benchmark's GFLOPS
    and the measured bandwidth are right but for a log-normal factor of about 20 %.
    """
    ms, kbit = devices.compute_ms_per_sample, devices.bandwidth_kbit_per_second
    octaves = np.log2(_TYPICAL_MS_PER_SAMPLE / ms)
    for_cores, for_memory, for_accelerator = octaves + 0.5 * rng.standard_normal((3, len(ms)))
    of_compute, of_bandwidth = np.exp(0.2 * rng.standard_normal((2, len(ms))))
    columns = {
        "compute_gflops": 1000.0 * _GFLOP_PER_SAMPLE / ms * of_compute,
        "cores": 2.0 * np.clip(np.rint(for_cores + 2.5), 1.0, 4.0),
        "memory_gb": np.exp2(np.clip(np.rint(for_memory + 2.0), 0.0, 4.0)),
        "accelerator": (for_accelerator > 0.5).astype(np.float64),
        "bandwidth_mbit_per_second": kbit / 1000.0 * of_bandwidth,
    }
    return np.column_stack([devices.known.get(name, columns[name]) for name in ATTRIBUTES])
