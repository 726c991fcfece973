"""A client that takes as long as its node's settings say."""

import time

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedmuster.flower import ReportingMod

from .task import CLIENT, start


def _number(context: Context) -> int:
    return int(context.node_config["partition-id"])


def _num_samples(context: Context) -> int:
    return int(start(context.run_config).data.sizes[_number(context)])


app = ClientApp(mods=[ReportingMod(num_samples=_num_samples)])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train on the client's own data, and sleep as if its processor were slow."""
    time.sleep(float(context.node_config["seconds"]))
    client, trainer = _number(context), start(context.run_config)
    (model,) = message.content.array_records["arrays"].to_numpy_ndarrays()
    round_number = int(str(message.content.config_records["config"]["server-round"]))
    updates = trainer.engine.train(model, np.array([client]), round_number)
    metrics = MetricRecord(
        {
            CLIENT: client,
            "num-examples": int(trainer.data.sizes[client]),
            "loss": float(updates.signals["loss"][0]),
            "root_mean_square_loss": float(updates.signals["root_mean_square_loss"][0]),
        }
    )
    arrays = ArrayRecord([model + updates.deltas[0]])
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
