"""What each client does: train on its own digits, and send a clipped and noisy update."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedmuster.flower import PrivateMod, ReportingMod
from fedmuster.privacy.mechanisms import Gaussian
from private.task import create_model, fit, get_parameters, load_data, set_parameters

limited = PrivateMod(  # limits of the client's own, whatever the server grants
    mechanism=Gaussian(clip=1.0, delta=1e-6),
    max_epsilon=40.0,
    file_required=False,  # simulated nodes have no disk; leave this out where nodes are real
)
app = ClientApp(mods=[limited, ReportingMod()])  # first in the list: the last before sending


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
