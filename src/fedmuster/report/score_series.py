"""Scores of clients over rounds (as MAB-CS, Fig. 4), and the candidates among them."""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.policies.fedsuv.candidates import ELIMINATED
from fedmuster.report.curves import thinned
from fedmuster.report.edge_rows import Scores
from fedmuster.report.runs import Comparison, Run
from fedmuster.report.statistics import quotients
from fedmuster.solvers.pareto import pareto_front

_SCORE = "score"
"""The name under which a policy with an index publishes it."""
_MOST_LINES = 10


class ScoreLine(NamedTuple):
    """The score of one client in the rounds in which it had one."""

    client: int
    rounds: FloatArray
    values: FloatArray


def scored(comparison: Comparison) -> dict[str, list[ScoreLine]]:
    """The lines of each policy that published any score, in the first seed."""
    lines = {label: score_lines(run) for label, run in comparison.watched(_SCORE).items()}
    return {label: own for label, own in lines.items() if own}


def score_lines(run: Run) -> list[ScoreLine]:
    """At most ten of the watched clients, evenly by their last score, the highest first."""
    assert run.scores is not None
    values, rounds = run.scores.values[_SCORE], run.scores.rounds.astype(np.float64)
    lines = []
    for place in _followed(run.scores.last(_SCORE)).tolist():
        known = thinned(np.flatnonzero(np.isfinite(values[:, place])))
        line = ScoreLine(int(run.scores.clients[place]), rounds[known], values[known, place])
        lines.append(line)
    return lines


def _followed(last: FloatArray) -> IntArray:
    order = np.argsort(-last, kind="stable")[: np.count_nonzero(np.isfinite(last))]  # NaN is last
    return thinned(order, _MOST_LINES)


# Candidates: in the plane of validity and utility, and over time (FedSUV, Fig. 6).

_DEPARTURES: Final = ("left_round", "left_by")
"""Since when a client is no candidate, and why, see :mod:`fedmuster.policies.fedsuv.candidates`."""
_BOUNDS: Final = ("validity_low", "validity_high", "utility_low", "utility_high")

CANDIDACY: Final = (
    ("candidates", "still candidates", 0),
    ("eliminated", "eliminated for validity", 1),
    ("dominated", "dominated", 3),
)
"""Of a :class:`Timeline`: the counts, what they are called, and the number of their colour."""

_MOST_DOTS = 400
_CLIENTS_A_BIN = 6
_MOST_BINS = 40


class PlaneBins(NamedTuple):
    """A square grid over the plane, for more clients than can be seen one by one."""

    validity_edges: FloatArray
    utility_edges: FloatArray
    column: IntArray
    row: IntArray

    def mean(self, values: IntArray) -> FloatArray:
        """[rows, columns], of the clients in each cell; NaN where there are none."""
        size = len(self.utility_edges) - 1
        cell = self.row * size + self.column
        counts = np.bincount(cell, minlength=size * size)
        sums = np.bincount(cell, weights=values, minlength=size * size)
        return quotients(sums, counts).reshape(size, size)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Plane:
    """The watched clients by what they are expected to be.

    Args:
        clients: [n], those of whom anything is known.
        validity: [n], true expectation, or else the centre of its bounds.
        utility: [n], the same.
        validity_title: of its axis: whether it is the truth, or the centre of the bounds.
        utility_title: the same.
        true: whether both are the truth.
        candidate_rounds: [n], for how many rounds each was a candidate.
        most_rounds: the largest that could be.
        chosen: [n], how often each was.
        front: [f, 2], the Pareto-optimal points: of the truth, or else of remaining candidates.
    """

    clients: IntArray
    validity: FloatArray
    utility: FloatArray
    validity_title: str
    utility_title: str
    true: bool
    candidate_rounds: IntArray
    most_rounds: int
    chosen: IntArray
    front: FloatArray

    def shown(self, values: IntArray) -> FloatArray:
        """[n] numbers of the clients, or where these are too many the means of :attr:`bins`."""
        return values.astype(np.float64) if self.bins is None else self.bins.mean(values)

    @property
    def bins(self) -> PlaneBins | None:
        """None where clients are few enough to be seen one by one."""
        if len(self.clients) <= _MOST_DOTS:
            return None
        count = min(int(math.sqrt(len(self.clients) / _CLIENTS_A_BIN)), _MOST_BINS)
        validity_edges, column = _cut(self.validity, count)
        utility_edges, row = _cut(self.utility, count)
        return PlaneBins(validity_edges, utility_edges, column, row)


