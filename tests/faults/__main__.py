"""``python -m tests.faults --kills 1000``: the campaign, with a table and a page of its results."""

import argparse
import os
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="how many [1000]")
    parser.add_argument("--seed", type=int, default=0, help="of the campaign [0]")
    parser.add_argument("--out", type=Path, help="folder for faults.json and faults.md")
    given = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # before NumPy is loaded: a process with threads must not fork
    from tests.faults.results import conduct

    sys.exit(0 if conduct(kills=given.kills, seed=given.seed, out=given.out) else 1)


if __name__ == "__main__":
    main()
