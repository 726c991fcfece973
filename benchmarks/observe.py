"""``observe`` for 100 clients must not touch all K: its time must not grow with K."""

from typing import Any

import numpy as np

from benchmarks.measure import in_turns, write
from fedmuster import POLICIES
from fedmuster.core.records import Feedback, Problem, Selection

CLIENTS = (1_000, 10_000, 100_000, 1_000_000)
SIZE = 100


def main() -> None:
    """Print the time at each K over the time at the smallest K, for every policy."""
    rows: list[dict[str, Any]] = []
    print(f"{'policy':<14}" + "".join(f"{f'K = {k:,}':>16}" for k in CLIENTS))
    for name, kind in POLICIES.items():
        policy = kind()
        calls = {}
        for clients in CLIENTS:
            state = policy.init(Problem(num_clients=clients, cohort_size=SIZE))
            # The same clients at every K: what is measured is not the cache, but work over all K.
            chosen = np.arange(SIZE) * 10
            selection = Selection(round=1, clients=chosen)
            feedback = Feedback(round=1, clients=chosen, latency_seconds=np.linspace(1, 2, SIZE))
            calls[str(clients)] = lambda p=policy, a=(state, selection, feedback): p.observe(*a)
        seconds = in_turns(calls, turns=50, repeat=20)
        base = seconds[str(CLIENTS[0])]
        cells = [f"{seconds[str(k)] * 1e6:.0f} µs ({seconds[str(k)] / base:.2f})" for k in CLIENTS]
        print(f"{name:<14}" + "".join(f"{cell:>16}" for cell in cells))
        rows.append({"policy": name, "seconds": seconds})
    write("observe", rows)


if __name__ == "__main__":
    main()
