"""What each client does: train on its own digits, and test with those that it kept back."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.metrics import log_loss

from fedmuster.flower import ReportingMod
from quickstart.task import create_model, fit, get_parameters, load_data, set_parameters

app = ClientApp(mods=[ReportingMod()])  # fedmuster, line 2: was ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the global model on this client's data."""
    model = create_model(int(context.run_config["local-epochs"]))
    set_parameters(model, message.content["arrays"].to_numpy_ndarrays())
    images, labels, _, _ = load_data(
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


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Test the global model on this client's data."""
    model = create_model(int(context.run_config["local-epochs"]))
    set_parameters(model, message.content["arrays"].to_numpy_ndarrays())
    _, _, images, labels = load_data(
        int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    )
    metrics = {
        "num-examples": len(images),
        "eval_loss": log_loss(labels, model.predict_proba(images), labels=model.classes_),
        "eval_acc": model.score(images, labels),
    }
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)
