"""What a client remembers of its releases, so that no round of a run leaves it twice."""

import json
from pathlib import Path
from typing import Final

from flwr.app import ConfigRecord, RecordDict

from fedmuster.core.errors import StateError
from fedmuster.core.files import write_file

_RECORD: Final = "fedmuster.releases"


class ReleaseNotes:
    """The last round of each run in which the client has released an update.

    The context of a ClientApp lasts as long as Flower's run and the SuperNode do, and leaves a
    ClientApp that ends well after its reply. A file lasts.

    Args:
        state: of the ClientApp's context.
        file: on the client's disk; None for the context alone.
    """

    def __init__(self, state: RecordDict, file: Path | None = None) -> None:
        self._state = state
        self._file = file

    def last_round(self, run: str) -> int:
        """0 where the run has had no release of this client."""
        noted = self._state.config_records.get(_RECORD, ConfigRecord()).get(run, 0)
        if not isinstance(noted, int):
            raise StateError(f"context.state: {_RECORD!r} of {run!r} is {noted!r}, not a round")
        return max(noted, self._in_file().get(run, 0))

    def note(self, run: str, round_: int) -> None:
        """On disk, where there is a file, when this returns."""
        if self._file is not None:
            write_file(self._file, json.dumps({**self._in_file(), run: round_}).encode())
        if _RECORD not in self._state.config_records:
            self._state[_RECORD] = ConfigRecord()
        self._state.config_records[_RECORD][run] = round_

    def _in_file(self) -> dict[str, int]:
        if self._file is None or not self._file.exists():
            return {}
        try:
            noted = json.loads(self._file.read_bytes())
        except (OSError, ValueError) as error:
            raise StateError(f"{self._file} cannot be read as release notes: {error}") from None
        if not isinstance(noted, dict) or not all(isinstance(n, int) for n in noted.values()):
            raise StateError(f"{self._file} holds no release notes")
        return noted
