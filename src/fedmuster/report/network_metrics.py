"""What edge servers got for their budgets, in numbers."""

import math

import numpy as np

from fedmuster.objectives.edge_utility import EdgeUtility
from fedmuster.report.metric import Metric
from fedmuster.report.runs import Comparison, Run

REGRET_WORDS = (
    "Regret: what the best placement within coverage and budgets has more in expected utility "
    "(COCS Eq. 11)."
)


def network_metrics(comparison: Comparison) -> tuple[Metric, ...]:
    """None where there are no edge servers; nothing of budgets where there are none."""
    if comparison.network is None:
        return ()
    return (
        _utility(a_round=comparison.uneven),
        Metric(
            key="participants_a_round",
            title="Participants a round",
            unit="",
            of=lambda run: float(run.columns["participants"].mean()),
            about="network",
        ),
        Metric(
            key="in_time_percent",
            title="Chosen in time",
            unit="%",
            of=_in_time_percent,
            about="network",
            words=("lower", "higher"),
            better="higher",
        ),
        *(_BUDGET if comparison.network.limited else ()),
    )


def utility_words(comparison: Comparison) -> str:
    """What the utility of a round is."""
    reward = comparison.experiment.reward
    root = isinstance(reward, EdgeUtility) and reward.utility == "square-root"
    what, equation = ("the square root of participants", 19) if root else ("participants", 8)
    return (
        f"Utility of a round: {what} per edge server (COCS Eq. {equation}). Participants are the "
        "clients whose answers came by the deadline."
    )


def regret_title(comparison: Comparison) -> str:
    """Of a picture; it says against what, where that is a placement."""
    return "Cumulative regret" + " against the best placement" * (comparison.network is not None)


def _utility(*, a_round: bool) -> Metric:
    """In all, or a round where runs differ in their number of rounds."""
    return Metric(
        key="utility_a_round" if a_round else "utility",
        title="Utility a round" if a_round else "Utility",
        unit="",
        of=lambda run: float(run.columns["utility"].sum()) / (run.rounds if a_round else 1),
        about="network",
        words=("lower", "higher"),
        better="higher",
    )


def _in_time_percent(run: Run) -> float:
    """NaN where nobody was ever chosen."""
    assert run.network is not None
    in_time = run.network.in_time
    return 100.0 * float(in_time.mean()) if len(in_time) else math.nan


def _budget_percent(run: Run) -> float:
    share = run.columns["budget_share"]
    known = share[~np.isnan(share)]
    return 100.0 * float(known.mean()) if len(known) else math.nan


def _largest_percent(run: Run) -> float:
    assert run.network is not None
    return 100.0 * float(np.fmax.reduce(run.network.share, axis=None))


_BUDGET = (
    Metric(
        key="budget_spent_percent",
        title="Budget spent",
        unit="%",
        of=_budget_percent,
        about="network",
    ),
    Metric(
        key="largest_budget_share_percent",
        title="Largest share",
        unit="%",
        of=_largest_percent,
        about="network",
    ),
)
