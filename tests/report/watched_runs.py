"""Runs whose policy had scores that can be checked by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.records import FloatArray

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun


def described(num_clients: int, **more: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """What a journal says of so many clients."""
    return {
        "group": np.zeros(num_clients, dtype=np.int64),
        "typical_latency_seconds": np.linspace(0.1, 1.0, num_clients),
        **more,
    }


def write_scored(
    write_run: "WriteRun",
    label: str,
    values: FloatArray,
    *,
    seed: int = 0,
    every: int = 1,
    watched: Sequence[int] | None = None,
) -> Path:
    """A run whose policy published ``values`` ([rounds, watched]) as its score."""
    rounds, count = values.shape
    who = np.arange(count) if watched is None else np.array(watched)
    return write_run(
        label,
        seed,
        seconds=[1.0] * rounds,
        scores={t: {"score": values[t - 1]} for t in range(1, rounds + 1, every)},
        clients=described(max(int(who.max()) + 1, 4), watched=who),
    )


def write_candidates(
    write_run: "WriteRun",
    label: str,
    *,
    num_clients: int = 30,
    num_watched: int | None = None,
    rounds: int = 12,
    every: int = 1,
    seed: int = 0,
    truth: Sequence[str] = ("validity", "utility"),
) -> Path:
    """Clients leave at random times for random reasons; bounds are wide at first, centred later."""
    rng = np.random.default_rng((num_clients, seed))
    expected = dict(zip(("validity", "utility"), rng.random((2, num_clients)), strict=True))
    left = rng.integers(2, 2 * rounds + 2, num_clients).astype(np.float64)
    why = rng.integers(1, 3, num_clients).astype(np.float64)
    count = num_clients if num_watched is None else num_watched
    watched = np.arange(count) * num_clients // count
    scores = {}
    for t in range(1, rounds + 1, every):
        width = np.nan if t == 1 else 1 / t
        gone = left <= t
        everybody = {
            "left_round": np.where(gone, left, np.nan),
            "left_by": np.where(gone, why, 0.0),
            **{f"{name}_low": of - width for name, of in expected.items()},
            **{f"{name}_high": of + width for name, of in expected.items()},
        }
        scores[t] = {name: of[watched] for name, of in everybody.items()}
    told = {name: expected[name] for name in truth}
    cohorts = [np.sort(rng.choice(num_clients, 2, replace=False)).tolist() for _ in range(rounds)]
    return write_run(
        label,
        seed,
        seconds=[1.0] * rounds,
        cohorts=cohorts,
        scores=scores,
        clients=described(num_clients, watched=watched, **told),
    )
