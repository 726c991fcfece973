"""Jobs without rounds, for pictures: ages of answers, busy slots, work used and lost."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, NamedTuple

import numpy as np

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.words import span
from fedmuster.report.costs import costs
from fedmuster.report.curves import Chart, Curve
from fedmuster.report.job_history import JobHistory
from fedmuster.report.runs import Comparison, Run

FATES: Final = {
    "used": "used",
    "lost": "answered, not used",
    "given_up": "no answer",
    "open": "open at the end",
}
"""What becomes of a job, and what it is called."""

_MOST_AGE_BINS = 12
_COMMON_PERCENT = 99
_MOST_SPANS, _FEWEST_SPANS = 40, 5
_ROWS_A_SPAN = 8
_FEWEST_SHOWN, _MOST_SHOWN, _ALL_SHOWN = 10, 30, 60
"""Slots of a contestant, and of all contestants together."""
_JOBS_SHOWN = 60


def jobs_of(run: Run) -> JobHistory:
    """The jobs of a run without rounds."""
    assert run.jobs is not None
    return run.jobs


def fates(jobs: JobHistory) -> IntArray:
    """[n], what became of each job: its place in :data:`FATES`."""
    marks = [getattr(jobs, name) for name in FATES]
    return np.select(marks, list(range(len(FATES)))).astype(np.int64)


# How old answers are when they are used.


class AgeShares(NamedTuple):
    """Which share of the answers used had which age, by contestant."""

    names: tuple[str, ...]
    """[n], of the bins: an age, or a range of ages; the last holds all that are older, too."""
    shares: dict[str, FloatArray]
    """[n] by label, the seeds together."""
    means: dict[str, float]


def age_shares(comparison: Comparison) -> AgeShares:
    """Of the contestants without rounds; without those whose answers were never used."""
    ages = {}
    for label in comparison.round_less:
        used = [jobs_of(run).age[jobs_of(run).used] for run in comparison.runs[label]]
        if len(own := np.concatenate(used)):
            ages[label] = own
    if not ages:
        return AgeShares((), {}, {})
    everyone = np.concatenate(list(ages.values()))
    common = int(np.percentile(everyone, _COMMON_PERCENT, method="inverted_cdf"))
    width = -(-(common + 1) // _MOST_AGE_BINS)
    count = common // width + 1
    names = [span(low, low + width - 1) for low in range(0, count * width, width)]
    if everyone.max() >= count * width:
        names[-1] = f"≥ {(count - 1) * width:,}"
    return AgeShares(
        tuple(names),
        {
            label: np.bincount(np.minimum(own // width, count - 1), minlength=count) / len(own)
            for label, own in ages.items()
        },
        {label: float(own.mean()) for label, own in ages.items()},
    )


# Over time: ages, and how many slots are busy.


def job_charts(comparison: Comparison) -> Iterator[Chart]:
    """Mean age and busy slots over time, of the contestants without rounds."""
    yield age_chart(comparison)
    yield busy_chart(comparison)


def age_chart(comparison: Comparison) -> Chart:
    """The mean age of the answers that were used, over time."""
    return Chart(
        name="age-seconds",
        kind="level",
        title="Mean age of the answers used",
        axis="seconds",
        x_title=f"{comparison.clock} (s)",
        y_title="age (aggregations)",
        curves=_over_time(comparison, _mean_ages),
        floor=0.0,
    )


def busy_chart(comparison: Comparison) -> Chart:
    """The share of slots with an open job, over time."""
    return Chart(
        name="busy-seconds",
        kind="level",
        title="Busy slots",
        axis="seconds",
        x_title=f"{comparison.clock} (s)",
        y_title="share of busy slots",
        curves=_over_time(comparison, busy_shares),
        percent=True,
        most=1.0,
        floor=0.0,
    )


def _over_time(comparison: Comparison, of: Callable[[Run, FloatArray], FloatArray]) -> list[Curve]:
    """A mean over seeds for each of some spans of time, up to the end of the shortest run.

    Without a band: that of a short span is wider than all that happens.
    """
    curves = []
    for label in comparison.round_less:
        runs = comparison.runs[label]
        rows = min(run.rounds for run in runs)
        count = int(np.clip(rows // _ROWS_A_SPAN, _FEWEST_SPANS, _MOST_SPANS))
        end = min(float(run.elapsed_seconds[-1]) for run in runs)
        edges = np.linspace(0.0, end, count + 1)
        values = np.stack([of(run, edges) for run in runs])
        known = ~np.isnan(values).any(axis=0)
        if not known.any():
            continue
        mean = values[:, known].mean(axis=0)
        mean = np.append(mean, mean[-1])  # each holds until the next begins, the last to the end
        x = np.append(edges[:-1][known], end)
        curves.append(Curve(label=label, x=x, mean=mean, half_width=np.full(len(x), np.nan)))
    return curves


def _mean_ages(run: Run, edges: FloatArray) -> FloatArray:
    """[n], of the answers used in each span; where there are none, as in the span before."""
    jobs = jobs_of(run)
    at = run.elapsed_seconds[jobs.row[jobs.used] - 1]
    spans = len(edges) - 1
    place = np.searchsorted(edges, at, side="left") - 1
    counted = (place >= 0) & (place < spans)
    place, age = place[counted], jobs.age[jobs.used][counted]
    counts = np.bincount(place, minlength=spans)
    sums = np.bincount(place, weights=age, minlength=spans)
    last = np.maximum.accumulate(np.where(counts > 0, np.arange(spans), -1))
    means = np.full(spans, np.nan)
    np.divide(sums[last], counts[last], out=means, where=last >= 0)
    return means


def busy_shares(run: Run, edges: FloatArray) -> FloatArray:
    """[n], which share of the slots had an open job, on average over each span of time."""
    assert run.slots is not None
    jobs = jobs_of(run)
    ends = jobs.ends_at_seconds
    busy = _seconds_since(jobs.asked_at_seconds, edges) - _seconds_since(ends, edges)
    return np.diff(busy) / (run.slots * np.diff(edges))


def _seconds_since(moments: FloatArray, times: FloatArray) -> FloatArray:
    """At each time, the seconds since all moments that have passed, added up."""
    moments = np.sort(moments[np.isfinite(moments)])
    sums = np.concatenate([[0.0], np.cumsum(moments)])
    passed = np.searchsorted(moments, times, side="right")
    return np.asarray(passed * times - sums[passed])


# Who trains when.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SlotChart:
    """The jobs of one run in a span of time, each in a slot.

    Args:
        begin_seconds: when the span begins.
        end_seconds: when it ends.
        slots: how many slots are shown, the first ones.
        all_slots: how many there are.
        slot: int64[n], of each job, from 0.
        client: int64[n], whose it is.
        asked_at_seconds: [n], when it began; may be before the span.
        ended_at_seconds: [n], when it ended; may be after the span, infinite if it is open.
        fate: int64[n], what became of it: its place in :data:`FATES`.
        aggregated_at_seconds: when the server aggregated.
    """

    begin_seconds: float
    end_seconds: float
    slots: int
    all_slots: int
    slot: IntArray
    client: IntArray
    asked_at_seconds: FloatArray
    ended_at_seconds: FloatArray
    fate: IntArray
    aggregated_at_seconds: FloatArray


def slot_charts(comparison: Comparison) -> dict[str, SlotChart]:
    """Of each contestant without rounds, in the first seed."""
    labels = comparison.round_less
    most = int(np.clip(_ALL_SHOWN // max(len(labels), 1), _FEWEST_SHOWN, _MOST_SHOWN))
    return {label: slot_chart(comparison.runs[label][0], most_slots=most) for label in labels}


def slot_chart(run: Run, *, most_slots: int = _MOST_SHOWN) -> SlotChart:
    """The jobs about the middle of a run: few enough to be told apart."""
    assert run.slots is not None
    jobs = jobs_of(run)
    lanes = fill_slots(jobs)
    shown = min(run.slots, most_slots)
    begin, end = _middle(jobs, max(_JOBS_SHOWN, 2 * run.slots), float(run.elapsed_seconds[-1]))
    ends = jobs.ends_at_seconds
    (kept,) = np.nonzero((lanes < shown) & (jobs.asked_at_seconds < end) & (ends > begin))
    kept = kept[np.lexsort((jobs.asked_at_seconds[kept], lanes[kept]))]
    at = run.elapsed_seconds
    return SlotChart(
        begin_seconds=begin,
        end_seconds=end,
        slots=shown,
        all_slots=run.slots,
        slot=lanes[kept],
        client=jobs.client[kept],
        asked_at_seconds=jobs.asked_at_seconds[kept],
        ended_at_seconds=ends[kept],
        fate=fates(jobs)[kept],
        aggregated_at_seconds=at[(at >= begin) & (at <= end)],
    )


def fill_slots(jobs: JobHistory) -> IntArray:
    """[n], a slot for each job: the first that is free when the client is asked."""
    lanes = np.zeros(len(jobs), dtype=np.int64)
    ends = jobs.ends_at_seconds.tolist()
    asked = jobs.asked_at_seconds.tolist()
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    opened = 0
    for place in np.lexsort((jobs.client, jobs.decision, jobs.asked_at_seconds)).tolist():
        while busy and busy[0][0] <= asked[place]:
            heappush(free, heappop(busy)[1])
        if not free:
            free, opened = [opened], opened + 1
        lanes[place] = heappop(free)
        heappush(busy, (ends[place], int(lanes[place])))
    return lanes


def _middle(jobs: JobHistory, count: int, end_seconds: float) -> tuple[float, float]:
    """The time in which about ``count`` jobs in the middle of the run were asked for."""
    asked = np.sort(jobs.asked_at_seconds)
    first = (len(asked) - count) // 2
    if first <= 0:
        return 0.0, end_seconds
    begin, end = float(asked[first]), float(asked[first + count])
    return (begin, end) if begin < end else (begin, end_seconds)


# What became of the work.


class WorkDone(NamedTuple):
    """Client updates and client-seconds by what became of them; means over the seeds."""

    updates: FloatArray
    """[contestants, fates]."""
    seconds: FloatArray
    """[contestants, fates]; NaN for contestants in rounds, whose journals do not say."""


def work_done(comparison: Comparison) -> WorkDone:
    """Of all contestants, in their order."""
    return WorkDone(
        np.stack([_mean_of(runs, _updates) for runs in comparison.runs.values()]),
        np.stack([_mean_of(runs, _work_seconds) for runs in comparison.runs.values()]),
    )


def _mean_of(runs: Sequence[Run], of: Callable[[Run], FloatArray]) -> FloatArray:
    return np.asarray(np.mean([of(run) for run in runs], axis=0))


def _updates(run: Run) -> FloatArray:
    spent = costs(run)
    lost = spent.answered - spent.used
    return np.array([spent.used, lost, spent.wasted - lost, spent.open], dtype=np.float64)


def _work_seconds(run: Run) -> FloatArray:
    if run.jobs is None:
        return np.full(len(FATES), np.nan)
    seconds = run.jobs.worked_seconds(float(run.elapsed_seconds[-1]))
    return np.asarray(np.bincount(fates(run.jobs), weights=seconds, minlength=len(FATES)))
