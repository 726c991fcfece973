"""A world of phones: devices and links as in FedScale's traces, and a deadline."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.streams import LAYOUT, stream
from fedmuster.worlds.availability import Availability, OnOff
from fedmuster.worlds.fedscale_files import read_capacities
from fedmuster.worlds.laws.two_stages import SumLatency
from fedmuster.worlds.layout import beta_law, speed_groups
from fedmuster.worlds.setting import Setting
from fedmuster.worlds.trace_files import (
    FEDSCALE_ENDINGS,
    TraceFile,
    TraceTable,
    read_columns,
    rows_for,
    trace_reader,
)
from fedmuster.worlds.world import WORLDS, WorldRun

OPTIONAL_COLUMNS = ("compute_gflops", "cores", "memory_gb", "accelerator")
ATTRIBUTES = (*OPTIONAL_COLUMNS, "bandwidth_mbit_per_second")
"""What the server knows of each device."""

_TYPICAL_MS_PER_SAMPLE = 78.0
_GFLOP_PER_SAMPLE = 0.3
"""Of a small vision model's forward pass; only the unit of a column."""
_ATTRIBUTES_KEY = 2
"""Attributes have a layout stream of their own, so that they leave the devices as they were."""
_PASSES = 3.0
"""A backward pass takes about twice as long as a forward pass (FedScale)."""
_WAYS = 2.0
"""The model is sent down and up."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Devices:
    """What K devices can do: the time of a forward pass and the bandwidth, [K] and > 0.

    ``known`` [K] by name has what else is known, any of :data:`OPTIONAL_COLUMNS`.
    """

    compute_ms_per_sample: FloatArray
    bandwidth_kbit_per_second: FloatArray
    known: Mapping[str, FloatArray] = field(default_factory=dict)

    def of_clients(self, clients: IntArray) -> Self:
        """The same for these clients, which may be repeated, in this order."""
        return type(self)(
            compute_ms_per_sample=self.compute_ms_per_sample[clients],
            bandwidth_kbit_per_second=self.bandwidth_kbit_per_second[clients],
            known={name: values[clients] for name, values in self.known.items()},
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnDevices:
    """Random devices and links with the means of FedScale's capacity trace.

    Published of that trace (500,000 clients): the time for a sample has the range 15 … 199 ms and
    the mean 78 ms; the bandwidth has the range 1,017 … 204,057 kbit/s, the mean 13,736 and the
    median about 6,100, to which a log-normal was fitted. All else is this package's choice: compute
    time follows a Beta law on its range, independently of bandwidth, which follows that log-normal
    within its range.

    Args:
        compute_ms_range: of the time for the forward pass of a sample.
        compute_ms_mean: its mean over clients.
        compute_ms_sd: its standard deviation over clients. Not published; the ten published
            values have one of 57.
        bandwidth_log_mean: mean of ln(kbit/s).
        bandwidth_log_sd: standard deviation of ln(kbit/s).
        bandwidth_kbit_range: values outside of it are drawn again.
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
        for name in ("compute_ms_range", "bandwidth_kbit_range"):
            low, high = getattr(self, name)
            require(1e-9 <= low < high <= 1e15, self, name, "two numbers > 0, the lower first")
        low, high = self.compute_ms_range
        fits = low < self.compute_ms_mean < high
        require(fits, self, "compute_ms_mean", "a number within compute_ms_range")
        limit = math.sqrt((self.compute_ms_mean - low) * (high - self.compute_ms_mean))
        fits = 0 < self.compute_ms_sd < limit
        require(fits, self, "compute_ms_sd", f"a number in (0, {limit:g}), as the mean and range")
        require(0 < self.bandwidth_log_sd < 100, self, "bandwidth_log_sd", "a number in (0, 100)")
        expected = "a law that is within bandwidth_kbit_range at least once in 100 times"
        require(self._share_within_range() >= 0.01, self, "bandwidth_log_mean", expected)

    def draw(self, num_clients: int, rng: Generator) -> Devices:
        """The devices of ``num_clients`` clients."""
        low, high = self.compute_ms_range
        mean, sd = (self.compute_ms_mean - low) / (high - low), self.compute_ms_sd / (high - low)
        return Devices(
            compute_ms_per_sample=low + (high - low) * beta_law(mean, sd, num_clients, rng),
            bandwidth_kbit_per_second=self._bandwidth(num_clients, rng),
        )

    def _bandwidth(self, num_clients: int, rng: Generator) -> FloatArray:
        low, high = self.bandwidth_kbit_range
        bandwidth, outside = np.zeros(num_clients), np.arange(num_clients)
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
class DeviceTrace(TraceFile):
    """Measured devices from a file: FedScale's ``client_device_capacity``, CSV or Parquet.

    A table has the columns ``client``, ``compute_ms_per_sample``, ``bandwidth_kbit_per_second``
    and perhaps some of ``compute_gflops``, ``cores``, ``memory_gb``, ``accelerator``; FedScale's
    own file has no ending, .pkl or .pickle. Where the world has as many clients as the file,
    client k is the k-th of the file; where it has fewer, they are drawn from the file; where it has
    more, each of the file occurs equally often, up to one.

    Args:
        path: relative to the working directory, or absolute.
    """

    name: ClassVar[str] = "device-trace"

    def draw(self, num_clients: int, rng: Generator) -> Devices:
        """The devices of ``num_clients`` clients, from the file."""
        devices = read_devices(self.path)
        return devices.of_clients(rows_for(num_clients, len(devices.compute_ms_per_sample), rng))


