"""A server whose settings all come from the run's config."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedmuster.flower import Muster
from fedmuster.privacy.budget import Privacy
from fedmuster.privacy.schedules import Uniform

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Count."""
    config = context.run_config
    privacy = None
    if float(config["epsilon"]) > 0:
        privacy = Privacy(
            epsilon=float(config["epsilon"]),
            schedule=Uniform(participations=int(config["participations"])),
            noise="secure",
        )
    strategy = Muster(
        FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1),
        policy=str(config["policy"]),
        cohort_size=int(config["cohort-size"]),
        folder=str(config["run-folder"]),
        min_nodes=int(config["min-nodes"]),
        deadline_seconds=float(config["deadline-seconds"]),
        privacy=privacy,
    )
    strategy.start(
        grid=grid, initial_arrays=ArrayRecord([np.zeros(4)]), num_rounds=int(config["rounds"])
    )
