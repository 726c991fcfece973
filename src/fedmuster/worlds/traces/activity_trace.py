"""Read when clients were there, from CSV, Parquet or FedScale's own file."""

from pathlib import Path

import numpy as np

from fedmuster.core.records import LONGEST_SECONDS, SHORTEST_SECONDS
from fedmuster.worlds.intervals import Intervals
from fedmuster.worlds.traces.columns import Columns, Table, read_columns
from fedmuster.worlds.traces.fedscale import read_behaviour
from fedmuster.worlds.traces.reader import FEDSCALE_ENDINGS, trace_reader

_TABLE = Table(
    required=("client", "start_seconds", "end_seconds"),
    optional=("period_seconds",),
    one_row_for="interval",
)


@trace_reader("activity trace", key=("availability", "path"), fedscale=True)
def read_activity(path: Path) -> Intervals:
    """The intervals in a file.

    A table has a row for each: ``client``, ``start_seconds``, ``end_seconds``. With a column
    ``period_seconds`` each client begins anew after its own; else all do after the last end.
    """
    if path.suffix.lower() in FEDSCALE_ENDINGS:
        return read_behaviour(path)
    return _checked(read_columns(path, _TABLE))


def _checked(columns: Columns) -> Intervals:
    client = columns.clients()
    start = columns.numbers("start_seconds", "a number >= 0", low=0.0, high=LONGEST_SECONDS)
    end = columns.numbers("end_seconds", "a number > 0", low=SHORTEST_SECONDS, high=LONGEST_SECONDS)
    columns.refuse_where(end < start, "end_seconds", "at least start_seconds")
    period = np.full(int(client.max()) + 1, end.max())
    if "period_seconds" in columns.values:
        of_row = columns.numbers(
            "period_seconds", "a number > 0", low=SHORTEST_SECONDS, high=LONGEST_SECONDS
        )
        period[client] = of_row
        columns.refuse_where(of_row != period[client], "period_seconds", "the same in all its rows")
        columns.refuse_where(end > of_row, "end_seconds", "at most period_seconds")
    return Intervals.of(client=client, start_seconds=start, end_seconds=end, period_seconds=period)
