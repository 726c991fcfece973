"""Time to accuracy: how long until a model is first as good as a target."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedmuster.core.errors import ConfigError
from fedmuster.report.runs import Comparison, Run


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A test accuracy to reach, or in a regression a test loss to come down to."""

    column: Literal["accuracy", "loss"]
    value: float

    @property
    def text(self) -> str:
        """As in "time to 84 %".

        Example:
            >>> Target(column="accuracy", value=0.84).text, Target(column="loss", value=0.5).text
            ('84 %', 'loss 0.5')
        """
        if self.column == "accuracy":
            return f"{100 * self.value:.6g} %"
        return f"loss {self.value:.6g}"

    def seconds(self, run: Run) -> float:
        """Simulated seconds until the end of the first round that reaches it; NaN if none does."""
        reached = self.round(run)
        return math.nan if reached is None else float(run.columns["seconds"][:reached].sum())

    def round(self, run: Run) -> int | None:
        """The first round that reaches it, or the first aggregation; None if none does."""
        values = run.columns[self.column]
        good = values >= self.value if self.column == "accuracy" else values <= self.value
        # NaN, where a round was not evaluated, is never good.
        return int(np.argmax(good)) + 1 if good.any() else None


def find_target(comparison: Comparison, baseline: str, wanted: float | None = None) -> Target:
    """``wanted``, or else the best that every run of the baseline comes to.

    So there is always a time to compare with. Rounded down to a whole per cent of accuracy, or up
    to two digits of loss.
    """
    column: Literal["accuracy", "loss"] = "accuracy" if comparison.classifies else "loss"
    if wanted is None:
        scores = [run.columns[column] for run in comparison.runs[baseline]]
        scores = [score for score in scores if np.isfinite(score).any()]  # others diverged
        if not scores:
            raise ConfigError(
                f"no run of {baseline} has a finite {column}: say what to aim at with --target, or "
                "compare with another policy (--baseline)",
                key=("target",),
            )
        if column == "accuracy":
            reached = min(float(np.nanmax(score)) for score in scores)
            return Target(column=column, value=math.floor(100 * reached + 1e-9) / 100)
        return Target(column=column, value=_up(max(float(np.nanmin(score)) for score in scores)))
    highest = 1.0 if column == "accuracy" else math.inf
    if not 0 <= wanted <= highest or math.isinf(wanted):
        raise ConfigError(
            f"target = {wanted}, expected "
            + ("an accuracy between 0 and 1" if column == "accuracy" else "a loss >= 0"),
            key=("target",),
        )
    return Target(column=column, value=wanted)


def final(run: Run, column: str) -> float:
    """The last evaluation of a run; NaN without any."""
    values = run.columns[column]
    known = values[~np.isnan(values)]
    return float(known[-1]) if len(known) else math.nan


def _up(value: float) -> float:
    """To two significant digits, not below ``value``."""
    if value == 0 or not math.isfinite(value):
        return value
    step = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    return float(f"{math.ceil(value / step - 1e-9) * step:.12g}")
