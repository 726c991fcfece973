"""What a policy thought of the clients that were watched, round by round."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedmuster.core.errors import StateError
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.experiments.journal import JournalReader


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scores:
    """Scores of one run, as the policy had them when it chose.

    Args:
        rounds: [R], those in which they were written down, increasing.
        clients: [n], whose they are.
        values: [R, n] by name, NaN where it had none.
    """

    rounds: IntArray
    clients: IntArray
    values: Mapping[str, FloatArray]

    def last(self, name: str) -> FloatArray:
        """[n], the last score of each client; NaN where there never was one."""
        values = self.values[name]
        known = np.isfinite(values)
        row = len(values) - 1 - np.argmax(known[::-1], axis=0)
        found = values[row, np.arange(values.shape[1])]
        return np.where(known.any(axis=0), found, np.nan)


def read_scores(reader: JournalReader, rounds: int) -> Scores | None:
    """Those of the first ``rounds`` rounds; None where nobody watched, or nothing was published."""
    kept = reader.score_rounds <= rounds
    if not reader.scores or not kept.any():
        return None
    watched, num_clients = reader.clients.get("watched"), len(reader.clients["group"])
    if watched is None or watched.ndim != 1 or not ((watched >= 0) & (watched < num_clients)).all():
        raise StateError(f"{reader.path} is damaged: it does not say whose scores it holds")
    shape = (len(kept), len(watched))
    for name, values in reader.scores.items():
        if values.shape != shape:
            raise StateError(
                f"{reader.path} is damaged: its score {name!r} is {values.shape}, expected {shape}"
            )
    return Scores(
        rounds=reader.score_rounds[kept],
        clients=watched,
        values={name: values[kept] for name, values in reader.scores.items()},
    )
