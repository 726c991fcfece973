"""What a run began with: its spec, its training data and its traces; it may go on with no other."""

import hashlib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from fedmuster.core.errors import StateError
from fedmuster.experiments.spec import Experiment, first_difference
from fedmuster.federation import Simulation
from fedmuster.training.training_records import FederatedData
from fedmuster.worlds.real_federation import RealFederation

TRAINING_DATA: Final = "training data"
_THE_END: Final = ("rounds", "seconds")


class Origin(NamedTuple):
    """What a run began with.

    Attributes:
        spec: of the run, as TOML.
        inputs: SHA-256 of the training data, and of each trace by its key in the spec.
    """

    spec: str
    inputs: Mapping[str, str]


def origin_of(cell: Experiment, simulation: Simulation[Any]) -> Origin:
    """What this simulation of a cell begins with, or goes on with."""
    inputs = trace_digests(cell)
    if simulation.trainer is not None:
        inputs[TRAINING_DATA] = _digest_of_data(simulation.trainer.data)
    return Origin(cell.to_toml(), inputs)


def trace_digests(cell: Experiment) -> dict[str, str]:
    """SHA-256 of each file of measurements that the world reads, by its key in the spec."""
    return {key: _digest_of_file(path) for key, path in _traces(cell.world, "world")}


def settings_of(cell: Experiment) -> dict[str, Any]:
    """Every setting of a run (one policy, one seed) but those that may change on the way.

    A later end is welcome. A ledger may be moved: it shows by itself that it is the same. How long
    a real federation waits may change from start to start.
    """
    return _settings(tomllib.loads(cell.to_toml()))


def _settings(table: dict[str, Any]) -> dict[str, Any]:
    for key in _THE_END:
        table.pop(key, None)
    table.get("privacy", {}).pop("ledger", None)
    if table["world"]["name"] == RealFederation.name:
        table["world"].pop("deadline_seconds", None)
    (policy,), (seed,) = table["policy"], table["seeds"]
    return {**table, "policy": policy, "seeds": seed}


def require_same_spec(began: Origin, cell: Experiment, folder: Path) -> None:
    """Refuse another spec than the run began with, apart from what may change."""
    before, now = _settings(tomllib.loads(began.spec)), settings_of(cell)
    if before == now:
        return
    # Perhaps an older version wrote it, which did not know all settings.
    before = settings_of(Experiment.from_table(tomllib.loads(began.spec), reading=True))
    difference = first_difference(before, now)
    if difference is not None:
        key, ours, theirs = difference
        raise StateError(
            f"{folder} began with {'.'.join(key)} = {ours!r}, its spec now says {theirs!r}: write "
            "the old value to go on, or run the new spec in another folder. Only rounds, seconds, "
            "seeds and policies can be added"
        )


def require_same_inputs(began: Origin, now: Origin, folder: Path) -> None:
    """Refuse training data or traces other than those that the run began with."""
    for name in {**began.inputs, **now.inputs}:
        if began.inputs.get(name) != now.inputs.get(name):
            raise StateError(
                f"{folder} cannot go on: {name} is not what the run began with. Restore the old "
                "files (and versions), or run the spec in another folder"
            )


def _traces(config: object, key: str) -> Iterator[tuple[str, Path]]:
    """The files that a world's table names, by key."""
    if not is_dataclass(config):
        return
    for item in fields(config):
        value, where = getattr(config, item.name), f"{key}.{item.name}"
        if item.name == "path" and isinstance(value, str):
            yield where, Path(value)
        else:
            yield from _traces(value, where)


def _digest_of_file(path: Path) -> str:
    status = path.stat()
    return _digest_once(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=16)  # a worker plays many cells with the same trace
def _digest_once(path: Path, _modified: int, _size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of_data(data: FederatedData) -> str:
    digest = hashlib.sha256()
    for item in fields(data):
        value = getattr(data, item.name)
        if isinstance(value, np.ndarray):
            digest.update(f"{item.name} {value.dtype} {value.shape}\n".encode())
            digest.update(np.ascontiguousarray(value).view(np.uint8).data)
    return digest.hexdigest()
