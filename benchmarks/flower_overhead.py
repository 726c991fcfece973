"""What Muster adds to a round of Flower's FedAvg, all nodes or some training, all evaluating.

Bar: at most 5 ms a round at 100 nodes. All nodes live in this process and answer at once, so that
nothing but the server works; journal, checkpoint and model are written to a real disk. References,
in the same run and in turns: FedAvg by itself, with the same nodes, ClientApp and model; and what
it costs to have the model on disk, which no run that survives a crash can do without. On a busy
machine look at the processor's time, which leaves out the waiting. A deployment's grid is asked for
each reply by itself (``grid_views.py``), in threads of its own: that is not in here.

It may be less than nothing: Muster has compared the header of each array with the model's, so that
FedAvg need not parse it (``reply_sorting.py``).
"""

import logging
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy

from benchmarks.measure import RESULTS, write
from fedmuster.core.records import FloatArray
from fedmuster.flower import Muster, ReportingMod
from fedmuster.flower.in_process import InProcessGrid, Node

CASES = ((10, 10), (100, 10), (100, 100), (1_000, 1_000))  # nodes, and how many train in a round
POLICIES = ("random", "bsfl")
ROUNDS_A_TURN = 6  # of which the first also opens the run, and does not count
TURNS = {10: 30, 100: 20, 1_000: 4}
SHAPES = ((784, 32), (32,), (32, 10), (10,))  # a small network: 25,450 numbers
CLOCKS = ("wall", "CPU")
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
    """A strategy, its own federation, and how long its rounds took: wall clock and processor."""

    def __init__(self, nodes: int, strategy: Strategy) -> None:
        self.grid = InProcessGrid(app, [Node(10 + i, {"partition-id": i}) for i in range(nodes)])
        self.strategy = strategy
        rng = np.random.default_rng(0)
        self.arrays = ArrayRecord([rng.normal(size=shape).astype(np.float32) for shape in SHAPES])
        self.turns: list[FloatArray] = []

    def turn(self) -> None:
        """A few rounds; the medians over all but the first are kept."""
        moments: list[tuple[float, float]] = []

        def mark(number: int, arrays: ArrayRecord) -> None:
            moments.append((perf_counter(), process_time()))

        self.strategy.start(
            grid=self.grid, initial_arrays=self.arrays, num_rounds=ROUNDS_A_TURN, evaluate_fn=mark
        )
        rounds = np.diff(np.array(moments), axis=0)[1 - ROUNDS_A_TURN :]
        self.turns.append(np.median(rounds, axis=0))


def contenders(nodes: int, cohort_size: int, folder: Path) -> dict[str, Contender]:
    """FedAvg by itself, and with each policy."""
    bare = FedAvg(
        fraction_train=cohort_size / nodes, min_available_nodes=nodes, min_train_nodes=cohort_size
    )
    mustered = {
        policy: Muster(
            FedAvg(min_available_nodes=cohort_size, min_train_nodes=cohort_size),
            policy=policy,
            cohort_size=cohort_size,
            min_nodes=nodes,
            folder=folder / policy,
        )
        for policy in POLICIES
    }
    return {name: Contender(nodes, each) for name, each in {"bare": bare, **mustered}.items()}


def measure(nodes: int, cohort_size: int, folder: Path) -> dict[str, Any]:
    """Seconds a round, and what each policy adds to it: medians over turns."""
    racing = contenders(nodes, cohort_size, folder)
    image = b"".join(array.data for array in racing["bare"].arrays.values())
    synced = []
    for _ in range(TURNS[nodes] + 1):  # the first warms caches
        for contender in racing.values():
            contender.turn()
        synced.append(seconds_to_sync(folder / "image", image))
    seconds = {name: np.array(contender.turns[1:]) for name, contender in racing.items()}
    return {
        "bare": by_clock(seconds["bare"]),
        "model on disk": float(np.median(synced)),
        "added": {policy: by_clock(seconds[policy] - seconds["bare"]) for policy in POLICIES},
    }


def by_clock(seconds: FloatArray) -> dict[str, float]:
    """Medians of both."""
    return dict(zip(CLOCKS, np.median(seconds, axis=0).tolist(), strict=True))


def seconds_to_sync(path: Path, image: bytes) -> float:
    """To have a file on disk."""
    start = perf_counter()
    with path.open("wb") as file:
        file.write(image)
        file.flush()
        os.fsync(file.fileno())
    return perf_counter() - start


def main() -> None:
    """Print a round's milliseconds, and how many of them are Muster's."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    results: dict[str, Any] = {}
    titles = (
        "FedAvg",
        "its CPU",
        "one sync",
        *(f"+ {p}{t}" for p in POLICIES for t in ("", " CPU")),
    )
    print(f"{'nodes':>7}{'train':>7}" + "".join(f"{title:>15}" for title in titles))
    worst = -np.inf
    for nodes, cohort_size in CASES:
        RESULTS.mkdir(exist_ok=True)
        with TemporaryDirectory(dir=RESULTS) as folder:  # not /tmp: that may be no disk at all
            found = measure(nodes, cohort_size, Path(folder))
        results[f"{cohort_size} of {nodes}"] = found
        added = [found["added"][policy][clock] for policy in POLICIES for clock in CLOCKS]
        columns = (*found["bare"].values(), found["model on disk"], *added)
        shown = "".join(f"{1e3 * seconds:>12.2f} ms" for seconds in columns)
        print(f"{nodes:>7,}{cohort_size:>7,}{shown}")
        if nodes == BAR_NODES:
            worst = max(worst, *(each["wall"] for each in found["added"].values()))
    met = "met" if worst <= BAR_SECONDS else "missed"
    print(f"bar: {1e3 * BAR_SECONDS:g} ms more a round at {BAR_NODES} nodes: {met}")
    write("flower_overhead", results)


if __name__ == "__main__":
    main()
