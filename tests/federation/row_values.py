"""Rows of the journal as plain values, to compare two runs bit for bit."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from fedmuster.core import state as states
from fedmuster.federation import Checkpoint, JobRows, RoundRow, Simulation


def values_of(record: Any, prefix: str = "") -> dict[str, Any]:
    """Every value of a row, by its name; those of the records that it holds have a prefix."""
    found: dict[str, Any] = {}
    items = {item.name: getattr(record, item.name) for item in fields(record)}
    for name, value in items.items():
        if is_dataclass(value):
            found |= values_of(value, f"{prefix}{name}.")
        elif isinstance(value, Mapping):
            found |= {f"{prefix}{name}.{key}": value[key] for key in value}
        else:
            found[f"{prefix}{name}"] = value
    return found


def assert_same_row(one: RoundRow, two: RoundRow) -> None:
    """All values are the same, bit for bit."""
    first, second = values_of(one), values_of(two)
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], err_msg=f"round {one.round}: {name}")
        assert np.asarray(value).dtype == np.asarray(second[name]).dtype, name


def loop_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """What a checkpoint keeps of a loop without rounds."""
    assert checkpoint.loop is not None
    return states.from_bytes(checkpoint.loop, source="here")[0]


def all_jobs(rows: list[RoundRow]) -> JobRows:
    """The jobs of several rows, one behind the other."""
    parts = [row.jobs.arrays() for row in rows if row.jobs is not None]
    return JobRows(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def play(simulation: Simulation[Any], count: int) -> list[RoundRow]:
    """The next rows; fewer if the run ends before."""
    rows: list[RoundRow] = []
    while len(rows) < count and not simulation.finished:
        rows.append(simulation.step())
    return rows
