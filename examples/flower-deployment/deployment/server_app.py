"""What the server does: average the models of the clients that fedmuster chooses."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from sklearn.metrics import log_loss

from deployment.task import create_model, get_parameters, load_test_data, set_parameters
from fedmuster.flower import Muster
from fedmuster.policies.bsfl import BSFL

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run federated averaging."""
    model = create_model(int(context.run_config["local-epochs"]))
    images, labels = load_test_data()

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        set_parameters(model, arrays.to_numpy_ndarrays())
        loss = log_loss(labels, model.predict_proba(images), labels=model.classes_)
        return MetricRecord({"loss": loss, "accuracy": model.score(images, labels)})

    strategy = Muster(
        FedAvg(fraction_evaluate=0.0),
        policy=BSFL(),
        cohort_size=2,
        folder=str(context.run_config["run-folder"]),
        min_nodes=6,
        deadline_seconds=30.0,
        authenticated=True,  # a node is its registered key
    )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(get_parameters(model)),
        num_rounds=int(context.run_config["num-server-rounds"]),
        evaluate_fn=evaluate,
    )
