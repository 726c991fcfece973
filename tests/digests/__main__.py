"""``python -m tests.digests``: compare the digests of a source tree with those expected of it.

The source is what ``import fedmuster`` finds (PYTHONPATH), or ``--src``. To compare two trees on
any machine, write the digests of the one into a file of your own and compare the other with it:

    python -m tests.digests --src OLD/src --expected /tmp/old.json --write
    python -m tests.digests --src NEW/src --expected /tmp/old.json
"""

import argparse
import os
import sys
from pathlib import Path

EXPECTED = Path(__file__).parent / "expected.json"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.digests",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", nargs="+", default=["*"], help="names of cases, for example 'privacy/*'"
    )
    parser.add_argument("--quick", action="store_true", default=None, help="the quick subset")
    parser.add_argument("--rest", action="store_false", dest="quick", help="all but that subset")
    parser.add_argument("--src", type=Path, help="the folder that holds fedmuster/")
    parser.add_argument("--write", action="store_true", help="write what is found as expected")
    parser.add_argument("--expected", type=Path, default=EXPECTED, help="the file [%(default)s]")
    given = parser.parse_args()
    # All this before NumPy, rich and fedmuster are loaded.
    from tests.digests.environment import ENVIRONMENT

    os.environ.update(ENVIRONMENT)
    paths = [str(Path(__file__).parents[2])]  # for processes: the cases name tests.digests.own
    if given.src is not None:
        paths.insert(0, str(given.src.resolve()))
        sys.path.insert(0, paths[0])
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])
    from tests.digests.comparing import compare, write

    work = write if given.write else compare
    sys.exit(work(given.expected, given.only, quick=given.quick))


if __name__ == "__main__":
    main()
