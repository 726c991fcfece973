"""A Parquet file whose columns are neither numbers nor text is refused by the column's name."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pyarrow.parquet
import pytest

from fedmuster.worlds.trace_files import TraceError
from fedmuster.worlds.trace_world import TraceWorld

BROKEN_TEXT = arrow.Array.from_buffers(
    arrow.string(),
    3,
    [
        None,
        arrow.py_buffer(np.arange(4, dtype=np.int32).tobytes()),
        arrow.py_buffer(b"\xff\xfe\xfd"),
    ],
)
ODD: dict[str, Any] = {
    "nanoseconds": arrow.array([1, 2, 3], arrow.timestamp("ns")),
    "not UTF-8": BROKEN_TEXT,
    "endless": arrow.array([2**62] * 3, arrow.duration("s")),
    "far dates": arrow.array([2**60 // 86_400_000 * 86_400_000] * 3, arrow.date64()),
    "dates": [datetime.date(2020, 1, 1)] * 3,
    "bytes": [b"a", b"b", b"c"],
    "lists": [[1], [2], [3]],
    "structs": [{"a": 1}] * 3,
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", ["client", "round", "latency_seconds"])
def test_it_is_refused(tmp_path: Path, name: str, odd: str) -> None:
    columns: dict[str, Any] = {"client": [1, 2, 3], "round": [1, 1, 1]}
    columns |= {"latency_seconds": [1.0, 2.0, 3.0], name: ODD[odd]}
    path = tmp_path / "trace.parquet"
    pyarrow.parquet.write_table(arrow.table(columns), path)
    with pytest.raises(TraceError, match=r"trace\.parquet"):
        TraceWorld(path=str(path), cohort_size=1).start(0)
