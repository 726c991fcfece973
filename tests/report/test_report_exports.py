import csv
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as parquet
import pytest
from tensorboardX.proto.event_pb2 import Event

from fedmuster.core.errors import MissingExtraError
from fedmuster.report import write
from fedmuster.report.runs import Comparison, load
from fedmuster.report.write import write_report

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun


@pytest.fixture
def comparison(write_run: "WriteRun") -> Comparison:
    return load(
        [
            write_run(
                label,
                seed,
                seconds=[0.1, 0.2],
                loss=[math.nan, 0.3 + seed],
                accuracy=[math.nan, 1 / 3],
                cohorts=[[0, 3], [0, 1]],
                rejected={2: [1]},
                clients={"num_samples": np.array([5, 6, 7, 8])},
            )
            for label in ("bsfl", 'ränd, "om"')
            for seed in (0, 1)
        ]
    )


def test_csv_by_hand(comparison: Comparison, tmp_path: Path) -> None:
    rounds, clients = write.write_csv(comparison, tmp_path)
    with rounds.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    assert rows[7]["policy"] == 'ränd, "om"'
    assert rows[7]["cumulative_seconds"] == repr(0.1 + 0.2)
    assert (rows[7]["accuracy"], rows[7]["loss"], rows[7]["train_loss"]) == (
        repr(1 / 3),
        "1.3",
        "1.8",
    )
    assert (rows[6]["accuracy"], rows[6]["regret"], rows[6]["num_aggregated"]) == ("", "", "2")
    with clients.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 16
    assert rows[1] == {
        "policy": "bsfl",
        "seed": "0",
        "client": "1",
        "group": "0",
        "typical_latency_seconds": "0.3",
        "num_samples": "6",
        "quality": "",
        "times_chosen": "1",
        "times_rejected": "1",
    }


def test_parquet_holds_what_csv_holds(comparison: Comparison, tmp_path: Path) -> None:
    texts = write.write_csv(comparison, tmp_path)
    tables = write.write_parquet(comparison, tmp_path)
    assert [path.name for path in tables] == ["rounds.parquet", "clients.parquet"]
    for text, table in zip(texts, tables, strict=True):
        with text.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        read = parquet.read_table(table).to_pylist()
        assert [
            {key: "" if value is None else str(value) for key, value in row.items()} for row in read
        ] == rows


def test_too_many_clients_are_only_those_chosen(
    comparison: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "_MOST_CLIENT_ROWS", 15)
    _, clients = write.write_csv(comparison, tmp_path)
    with clients.open(encoding="utf-8", newline="") as file:
        assert {row["client"] for row in csv.DictReader(file)} == {"0", "1", "3"}


def _events(path: Path) -> list[Event]:
    """What an event file holds: length, checksum, event, checksum."""
    data, events = path.read_bytes(), []
    while data:
        length = int.from_bytes(data[:8], "little")
        events.append(Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    return events


def test_tensorboard_has_the_round_as_step_and_simulated_time(
    comparison: Comparison, tmp_path: Path
) -> None:
    for _ in range(2):  # a second report replaces the first
        folders = write.write_tensorboard(comparison, tmp_path)
    assert folders[1] == tmp_path / "tensorboard" / "bsfl" / "seed-1"
    (path,) = folders[1].iterdir()
    scalars = {
        (value.tag, event.step): (value.simple_value, event.wall_time)
        for event in _events(path)
        for value in event.summary.value
    }
    assert scalars.keys() == {
        ("accuracy", 2),
        ("loss", 2),
        ("train_loss", 2),
        ("seconds", 1),
        ("seconds", 2),
    }
    assert scalars["loss", 2] == (pytest.approx(1.3), pytest.approx(0.3))
    assert scalars["seconds", 1] == (pytest.approx(0.1), pytest.approx(0.1))


@pytest.mark.parametrize(
    ("module", "option", "message"),
    [
        ("pyarrow", "parquet", r"writing Parquet needs pyarrow.*\[parquet\]"),
        ("tensorboardX", "tensorboard", r"TensorBoard needs tensorboardX.*\[tensorboard\]"),
    ],
)
def test_libraries_are_asked_for_by_name(
    write_run: "WriteRun",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    option: str,
    message: str,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    run = write_run()
    write_report([run], tmp_path / "without", formats=())
    with pytest.raises(MissingExtraError, match=message):
        write_report(
            [run],
            tmp_path / "with",
            formats=(),
            parquet=option == "parquet",
            tensorboard=option == "tensorboard",
        )
