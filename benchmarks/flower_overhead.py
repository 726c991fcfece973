"""What Muster adds to a round of Flower's FedAvg, everybody training and evaluating.

Bar: at most 5 ms a round at 100 nodes. All nodes live in this process and answer at once, so that
nothing but the server works; journal, checkpoint and model are written to a real disk. Reference,
in the same run and in turns: FedAvg by itself, with the same nodes, ClientApp and model.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy

from benchmarks.measure import RESULTS, write
from fedmuster.adapters.flower import Muster, ReportingMod
from fedmuster.adapters.flower.in_process import InProcessGrid, Node

NODES = (10, 100, 1_000)
POLICIES = ("random", "bsfl")
ROUNDS_A_TURN = 6  # of which the first also opens the run, and does not count
TURNS = {10: 30, 100: 20, 1_000: 6}
SHAPES = ((784, 32), (32,), (32, 10), (10,))  # a small network: 25,450 numbers
BAR_SECONDS = 0.005
BAR_NODES = 100

app = ClientApp(mods=[ReportingMod()])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Nothing is learned: the model comes back as it went."""
    metrics = MetricRecord({"train_loss": 1.0, "num-examples": 10})
    arrays = message.content["arrays"]
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Whatever the model, it is half right."""
    metrics = MetricRecord({"eval_acc": 0.5, "num-examples": 10})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


class Contender:
    """A strategy, its own federation, and the seconds of its rounds."""

    def __init__(self, nodes: int, wrap: Callable[[Strategy], Strategy]) -> None:
        self.grid = InProcessGrid(app, [Node(10 + i, {"partition-id": i}) for i in range(nodes)])
        self.strategy = wrap(FedAvg(min_available_nodes=nodes, min_train_nodes=nodes))
        self.continues = isinstance(self.strategy, Muster)
        rng = np.random.default_rng(0)
        self.arrays = ArrayRecord([rng.normal(size=shape).astype(np.float32) for shape in SHAPES])
        self.rounds = 0
        self.turns: list[float] = []

    def turn(self) -> None:
        """A few rounds; the median of all but the first is kept."""
        moments: list[float] = []

        def mark(number: int, arrays: ArrayRecord) -> None:
            moments.append(perf_counter())

        self.rounds += ROUNDS_A_TURN
        self.strategy.start(
            grid=self.grid,
            initial_arrays=self.arrays,
            num_rounds=self.rounds if self.continues else ROUNDS_A_TURN,
            evaluate_fn=mark,
        )
        self.turns.append(median(np.diff(moments)[-(ROUNDS_A_TURN - 1) :]))


def contenders(nodes: int, folder: Path) -> dict[str, Contender]:
    """FedAvg by itself, and with each policy."""

    def wrap(policy: str) -> Callable[[Strategy], Strategy]:
        return lambda strategy: Muster(
            strategy, policy=policy, cohort_size=nodes, folder=folder / policy
        )

    mustered = {policy: Contender(nodes, wrap(policy)) for policy in POLICIES}
    return {"bare": Contender(nodes, lambda strategy: strategy), **mustered}


def measure(nodes: int, folder: Path) -> dict[str, Any]:
    """Seconds a round of each contender, and what Muster adds: medians over turns."""
    racing = contenders(nodes, folder)
    for _ in range(TURNS[nodes] + 1):  # the first warms caches
        for contender in racing.values():
            contender.turn()
    seconds = {name: np.array(contender.turns[1:]) for name, contender in racing.items()}
    added = {name: float(np.median(seconds[name] - seconds["bare"])) for name in POLICIES}
    return {"round": {name: float(np.median(s)) for name, s in seconds.items()}, "added": added}


def main() -> None:
    """Print a round's milliseconds, and how many of them are Muster's."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    results = {}
    print(f"{'nodes':>6}{'FedAvg':>12}" + "".join(f"{'+ ' + p:>12}" for p in POLICIES))
    for nodes in NODES:
        RESULTS.mkdir(exist_ok=True)
        with TemporaryDirectory(dir=RESULTS) as folder:  # not /tmp: that may be no disk at all
            found = results[nodes] = measure(nodes, Path(folder))
        print(f"{nodes:>6,}{1e3 * found['round']['bare']:>9.1f} ms", end="")
        print("".join(f"{1e3 * found['added'][policy]:>9.2f} ms" for policy in POLICIES))
    worst = max(results[BAR_NODES]["added"].values())
    met = "met" if worst <= BAR_SECONDS else "missed"
    print(f"bar: {1e3 * BAR_SECONDS:g} ms more a round at {BAR_NODES} nodes: {met}")
    write("flower_overhead", results)


if __name__ == "__main__":
    main()
