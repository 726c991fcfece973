"""``unshare --map-root-user --mount python -m tests.faults.small_disk RUN KIB``: on a disk of its
own, which is full before the run is over; then more room, and on it goes. Prints what happened."""

import json
import subprocess
import sys
from pathlib import Path

from tests.faults.children import released
from tests.faults.watching import RELEASES, log_releases

from fedmuster.core.errors import FedmusterError
from fedmuster.experiments.journal import JournalReader, rounds_done
from fedmuster.experiments.run import SPEC_NAME, execute


def main(run: Path, kib: int) -> dict[str, object]:
    spec = (run / SPEC_NAME).read_bytes()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "none", run], check=True)
    (run / SPEC_NAME).write_bytes(spec)
    log_releases(run / RELEASES)
    said = ""
    try:
        execute(run)
    except FedmusterError as error:
        said = str(error)
    done, out = rounds_done(run), len(released(run).splitlines())
    subprocess.run(["mount", "-o", "remount,size=64m", run], check=True)
    execute(run)
    return {"said": said, "done": done, "released": out, "digest": JournalReader(run).digest()}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))
