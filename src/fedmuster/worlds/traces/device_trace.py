"""Read what devices and their links can do, from CSV, Parquet or FedScale's own file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

from fedmuster.core.records import FloatArray, IntArray
from fedmuster.worlds.traces.columns import Columns, Table, read_columns
from fedmuster.worlds.traces.fedscale import read_capacities
from fedmuster.worlds.traces.reader import FEDSCALE_ENDINGS, trace_reader

OPTIONAL_COLUMNS = ("compute_gflops", "cores", "memory_gb", "accelerator")
_TABLE = Table(
    required=("client", "compute_ms_per_sample", "bandwidth_kbit_per_second"),
    optional=OPTIONAL_COLUMNS,
    one_row_for="client",
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Devices:
    """What K devices can do.

    Args:
        compute_ms_per_sample: [K], > 0: how long a forward pass takes.
        bandwidth_kbit_per_second: [K], > 0.
        known: [K] by name, what else is known: any of :data:`OPTIONAL_COLUMNS`.
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


@trace_reader("device trace", key=("devices", "path"), fedscale=True)
def read_devices(path: Path) -> Devices:
    """The devices in a file; a table has one row for each client."""
    if path.suffix.lower() in FEDSCALE_ENDINGS:
        compute, bandwidth = read_capacities(path)
        return Devices(compute_ms_per_sample=compute, bandwidth_kbit_per_second=bandwidth)
    return _checked(read_columns(path, _TABLE))


def _checked(columns: Columns) -> Devices:
    client = columns.clients()
    order = np.argsort(client, kind="stable")
    again = np.zeros(len(client), dtype=np.bool_)
    again[order[1:]] = client[order[1:]] == client[order[:-1]]
    columns.refuse_where(again, "client", "each client once")
    compute, bandwidth = (
        columns.numbers(name, "a number > 0", low=1e-9, high=1e15)[order]
        for name in ("compute_ms_per_sample", "bandwidth_kbit_per_second")
    )
    known = {
        name: columns.numbers(name, "a number >= 0", low=0.0, high=1e15)[order]
        for name in OPTIONAL_COLUMNS
        if name in columns.values
    }
    return Devices(compute_ms_per_sample=compute, bandwidth_kbit_per_second=bandwidth, known=known)
