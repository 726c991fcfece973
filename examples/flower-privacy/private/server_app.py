"""What the server does: debit budgets, ask who has paid, and stop when budgets end."""

from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from sklearn.metrics import log_loss

from fedmuster.flower import Muster
from fedmuster.policies.pause import PAUSE
from fedmuster.privacy.budget import Privacy
from fedmuster.privacy.mechanisms import Gaussian
from fedmuster.privacy.schedules import Uniform
from private.task import create_model, get_parameters, load_test_data, set_parameters

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run federated averaging until too few clients can pay for one more round."""
    config = context.run_config
    model = create_model(int(config["local-epochs"]))
    images, labels = load_test_data()

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        set_parameters(model, arrays.to_numpy_ndarrays())
        loss = log_loss(labels, model.predict_proba(images), labels=model.classes_)
        return MetricRecord({"loss": loss, "accuracy": model.score(images, labels)})

    strategy = Muster(
        FedAvg(fraction_evaluate=0.0),  # clients' losses are not paid for; the server tests
        policy=PAUSE(),
        cohort_size=4,
        folder=str(config["run-folder"]),
        privacy=Privacy(
            epsilon=float(config["epsilon"]),
            schedule=Uniform(participations=int(config["participations"])),
            mechanism=Gaussian(clip=1.0, delta=1e-6),
            noise="secure",
            ledger=str(Path(str(config["ledger"])).absolute()),
        ),
    )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(get_parameters(model)),
        num_rounds=int(config["num-server-rounds"]),
        evaluate_fn=evaluate,
    )
