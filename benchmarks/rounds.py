"""Selection-only rounds from end to end: world, selector, policy, all checks.

Bar: 10,000 rounds of BSFL at K = 500, m = 25 in under 5 s, with a loop that draws and sorts as
many numbers with bare numpy as the reference.
"""

import numpy as np

from benchmarks.measure import in_turns, write
from fedmuster import BSFL, Genie
from fedmuster.federation import Simulation
from fedmuster.policies.bottleneck_policy import BanditState
from fedmuster.worlds import BSFLGroups

ROUNDS = 10_000
BATCH = 500
BAR_SECONDS = 5.0


def main() -> None:
    """Print the time of 10,000 rounds, without and with regret, over that of the reference."""
    rng = np.random.default_rng(0)
    plain = Simulation(BSFL(), BSFLGroups(), seed=0)
    judged = Simulation(BSFL(), BSFLGroups(), seed=0, genie=Genie())

    def reference() -> None:
        for _ in range(BATCH):
            np.sort(rng.normal(size=500))

    def play(simulation: Simulation[BanditState]) -> None:
        for _ in range(BATCH):
            simulation.step()

    seconds = in_turns(
        {
            "reference": reference,
            "bsfl": lambda: play(plain),
            "bsfl with regret": lambda: play(judged),
        },
        turns=ROUNDS // BATCH,
    )
    whole = {name: value * ROUNDS / BATCH for name, value in seconds.items()}
    for name, value in whole.items():
        ratio = value / whole["reference"]
        print(f"{name:<18}{value:>7.2f} s for {ROUNDS:,} rounds ({ratio:.1f} x the reference)")
    met = "met" if whole["bsfl"] < BAR_SECONDS else "missed"
    print(f"bar: bsfl in under {BAR_SECONDS:g} s: {met}")
    write("rounds", whole)


if __name__ == "__main__":
    main()
