"""What the server does: average the models of the clients that fedmuster chooses."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedmuster.flower import Muster
from fedmuster.policies.bsfl import BSFL
from quickstart.task import create_model, get_parameters

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run federated averaging."""
    folder = str(context.run_config["run-folder"])
    model = create_model(int(context.run_config["local-epochs"]))

    strategy = FedAvg()
    strategy = Muster(strategy, policy=BSFL(), cohort_size=3, folder=folder)  # fedmuster, line 1

    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(get_parameters(model)),
        num_rounds=int(context.run_config["num-server-rounds"]),
    )
