"""How the scores of some clients settle, or do not (as MAB-CS, Fig. 4)."""

from typing import NamedTuple

import numpy as np

from fedmuster.core.records import FloatArray, IntArray
from fedmuster.report.curves import thinned
from fedmuster.report.runs import Comparison, Run

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
    places = np.linspace(0, max(len(order) - 1, 0), min(_MOST_LINES, len(order)))
    return order[np.rint(places).astype(np.int64)]
