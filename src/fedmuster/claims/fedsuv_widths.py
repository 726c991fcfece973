"""How the largest diagonal went, round by round, and a picture of it beside its bound."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedmuster.claims.fedsuv_theorem import FACTOR
from fedmuster.core.records import FloatArray
from fedmuster.report.curves import Curve
from fedmuster.report.runs import Comparison, Run
from fedmuster.report.statistics import mean_and_half_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Course:
    """How w_T went in one setting, and what Eq. 15 says of it.

    Args:
        title: the setting, in words.
        widths: [seeds, rounds], w_T; infinite where nothing is known yet.
        bound: [seeds, rounds], Eq. 15.
        answered: share of the asked who answered.
    """

    title: str
    widths: FloatArray
    bound: FloatArray
    answered: float

    @property
    def known(self) -> slice:
        """From the first round on in which there is a finite diagonal."""
        return slice(int(np.argmax(np.isfinite(self.widths).all(axis=0))), None)

    def broken(self, factor: float = 1.0) -> list[int]:
        """The rounds in which w_T exceeds ``factor`` times Eq. 15 in any seed."""
        over = (self.widths > factor * self.bound)[:, self.known].any(axis=0)
        return [int(place) + 1 + self.known.start for place in np.flatnonzero(over)]

    def use(self, factor: float = 1.0) -> float:
        """The largest share of the bound that any seed used in any round."""
        return float((self.widths / (factor * self.bound))[:, self.known].max())

    @property
    def rises(self) -> int:
        """In how many rounds of how ever many seeds w_T was larger than the round before."""
        return int(np.count_nonzero(np.diff(self.widths[:, self.known], axis=1) > 0))


def widths_of(run: Run) -> FloatArray:
    """[rounds], the largest diagonal of a candidate when each cohort was chosen (Eq. 10)."""
    scores = run.scores
    assert scores is not None
    sides = [
        scores.values[f"{what}_high"] - scores.values[f"{what}_low"]
        for what in ("validity", "utility")
    ]
    diagonals = np.where(scores.values["left_by"] == 0, np.hypot(*sides), -np.inf)
    return np.asarray(np.nan_to_num(diagonals, nan=np.inf, neginf=-np.inf).max(axis=1))


def widths_over_rounds(comparison: Comparison, courses: Sequence[Course]) -> "Figure":
    """w_T and Eq. 15 in each setting; ``comparison`` are runs of any, for the title."""
    import matplotlib

    from fedmuster.report.figures import style

    with matplotlib.rc_context(style.STYLE):
        figure = style.new_figure(comparison, "Largest diagonal against Theorem 5.4", height=3.4)
        panels = figure.subplots(1, len(courses), sharey=True)
        for course, panel in zip(courses, panels, strict=True):
            rounds = np.arange(1.0, course.widths.shape[1] + 1)[course.known]
            mean, half_width = mean_and_half_width(course.widths[:, course.known])
            curve = Curve(label=comparison.labels[0], x=rounds, mean=mean, half_width=half_width)
            style.draw_curves(panel, comparison, [curve])
            every = np.arange(1.0, course.bound.shape[1] + 1)
            bound = course.bound.mean(axis=0)
            panel.plot(every, bound, color="black", label="Eq. 15")
            panel.plot(every, FACTOR * bound, color="black", linestyle=":", label="twice Eq. 15")
            panel.set(title=course.title, xlabel="round T", xscale="log", yscale="log")
            panel.xaxis.set_major_formatter(style.PLAIN)
            panel.yaxis.set_major_formatter(style.PLAIN)
        panels[0].set_ylabel("largest diagonal $w_T$")
        handles = dict(zip(("$w_T$", "Eq. 15", "twice Eq. 15"), panels[0].get_lines(), strict=True))
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3)
        return figure
