"""Servers whose mean can be told how much each update weighs."""

from dataclasses import replace

import numpy as np

from fedmuster.core.errors import ConfigError
from fedmuster.core.records import FloatArray
from fedmuster.learning.aggregation import FedAvg, FedMedian, FedTrimmedMean, Server
from fedmuster.learning.combine import UniformMean, WeightedMean


def weighted_server(
    server: Server, data: FloatArray, *, clips: bool = True
) -> tuple[Server, FloatArray]:
    """The same server, but one that heeds any weights, and [K] what clients weigh in its mean.

    Args:
        server: which means by data, or uniformly. Medians and trimmed means weigh nobody.
        data: [K], how much each client has.
        clips: whether single updates reach the server, so that it can clip them.
    """
    if not clips and server.clip_norm is not None:
        raise ConfigError(
            f"{type(server).__name__}: clip_norm = {server.clip_norm!r} shortens single updates, "
            "but this policy (SAFA) averages the last models of all clients; leave clip_norm out",
            key=("server", "clip_norm"),
        )
    alike = np.ones(len(data))
    if isinstance(server, FedAvg):
        if server.weights == "uniform":
            return replace(server, weights="data"), alike
        return server, data
    if not isinstance(server, FedMedian | FedTrimmedMean):
        if isinstance(server.combine, UniformMean):
            return replace(server, combine=WeightedMean()), alike
        if isinstance(server.combine, WeightedMean):
            return server, data
    raise ConfigError(
        f"{type(server).__name__}: this policy says how much late updates weigh, which a median or "
        "trimmed mean cannot heed; choose a server that averages, for example fedavg",
        key=("server",),
    )
