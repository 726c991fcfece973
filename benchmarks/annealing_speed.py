"""What a step of annealing costs as the number of clients grows: it should not.

Prints the time of a step at K clients and its ratio to a step at K = 500, measured in turns in
the same run, and what sorting the clients costs once per solve.

    python -m benchmarks.annealing_speed
"""

from dataclasses import dataclass, field
from statistics import median
from time import process_time

import numpy as np

from benchmarks.measure import write
from fedmuster.solvers.annealing import NEIGHBOURHOODS, Annealing, Walk
from fedmuster.solvers.instance import Instance

SIZE = 25
CLIENTS = (500, 10_000, 1_000_000)
STEPS = 4_000
TURNS = 15


@dataclass
class Contender:
    walk: Walk
    setup_ms: float
    next_step: int = 1
    microseconds: list[float] = field(default_factory=list)

    def run(self) -> None:
        start = process_time()
        for step in range(self.next_step, self.next_step + STEPS):
            self.walk.step(step)
        self.microseconds.append((process_time() - start) / STEPS * 1e6)
        self.next_step += STEPS


def contender(config: Annealing, clients: int) -> Contender:
    rng = np.random.default_rng(clients)
    instance = Instance(bottleneck=rng.random(clients), weight=rng.random(clients), size=SIZE)
    start = process_time()
    walk = Walk(config, instance, rng)
    return Contender(walk=walk, setup_ms=(process_time() - start) * 1e3)


def main() -> None:
    contenders = {
        (name, clients): contender(Annealing(neighbourhood=name), clients)
        for name in NEIGHBOURHOODS
        for clients in CLIENTS
    }
    for _ in range(TURNS):
        for one in contenders.values():
            one.run()
    rows = []
    print(f"m = {SIZE}, median of {TURNS} turns of {STEPS} steps, CPU time")
    print(f"{'graph':<8}{'K':>10}{'µs a step':>12}{'ratio':>8}{'set-up ms':>12}")
    for (name, clients), one in contenders.items():
        cost = median(one.microseconds)
        ratio = cost / median(contenders[name, CLIENTS[0]].microseconds)
        print(f"{name:<8}{clients:>10,}{cost:>12.2f}{ratio:>8.2f}{one.setup_ms:>12.1f}")
        rows.append({"graph": name, "clients": clients, "microseconds": cost, "ratio": ratio})
    write("annealing_speed", rows)


if __name__ == "__main__":
    main()
