"""A ClientApp that trains a handful of numbers, and a federation of it in one process."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy

from fedmuster import Random
from fedmuster.flower import Muster
from fedmuster.flower.in_process import InProcessGrid, Node
from fedmuster.flower.reporting_mod import ReportingMod

Train = Callable[[Message, Context], Message]


def model(value: float = 0.0) -> ArrayRecord:
    return ArrayRecord({"w": Array(np.full(3, value)), "b": Array(np.zeros(1))})


def trained(message: Message, context: Context, **metrics: float) -> Message:
    """Every client moves the model towards its own number."""
    (arrays,) = message.content.array_records.values()
    goal = float(context.node_config.get("goal", 1.0))
    moved = ArrayRecord(
        {
            name: Array(array.numpy() + 0.5 * (goal - array.numpy()))
            for name, array in arrays.items()
        }
    )
    loss = float(np.square(goal - arrays["w"].numpy()).mean())
    told = MetricRecord({"num-examples": 10, "train_loss": loss, **metrics})
    return Message(RecordDict({"arrays": moved, "metrics": told}), reply_to=message)


def evaluated(message: Message, context: Context) -> Message:
    (arrays,) = message.content.array_records.values()
    goal = float(context.node_config.get("goal", 1.0))
    loss = float(np.square(goal - arrays["w"].numpy()).mean())
    told = MetricRecord({"num-examples": 10, "eval_loss": loss, "eval_acc": 1.0 / (1.0 + loss)})
    return Message(RecordDict({"metrics": told}), reply_to=message)


def client_app(train: Train = trained) -> ClientApp:
    app = ClientApp(mods=[ReportingMod()])
    app.train()(train)
    app.evaluate()(evaluated)
    return app


def nodes(names: Sequence[str]) -> list[Node]:
    return [Node(1000 + number, {"client-id": name}) for number, name in enumerate(names)]


def federation(names: Sequence[str] = "abcdef", train: Train = trained) -> InProcessGrid:
    return InProcessGrid(client_app(train), nodes(names))


def quick(folder: Path, strategy: Strategy | None = None, **settings: Any) -> Muster:
    """A Muster that does not wait for long."""
    wanted: dict[str, Any] = {"policy": Random(), "cohort_size": 3, "folder": folder}
    wanted |= {"poll_seconds": 0.001, "wait_seconds": 2.0} | settings
    return Muster(strategy or FedAvg(), **wanted)
