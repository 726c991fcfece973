"""Tables of milestones: time to the level, the end, and what the way has cost."""

from collections.abc import Callable, Mapping

import numpy as np

from claims.measures import in_percent, number, swing
from claims.racing.milestones import Costs, Milestones
from fedmuster.core.records import FloatArray
from fedmuster.report.statistics import interval
from fedmuster.report.tables import Table


def share_text(shares: FloatArray) -> str:
    """A mean share with its interval, or in how many seeds both contestants reached the level."""
    reached = int((np.isfinite(shares) & (shares > 0)).sum())  # 0: the other never reached it
    if reached < len(shares):
        return f"reached in {reached} of {len(shares)} seeds"
    around = interval(shares)
    return f"{around.mean:.3f}" if np.isnan(around.half_width) else number(around, 3)


def milestone_table(milestones: Milestones, title: str, rates: Mapping[str, float]) -> Table:
    """Time, end and costs of each contestant; ``rates`` are their learning rates."""
    return Table(
        title=title,
        columns=(
            *("contestant", "learning rate", "time (s)", "final accuracy (%)", "swing (points)"),
            *("client updates", "wasted", "server updates", "MB down", "MB up"),
        ),
        rows=tuple((label, f"{rate:g}", *_row(milestones, label)) for label, rate in rates.items()),
        footnotes=(
            "Means over the seeds, until the level but for accuracy and swing. Client updates: jobs"
            " that ended; wasted: those that never entered the model. MB up: answers that the "
            "server got. Swing: standard deviation of the accuracy in the last tenth of the time.",
        ),
    )


def _row(milestones: Milestones, label: str) -> tuple[str, ...]:
    costs, seconds = milestones.costs(label), milestones.seconds(label)

    def mean(of: Callable[[Costs], float], form: str = "{:,.0f}") -> str:
        return form.format(np.mean([of(one) for one in costs]))

    reached = np.isfinite(seconds)
    return (
        f"{seconds.mean():,.1f}" if reached.all() else f"{reached.sum()} of {len(seconds)} seeds",
        in_percent(interval(milestones.ends(label)), 2),
        f"{100 * np.mean([swing(run, 'accuracy') for run in milestones.runs[label]]):.2f}",
        mean(lambda one: one.client_updates),
        mean(lambda one: one.wasted),
        mean(lambda one: one.server_updates),
        mean(lambda one: one.megabytes_down, "{:,.1f}"),
        mean(lambda one: one.megabytes_up, "{:,.1f}"),
    )
