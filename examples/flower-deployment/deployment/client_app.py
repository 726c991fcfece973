"""What each client does: train on its own digits, some clients more slowly than others."""

import time

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.metrics import log_loss

from deployment.task import create_model, fit, get_parameters, load_data, set_parameters
from fedmuster.flower import ReportingMod

app = ClientApp(mods=[ReportingMod()])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the global model on this client's data."""
    time.sleep(float(context.node_config.get("slowness", 0.0)))  # as if the machine were slower
    model = create_model(int(context.run_config["local-epochs"]))
    set_parameters(model, message.content["arrays"].to_numpy_ndarrays())
    images, labels = load_data(
        int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    )
    fit(model, images, labels)
    metrics = {
        "num-examples": len(images),
        "train_loss": log_loss(labels, model.predict_proba(images), labels=model.classes_),
    }
    content = RecordDict(
        {"arrays": ArrayRecord(get_parameters(model)), "metrics": MetricRecord(metrics)}
    )
    return Message(content=content, reply_to=message)
