"""The long form: ``python -m tests.powercuts``. Stop it at any time; it goes on where it was."""

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.powercuts.campaign import Campaign
from tests.powercuts.recording import build

from fedmuster.core.files import write_file

_SAVED_EVERY = 25


def main() -> None:
    """Cut the power; exit code 1 if anything that was promised is lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000, help="for each workload")
    parser.add_argument("--state", type=Path, default=Path("build/fuzz/powercuts.json"))
    chosen = parser.parse_args()
    known = json.loads(chosen.state.read_text()) if chosen.state.is_file() else {}
    done, cuts, bad = known.get("done", 0), known.get("cuts", 0), known.get("bad", [])
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        library = build(folder)
        if library is None:
            sys.exit("needs a C compiler and /proc")
        campaign = Campaign(folder, library)
        for first in range(done, chosen.seeds, _SAVED_EVERY):
            last = min(first + _SAVED_EVERY, chosen.seeds)
            campaign.run(range(first, last))
            found = [*bad, *campaign.bad]
            stand = {"done": last, "cuts": cuts + campaign.cuts.total(), "bad": found}
            write_file(chosen.state, json.dumps(stand, indent=1).encode())
    stand = json.loads(chosen.state.read_text())
    for line in stand["bad"]:
        sys.stdout.write(f"BAD {line}\n")
    sys.stdout.write(f"{stand['cuts']:,} power cuts, {len(stand['bad'])} bad\n")
    sys.exit(1 if stand["bad"] else 0)


if __name__ == "__main__":
    main()
