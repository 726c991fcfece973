"""Selection without rounds: events per second, and what one decision reads of the state.

An event is an answer: the policy learns from it, and its slot is filled again. The reference is one
read of a number for each client, measured in turns with it. A policy whose numbers change only
for clients that answered (uniform choice, Pisces' score) need not read all of them. The growth
exponent is the slope of log(seconds) over log(K) between the smallest and the largest K.
"""

import math
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measure import in_turns, read, write
from fedmuster.federation import Federation, Simulation
from fedmuster.worlds import LatencyWorld

CLIENTS = (10_000, 100_000, 1_000_000)
SLOTS = (100, 1_000, 10_000)
POLICIES = ("fedbuff", "pisces", "random", "bsfl", "oort")
SLOW = ("bsfl", "oort")
"""Their indices change for all clients with the round, so a decision reads every client."""
EVENTS = 50


def _running(policy: str, clients: int, slots: int) -> Simulation[Any]:
    world = LatencyWorld(num_clients=clients, cohort_size=slots)
    way = Federation(concurrency=slots, buffer=1, refill=1)
    simulation: Simulation[Any] = Simulation(policy, world, seed=0, federation=way)
    simulation.step()
    return simulation


def _play(simulation: Simulation[Any]) -> None:
    for _ in range(EVENTS):
        simulation.step()


def main() -> None:
    """Print events per second for each policy, K and C, and the ratio to one read of the state."""
    rows: list[dict[str, Any]] = []
    print(f"{'policy':<9}{'K':>10}{'C':>8}{'events/s':>10}{'us/event':>10}{'reads of K':>12}")
    for policy in POLICIES:
        for slots in SLOTS if policy not in SLOW else SLOTS[:1]:
            for clients in CLIENTS:
                if slots >= clients:
                    continue
                simulation, state = _running(policy, clients, slots), np.ones(clients)

                contenders = {"events": partial(_play, simulation), "read": partial(read, state)}
                seconds = in_turns(contenders, turns=5)
                event, floor = seconds["events"] / EVENTS, seconds["read"]
                rows.append(
                    {"policy": policy, "clients": clients, "slots": slots, "event_seconds": event}
                    | {"read_seconds": floor}
                )
                print(
                    f"{policy:<9}{clients:>10,}{slots:>8,}{1 / event:>10,.0f}{event * 1e6:>10.0f}"
                    f"{event / floor:>12.2f}"
                )
    print("growth of an event with K at C = 100:")
    for policy in POLICIES:
        ends = [row["event_seconds"] for row in rows if row["policy"] == policy]
        first, last = ends[0], ends[len(CLIENTS) - 1]
        exponent = math.log(last / first) / math.log(CLIENTS[-1] / CLIENTS[0])
        print(f"  {policy:<9}K^{exponent:.2f}")
    write("roundless_events", rows)


if __name__ == "__main__":
    main()
