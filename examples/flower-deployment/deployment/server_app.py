"""What the server does: average the models of the clients that fedmuster chooses."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from deployment.task import create_model, load_test_data, test
from fedmuster.flower import Muster
from fedmuster.policies.bsfl import BSFL

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run federated averaging."""
    images, labels = load_test_data()

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        loss, accuracy = test(arrays.to_numpy_ndarrays(), images, labels)
        return MetricRecord({"loss": loss, "accuracy": accuracy})

    strategy = Muster(
        FedAvg(fraction_evaluate=0.0),
        policy=BSFL(),
        cohort_size=2,
        folder=str(context.run_config["run-folder"]),
        min_nodes=3,
        deadline_seconds=30.0,
        poll_seconds=1.0,
        authenticated=True,  # a node is its registered key
    )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(create_model()),
        num_rounds=int(context.run_config["num-server-rounds"]),
        evaluate_fn=evaluate,
    )