_DEVICES = TraceTable(
    required=("client", "compute_ms_per_sample", "bandwidth_kbit_per_second"),
    optional=OPTIONAL_COLUMNS,
    one_row_for="client",
)


@trace_reader("device trace", key=("devices", "path"), fedscale=True)
def read_devices(path: Path) -> Devices:
    """The devices in a file; a table has one row for each client."""
    if path.suffix.lower() in FEDSCALE_ENDINGS:
        compute, bandwidth = read_capacities(path)
        return Devices(compute_ms_per_sample=compute, bandwidth_kbit_per_second=bandwidth)
    columns = read_columns(path, _DEVICES)
    client = columns.clients()
    order = np.argsort(client, kind="stable")
    again = np.zeros(len(client), dtype=np.bool_)
    again[order[1:]] = client[order[1:]] == client[order[:-1]]
    columns.refuse_where(again, "client", "each client once")
    compute, bandwidth = (
        columns.numbers(name, low=1e-9, high=1e15)[order] for name in _DEVICES.required[1:]
    )
    there = [name for name in OPTIONAL_COLUMNS if name in columns.values]
    known = {name: columns.numbers(name, low=0.0, high=1e15)[order] for name in there}
    return Devices(compute_ms_per_sample=compute, bandwidth_kbit_per_second=bandwidth, known=known)


def attributes_of(devices: Devices, rng: Generator) -> FloatArray:
    """[K, 5], what the server knows of each device: :data:`ATTRIBUTES`.

    Attributes that a file does not hold are drawn so that they tell part of how fast a device is:
    cores (2 … 8), memory (1 … 16 GB) and accelerator follow from how many octaves the device is
    faster than a typical one, plus N(0, ½²) for each; the benchmark's GFLOPS and the measured
    bandwidth are right up to a log-normal factor of about 20 %.
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


@WORLDS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceWorld(Setting):
    """Phones that come and go, with measured speeds and links, and a deadline.

    FedSUV's setting on FedScale's devices. A round takes a device

        3 · ms per sample · batch_size · local_steps / 1000  +  2 · model size / bandwidth

    seconds (FedScale), each part times a log-normal fluctuation of mean 1, and at least
    ``tau_min_seconds``. The server knows the attributes of each device (compute, cores, memory,
    accelerator, bandwidth) and the round time without fluctuation. Answers report the seconds of
    the first part ("compute_seconds") and of the upload ("upload_seconds"), which is half of the
    second part: the model is as large on the way down. Each phone has a link of its own, so uploads
    do not queue. The column "validity" of reports is the exact probability of being in time.

    FedScale has no fluctuation, and FedSUV does not state its own; the defaults are about as wide
    as FLASH's measurements (training time 1 … 18 %, bandwidth 10 … 100 %).

    Args:
        num_clients: K. FedSUV: 3500.
        cohort_size: m. FedSUV: 20.
        deadline_seconds: FedSUV: 100.
        availability: by default with the means of FedScale's trace.
        devices: drawn, or from a file.
        batch_size: samples of a step. FedSUV: 10 … 20.
        local_steps: of a round. FedScale's default: 20.
        update_mbit: size of a model; 40 are 1.25 million parameters (ShuffleNet).
        compute_relative_sd: fluctuation of the first part.
        communication_relative_sd: fluctuation of the second part.
        tau_min_seconds: the shortest latency.

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
        self.require_count("num_clients", "batch_size", "local_steps")
        self.require_positive("update_mbit", "tau_min_seconds")
        self.require_positive("compute_relative_sd", "communication_relative_sd")

    def start(self, seed: int) -> WorldRun:
        """See :class:`~fedmuster.worlds.world.World`."""
        devices = self.devices.draw(self.num_clients, stream(seed, LAYOUT))
        samples = float(self.batch_size * self.local_steps)
        law = SumLatency(
            compute=_PASSES * devices.compute_ms_per_sample * samples / 1000.0,
            communication=_WAYS * (1000.0 * self.update_mbit) / devices.bandwidth_kbit_per_second,
            compute_relative_sd=self.compute_relative_sd,
            communication_relative_sd=self.communication_relative_sd,
            floor=self.tau_min_seconds,
        )

        def answers(rng: Generator) -> tuple[FloatArray, dict[str, FloatArray]]:
            latency, compute, communication = law.draw_stages(rng)
            signals = {"compute_seconds": compute, "upload_seconds": communication / _WAYS}
            return latency, signals

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
