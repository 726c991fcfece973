"""The long form: ``python -m tests.fuzz``. Stop it at any time; it goes on where it was."""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.campaign import Tally, run, told


def main() -> None:
    """Bend files until all seeds are done; exit code 1 if anything was silently wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="for each kind of file")
    parser.add_argument("--state", type=Path, default=Path("build/fuzz/mutations.json"))
    chosen = parser.parse_args()
    tally, done = Tally.load(chosen.state)
    with TemporaryDirectory() as folder:
        try:
            run(range(done, chosen.seeds), Path(folder), tally, save_to=chosen.state)
            tally.save(chosen.state, max(done, chosen.seeds))
        except KeyboardInterrupt:
            sys.stdout.write("stopped: the same command goes on\n")
    for row in told(tally):
        sys.stdout.write(f"{row}\n")
    for line in tally.bad:
        sys.stdout.write(f"BAD {line}\n")
    sys.stdout.write(
        f"{tally.total():,} mutations, {len(tally.bad)} bad; the largest step of memory was "
        f"{tally.most_kib / 1024:.1f} MiB\n"
    )
    sys.exit(1 if tally.bad else 0)


if __name__ == "__main__":
    main()
