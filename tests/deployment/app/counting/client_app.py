"""Clients that add one to the model, after a pause of as many seconds as their node config says."""

import time
from logging import INFO

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.supercore import log

from fedmuster.flower import PrivateMod, ReportingMod


def private_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A PrivateMod in private runs, with the limits of the node config; in others none."""
    if float(context.run_config["epsilon"]) > 0:
        return PrivateMod()(message, context, call_next)
    return call_next(message, context)


app = ClientApp(mods=[private_mod, ReportingMod()])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Pause, and add one."""
    log(INFO, "counting: training")
    time.sleep(float(context.node_config.get("slowness", 0.0)))
    (model,) = message.content.array_records["arrays"].to_numpy_ndarrays()
    content = RecordDict(
        {
            "arrays": ArrayRecord([model + 1.0]),
            "metrics": MetricRecord({"num-examples": 1, "train_loss": 1.0}),
        }
    )
    return Message(content, reply_to=message)
