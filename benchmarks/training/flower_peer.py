"""Flower's simulation engine: a ServerApp with FedAvg and a ClientApp on two Ray actors.

Flower's FedAvg draws cohorts with the global ``random``, so it is given a view of the grid in
which only this round's cohort exists. Clients train with the lean loop, not with a DataLoader.
"""

import logging
from functools import cache
from time import sleep
from typing import Any

import numpy as np
import torch
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

from benchmarks.training.plain_loops import with_slices
from benchmarks.training.turns import Turns
from benchmarks.training.workloads import WORKLOADS, Tensors, Workload
from fedmuster.flower.grid_views import ThroughGrid
from fedmuster.training.training_records import FederatedData

ACTORS = 2


def who(message: Message, context: Context) -> Message:
    """Tell the server which client a node is."""
    client = ConfigRecord({"client": context.node_config["partition-id"]})
    return Message(RecordDict({"who": client}), reply_to=message)


def train(message: Message, context: Context) -> Message:
    """One epoch on the client's own data."""
    config, arrays = message.content["config"], message.content["arrays"]
    assert isinstance(arrays, ArrayRecord)
    name, number = str(config["workload"]), config["server-round"]
    assert isinstance(number, int)
    workload = WORKLOADS[name]
    data, network = _at_home(name)
    client = int(context.node_config["partition-id"])
    begin, end = data.offsets[client : client + 2].tolist()
    network.load_state_dict(arrays.to_torch_state_dict())
    [order] = workload.orders(number, np.array([client]), np.array([end - begin]))
    with_slices(
        network,
        torch.from_numpy(data.inputs[begin:end]),
        torch.from_numpy(data.targets[begin:end]),
        order,
        workload,
    )
    content = RecordDict(
        {
            "arrays": ArrayRecord(network.state_dict()),
            "metrics": MetricRecord({"num-examples": end - begin}),
        }
    )
    return Message(content, reply_to=message)


@cache
def _at_home(name: str) -> tuple[FederatedData, nn.Module]:
    """Made once in each actor."""
    torch.set_num_threads(1)
    return WORKLOADS[name].data(), WORKLOADS[name].network()


class CohortGrid(ThroughGrid):
    """The grid with this round's cohort as its only nodes."""

    def __init__(self, grid: Grid, num_clients: int) -> None:
        super().__init__(grid)
        while len(nodes := list(grid.get_node_ids())) < num_clients:
            sleep(0.1)  # they join after the ServerApp has started
        everyone = [
            Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY)
            for node in nodes
        ]
        self._nodes = {
            reply.content["who"]["client"]: reply.metadata.src_node_id
            for reply in grid.send_and_receive(everyone)
        }
        self.cohort: list[int] = []

    def get_node_ids(self) -> list[int]:
        """The nodes of the cohort."""
        return [self._nodes[client] for client in self.cohort]


def play(turns: Turns, name: str, workload: Workload) -> Tensors:
    """Train with Flower's own loop, without evaluation."""
    model: Tensors = []

    def serve(grid: Grid, _context: Context) -> None:
        view = CohortGrid(grid, workload.num_clients)

        # Flower calls this before the first round and after every one.
        def next_turn(_round: int, _arrays: ArrayRecord) -> None:
            number = next(turns, None)
            view.cohort = [] if number is None else workload.cohort(number).tolist()

        result = FedAvg(fraction_evaluate=0.0).start(
            grid=view,
            initial_arrays=ArrayRecord(workload.network().state_dict()),
            num_rounds=workload.total_rounds,
            train_config=ConfigRecord({"workload": name}),
            evaluate_fn=next_turn,
        )
        model.extend(array.numpy() for array in result.arrays.to_torch_state_dict().values())

    server, client = ServerApp(), ClientApp()
    server.main()(serve)
    client.query()(who)
    client.train()(train)
    for logger in ("flwr", "ray"):
        logging.getLogger(logger).setLevel(logging.ERROR)
    resources: dict[str, Any] = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": ACTORS, "log_to_driver": False, "logging_level": logging.ERROR},
    }
    run_simulation(server, client, workload.num_clients, backend_config=resources)
    return model
