"""What a run cost: client updates, bytes, work of clients, and how steady its end is.

Contestants with and without rounds differ in how many clients they ask. A faster contestant may
only have asked more, so its costs stand beside its time to accuracy.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.report.runs import Run
from fedmuster.report.target import Target

_BYTES_OF_A_PARAMETER = 4
_END_SHARE = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """What a run spent until one of its aggregations; in rounds each round has one.

    Every client that is asked downloads a model, and every answer uploads one. In rounds a client
    is asked with its cohort and is busy until the round ends.

    Args:
        seconds: the time.
        server_updates: the aggregations.
        started: the client updates that were asked for: used, wasted or open.
        answered: the answers that came.
        used: the answers that entered the model; without a model, the answers.
        wasted: the client updates that ended without being used.
        open: the client updates that had not ended.
        bytes_down: that clients downloaded; NaN without a model.
        bytes_up: that clients uploaded; NaN without a model.
        client_seconds: for how long clients worked, all together; NaN in rounds.
        lost_client_seconds: the part of it that went into wasted updates; NaN in rounds.
        mean_concurrency: how many clients were busy, on average over time.
    """

    seconds: float
    server_updates: int
    started: int
    answered: int
    used: int
    wasted: int
    open: int
    bytes_down: float
    bytes_up: float
    client_seconds: float
    lost_client_seconds: float
    mean_concurrency: float


def costs(run: Run, aggregations: int | None = None) -> Costs:
    """What the run cost until this number of aggregations; None for all of them."""
    count = run.rounds if aggregations is None else aggregations
    seconds = float(run.elapsed_seconds[count - 1])
    return _in_rounds(run, count, seconds) if run.jobs is None else _by_job(run, count, seconds)


def costs_to_target(run: Run, target: Target | None) -> Costs | None:
    """What the run cost until it reached the target; None if it did not."""
    reached = None if target is None else target.round(run)
    return None if reached is None else costs(run, reached)


def _by_job(run: Run, count: int, seconds: float) -> Costs:
    assert run.jobs is not None
    jobs = run.jobs.until(count)
    work = jobs.worked_seconds(seconds)
    wasted = ~(jobs.used | jobs.open)
    answered, used = int(jobs.answered.sum()), int(jobs.used.sum())
    return Costs(
        seconds=seconds,
        server_updates=count,
        started=len(jobs),
        answered=answered,
        used=used,
        wasted=int(wasted.sum()),
        open=int(jobs.open.sum()),
        bytes_down=_bytes(run, len(jobs)),
        bytes_up=_bytes(run, answered),
        client_seconds=float(work.sum()),
        lost_client_seconds=float(work[wasted].sum()),
        mean_concurrency=_mean(float(work.sum()), seconds),
    )


def _in_rounds(run: Run, count: int, seconds: float) -> Costs:
    completed, entered = (run.columns[name][:count] for name in ("num_completed", "num_aggregated"))
    asked = run.cohort_sizes[:count]
    started = int(asked.sum())
    # An answer that misses its round may enter a later model (REFL, SAFA): it was uploaded, too.
    answered = int(np.maximum(completed, entered).sum())
    used = int((completed if run.num_parameters is None else entered).sum())
    busy = float(asked @ run.columns["seconds"][:count])
    return Costs(
        seconds=seconds,
        server_updates=count,
        started=started,
        answered=answered,
        used=used,
        wasted=started - used,
        open=0,
        bytes_down=_bytes(run, started),
        bytes_up=_bytes(run, answered),
        client_seconds=math.nan,
        lost_client_seconds=math.nan,
        mean_concurrency=_mean(busy, seconds),
    )


def _bytes(run: Run, models: int) -> float:
    parameters = run.num_parameters
    return math.nan if parameters is None else float(_BYTES_OF_A_PARAMETER * parameters * models)


def _mean(busy_seconds: float, seconds: float) -> float:
    return busy_seconds / seconds if seconds > 0 else math.nan


def started_updates(run: Run) -> IntArray:
    """[rounds], how many client updates had been asked for at each aggregation."""
    if run.jobs is None:
        return np.cumsum(run.cohort_sizes)
    asked = np.bincount(run.jobs.asked_after, minlength=run.rounds)
    return np.cumsum(asked)


def end_values(run: Run, column: str) -> FloatArray:
    """The evaluations in the last tenth of the run by time; the last one if there are none."""
    values, at = run.columns[column], run.elapsed_seconds
    known = ~np.isnan(values)
    late = known & (at >= (1 - _END_SHARE) * at[-1])
    return values[late] if late.any() else values[known][-1:]


def end_mean(run: Run, column: str) -> float:
    """The mean of :func:`end_values`; NaN without any evaluation."""
    values = end_values(run, column)
    return float(values.mean()) if len(values) else math.nan


def end_swing(run: Run, column: str) -> float:
    """The standard deviation of :func:`end_values`; NaN for fewer than two evaluations."""
    values = end_values(run, column)
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan


def cost_columns(run: Run, *, target: Target | None) -> Mapping[str, NDArray[Any]]:
    """A line for the end of the run, and one for its target, if it reached it."""
    lines = {"end": costs(run), "target": costs_to_target(run, target)}
    told = {until: spent for until, spent in lines.items() if spent is not None}
    columns: dict[str, NDArray[Any]] = {"until": np.array(list(told))}
    for item in fields(Costs):
        columns[item.name] = np.array([getattr(spent, item.name) for spent in told.values()])
    return columns
