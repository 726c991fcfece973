"""What each client does: train on its own digits, some clients more slowly than others."""

import time

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from deployment.task import fit, load_data, test
from fedmuster.flower import ReportingMod

app = ClientApp(mods=[ReportingMod()])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the global model on this client's data."""
    time.sleep(float(context.node_config.get("slowness", 0.0)))  # as if the machine were slower
    images, labels = load_data(
        int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    )
    model = message.content["arrays"].to_numpy_ndarrays()
    model = fit(model, images, labels, steps=int(context.run_config["local-steps"]))
    loss, _ = test(model, images, labels)
    metrics = MetricRecord({"num-examples": len(images), "train_loss": loss})
    content = RecordDict({"arrays": ArrayRecord(model), "metrics": metrics})
    return Message(content=content, reply_to=message)