class Timeline(NamedTuple):
    """How many of ``watched`` clients were what in each of the rounds."""

    watched: int
    rounds: FloatArray
    candidates: IntArray
    eliminated: IntArray
    dominated: IntArray
    validity: FloatArray | None
    """Mean true validity of those who still are candidates, where the world tells it."""


def planes(comparison: Comparison) -> dict[str, Plane]:
    """Of each policy that bounds validity and utility of anybody, in the first seed."""
    found = _departing(comparison, *_BOUNDS)
    known = {label: plane(run) for label, run in found.items()}
    return {label: own for label, own in known.items() if len(own.clients) > 0}


def timelines(comparison: Comparison) -> dict[str, Timeline]:
    """Of each policy whose candidates may leave, in the first seed."""
    return {label: timeline(run) for label, run in _departing(comparison).items()}


def _departing(comparison: Comparison, *names: str) -> dict[str, Run]:
    """Runs that publish these scores and who has left; policies count that in rounds."""
    found = comparison.watched(*names, *_DEPARTURES)
    return {label: run for label, run in found.items() if run.jobs is None}


def plane(run: Run) -> Plane:
    """Of a run that has bounds of validity and utility, and says who has left."""
    scores = run.scores
    assert scores is not None
    validity, validity_title = _expected(scores, "validity", run.validity)
    utility, utility_title = _expected(scores, "utility", run.utility)
    true = run.validity is not None and run.utility is not None
    known = np.isfinite(validity) & np.isfinite(utility)
    left, _ = _departures(scores)
    last = int(scores.rounds[-1])
    in_front = known if true else known & ~np.isfinite(left)
    points = np.unique(np.column_stack([validity, utility])[in_front], axis=0)
    return Plane(
        clients=scores.clients[known],
        validity=validity[known],
        utility=utility[known],
        validity_title=validity_title,
        utility_title=utility_title,
        true=true,
        candidate_rounds=np.minimum(left - 1, last)[known].astype(np.int64),
        most_rounds=last,
        chosen=run.selection_counts()[scores.clients[known]],
        front=points[pareto_front(points)],
    )


def timeline(run: Run) -> Timeline:
    """Of a run that says who has left."""
    scores = run.scores
    assert scores is not None
    left, why = _departures(scores)
    rounds = thinned(np.arange(1.0, scores.rounds[-1] + 1))
    order = np.argsort(left, kind="stable")
    gone = np.searchsorted(left[order], rounds, side="right")
    eliminated = np.append(0, np.cumsum(why[order] == ELIMINATED))[gone]
    validity = None
    if run.validity is not None:
        own = run.validity[scores.clients][order]
        # From the last to leave backwards: entry i is the sum of all but the first i.
        remaining = np.append(np.cumsum(own[::-1])[::-1], 0.0)[gone]
        validity = quotients(remaining, len(own) - gone)
    return Timeline(
        watched=len(left),
        rounds=rounds,
        candidates=len(left) - gone,
        eliminated=eliminated,
        dominated=gone - eliminated,
        validity=validity,
    )


def _departures(scores: Scores) -> tuple[FloatArray, FloatArray]:
    """In which round each client left for good, +inf for candidates, and why."""
    left, why = (scores.values[name][-1] for name in _DEPARTURES)
    return np.where(np.isfinite(left), left, np.inf), why


def _expected(scores: Scores, what: str, truth: FloatArray | None) -> tuple[FloatArray, str]:
    """[n] of the watched clients, and the title of the axis."""
    if truth is not None:
        return truth[scores.clients], f"expected {what}"
    centre = (scores.last(f"{what}_low") + scores.last(f"{what}_high")) / 2
    return centre, f"{what}: centre of the bounds"


def _cut(values: FloatArray, count: int) -> tuple[FloatArray, IntArray]:
    """The edges of ``count`` equal intervals, and the interval of each value."""
    low, high = float(values.min()), float(values.max())
    edges = np.linspace(low, high if high > low else low + 1.0, count + 1)
    place = np.searchsorted(edges, values, side="right") - 1
    return edges, np.clip(place, 0, count - 1)
