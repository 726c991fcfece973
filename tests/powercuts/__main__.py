"""The long form: ``python -m tests.powercuts --first 0 --seeds 2000``."""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.powercuts.campaign import Campaign
from tests.powercuts.recording import build


def main() -> None:
    """Cut the power; exit code 1 if anything that was promised is lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=2_000, help="for each workload")
    chosen = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        library = build(folder)
        if library is None:
            sys.exit("needs a C compiler and /proc")
        campaign = Campaign(folder, library)
        campaign.run(range(chosen.first, chosen.first + chosen.seeds))
    for line in campaign.bad:
        sys.stdout.write(f"BAD {line}\n")
    sys.stdout.write(f"{campaign.cuts.total():,} power cuts, {len(campaign.bad)} bad\n")
    sys.exit(1 if campaign.bad else 0)


if __name__ == "__main__":
    main()
