"""Training without rounds against training in rounds: client updates per CPU second.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.roundless_training

20 slots. In rounds all 20 clients of a cohort train together; without rounds the server aggregates
every 5 answers, and all clients train together whose answers are not computed yet. "engine" is the
engine alone, "whole" is everything: choosing, learning, aggregating, the agenda. What the whole
costs beside the engine is the same for every job, so it shows where jobs are light. The last
workload is that of Pisces' published setting. Bar: without rounds at least 0.8 of the updates a
second.
"""

from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from benchmarks.measure import write
from fedmuster.federation import Federation, Simulation
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import MLP
from fedmuster.training.training import Training
from fedmuster.training.training_records import DataSet, Updates
from fedmuster.worlds import BSFLGroups

SLOTS, BUFFER, CLIENTS = 20, 5, 200
UPDATES, TURNS = 200, 9
WORKLOADS = ((1, 110), (5, 110), (5, 500))
"""Epochs and samples of a job."""


class _Timed:
    """A clock around an engine's ``train`` and ``train_mixed``."""

    def __init__(self, simulation: Simulation[Any]) -> None:
        assert simulation.trainer is not None
        engine = simulation.trainer.engine
        self.seconds, self.updates, self.calls = 0.0, 0, 0
        for name in ("train", "train_mixed"):
            vars(engine)[name] = partial(self._timed, getattr(engine, name))

    def _timed(
        self, train: Callable[..., Updates], starts: Any, clients: Any, *numbers: Any
    ) -> Updates:
        before = process_time()
        updates = train(starts, clients, *numbers)
        self.seconds += process_time() - before
        self.updates += len(clients)
        self.calls += 1
        return updates


def _data(samples: int) -> DataSet:
    rng = np.random.default_rng(0)
    inputs = rng.random((CLIENTS * samples + 100, 784), dtype=np.float32)
    targets = rng.integers(10, size=len(inputs))
    return DataSet(
        train_inputs=inputs[100:],
        train_targets=targets[100:],
        test_inputs=inputs[:100],
        test_targets=targets[:100],
        num_classes=10,
    )


def main() -> None:
    """Print updates per CPU second in rounds and without, and their ratio."""
    rows: list[dict[str, object]] = []
    print(f"{'epochs':<8}{'samples':<9}{'':<8}{'rounds/s':>10}{'without/s':>11}{'ratio':>7}")
    for epochs, samples in WORKLOADS:
        local = LocalSGD(learning_rate=0.05, epochs=epochs)
        training = Training(model=MLP(hidden=(64,)), local=local, evaluate_every=10**6)
        world = BSFLGroups(num_clients=CLIENTS, cohort_size=SLOTS)
        ways = {"rounds": None, "without": Federation(concurrency=SLOTS, buffer=BUFFER)}
        steps = {"rounds": UPDATES // SLOTS, "without": UPDATES // BUFFER}
        own = training.with_own(data=_data(samples))
        playing: dict[str, Simulation[Any]] = {
            name: Simulation("random", world, seed=1, training=own, federation=way)
            for name, way in ways.items()
        }
        seconds = dict.fromkeys(ways, 0.0)
        timed: dict[str, _Timed] = {}
        for turn in range(TURNS + 1):
            for name, simulation in playing.items():
                before = process_time()
                for _ in range(steps[name]):
                    simulation.step()
                if turn > 0:  # the first warms caches
                    seconds[name] += process_time() - before
                else:
                    timed[name] = _Timed(simulation)
        whole = {name: UPDATES * TURNS / spent for name, spent in seconds.items()}
        engine = {name: each.updates / each.seconds for name, each in timed.items()}
        for what, speed in (("engine", engine), ("whole", whole)):
            ratio = speed["without"] / speed["rounds"]
            batch = timed["without"].updates / timed["without"].calls
            work: dict[str, object] = {"epochs": epochs, "samples": samples, "what": what}
            rows.append({**work, "batch": batch, **speed, "ratio": ratio})
            print(
                f"{epochs:<8}{samples:<9}{what:<8}{speed['rounds']:>10,.0f}{speed['without']:>11,.0f}"
                f"{ratio:>7.2f}"
            )
    write("roundless_training", rows)


if __name__ == "__main__":
    main()
