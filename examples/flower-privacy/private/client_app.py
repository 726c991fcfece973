"""What each client does: train on its own digits, and send a clipped and noisy update."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedmuster.flower import PrivateMod, ReportingMod
from private.task import create_model, fit, get_parameters, load_data, set_parameters

app = ClientApp(mods=[PrivateMod(), ReportingMod()])  # PrivateMod first: the last before sending


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the global model on this client's data; of privacy this code knows nothing."""
    model = create_model(int(context.run_config["local-epochs"]))
    set_parameters(model, message.content["arrays"].to_numpy_ndarrays())
    images, labels = load_data(
        int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    )
    fit(model, images, labels)
    metrics = MetricRecord({"num-examples": len(images)})
    content = RecordDict({"arrays": ArrayRecord(get_parameters(model)), "metrics": metrics})
    return Message(content=content, reply_to=message)
