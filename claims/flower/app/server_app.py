"""A server that is told who chooses, and notes when the model was how good."""

import json
import random
import time
from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Strategy

from fedmuster.flower import Muster
from fedmuster.training.training_records import Engine

from .task import CLIENT, start

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds."""
    config = context.run_config
    seed, cohort_size, nodes = (int(config[key]) for key in ("seed", "cohort-size", "nodes"))
    policy, folder = str(config["policy"]), Path(str(config["folder"]))
    random.seed(seed)  # of Flower's own sampling, which takes no seed
    engine = start(config).engine
    notes = Notes(folder / str(config["notes"]), engine)
    strategy: Strategy = FedAvg(
        fraction_train=1.0 if policy else cohort_size / nodes,
        min_train_nodes=1 if policy else cohort_size,
        min_available_nodes=1 if policy else nodes,
        fraction_evaluate=0.0,
        train_metrics_aggr_fn=notes.trained,
    )
    if policy:
        strategy = Muster(
            strategy,
            policy=policy,
            cohort_size=cohort_size,
            folder=folder / "run",
            seed=seed,
            min_nodes=nodes,
        )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord([engine.initial()]),
        num_rounds=int(config["rounds"]),
        evaluate_fn=notes.evaluate,
    )


class Notes:
    """Who trained, when a round was over, and how good the model was then; one line a round.

    Args:
        path: the file.
        engine: tests the model, in a millisecond.
    """

    def __init__(self, path: Path, engine: Engine) -> None:
        self._path = path
        self._engine = engine
        self._start = 0.0
        self._clients: list[int] = []

    def trained(self, replies: list[RecordDict], _: str) -> MetricRecord:
        """In place of the aggregation of metrics, of which nobody makes use."""
        metrics = [record for reply in replies for record in reply.metric_records.values()]
        self._clients = sorted(int(str(each[CLIENT])) for each in metrics)
        return MetricRecord()

    def evaluate(self, server_round: int, arrays: ArrayRecord) -> MetricRecord:
        """After each round, and before the first, when the clock starts."""
        now = time.monotonic()
        if server_round == 0:
            self._start = now
        (model,) = arrays.to_numpy_ndarrays()
        accuracy = self._engine.evaluate(model).accuracy
        line = {
            "round": server_round,
            "seconds": now - self._start,
            "accuracy": accuracy,
            "clients": self._clients,
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self._clients = []
        return MetricRecord({"accuracy": accuracy})
