"""A number that a run is judged by."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from fedmuster.report.runs import Run


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One number of a run.

    Args:
        key: its name in files.
        title: its name for people.
        unit: e.g. "s"; empty for a plain number.
        of: computes it; NaN where a run has none.
        about: which table it belongs to.
        words: what a policy is that has less or more of it than the baseline; None where the
            difference is not tested.
        better: whether less or more of it is good; None where neither is.
        may_be_missing: whether a run may lack it although it was measured: a target never reached.
    """

    key: str
    title: str
    unit: str
    of: Callable[[Run], float]
    about: Literal["learning", "privacy", "network", "selection"]
    words: tuple[str, str] | None = None
    better: Literal["lower", "higher"] | None = None
    may_be_missing: bool = False

    @property
    def heading(self) -> str:
        """The title with its unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title
