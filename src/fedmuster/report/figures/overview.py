"""The whole comparison in one picture."""

from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmuster.report.figures.choice_figures import draw_bars, draw_heat_maps
from fedmuster.report.figures.curve_figures import draw_evaluations, draw_leakage, draw_totals
from fedmuster.report.figures.edge_figures import draw_moving
from fedmuster.report.figures.style import STYLE, add_legend, new_figure
from fedmuster.report.runs import Comparison
from fedmuster.report.tables import who_is_chosen
from fedmuster.report.target import Target


def overview(comparison: Comparison, target: Target | None = None) -> Figure:
    """Accuracy (or loss) against time, or time alone; privacy or regret; groups; cohorts.

    With edge servers: what was learned, utility, regret, participants, budgets; the first four.
    """
    with matplotlib.rc_context(STYLE):
        figure = new_figure(
            comparison, f"{_policies(comparison)}, {who_is_chosen(comparison)}", height=7.4
        )
        if comparison.network is not None:
            for axes, panel in zip(
                figure.subplots(2, 2).flat, _edge_panels(comparison), strict=True
            ):
                _draw_panel(axes, panel, comparison, target)
            add_legend(figure, comparison, comparison.labels, below=True)
            return figure
        parts: Any = figure.subfigures(2, 2, height_ratios=(1.0, 1.15), wspace=0.02, hspace=0.03)
        (first, second), (bars, maps) = parts
        for part, panel in zip((first, second), _top_panels(comparison), strict=True):
            _draw_panel(part.subplots(), panel, comparison, target)
        axes = bars.subplots()
        axes.set_title("Who is chosen: by speed group")
        draw_bars(axes, comparison)
        maps.suptitle("Who is chosen when", x=0.02, ha="left", fontsize=8.5)
        draw_heat_maps(maps, comparison)
        add_legend(figure, comparison, comparison.labels, below=True)
        return figure


def _draw_panel(axes: Axes, panel: str, comparison: Comparison, target: Target | None) -> None:
    title = _title(panel, comparison)
    axes.set_title(title)
    if panel in ("accuracy", "loss"):
        draw_evaluations(axes, comparison, panel, "seconds", target)
    elif panel == "leakage":
        draw_leakage(axes, comparison, "spent_max", "seconds")
    elif panel in ("participants", "budget_share", "num_completed"):
        draw_moving(axes, comparison, panel)
    else:
        draw_totals(axes, comparison, panel, title.lower() + _UNITS.get(panel, ""))


_TITLES = {
    "regret": "Cumulative regret",
    "utility": "Cumulative utility",
    "participants": "Participants: chosen and in time",
    "budget_share": "Budgets spent",
    "num_completed": "Answers a round",
}
_UNITS = {"seconds": " (s)"}


def _title(panel: str, comparison: Comparison) -> str:
    if panel == "seconds":
        return comparison.clock.capitalize()
    if panel == "leakage":
        return f"Privacy spent against {comparison.clock}"
    if panel in ("accuracy", "loss"):
        return f"{comparison.evaluated_on}{panel} against {comparison.clock}".capitalize()
    return _TITLES[panel]


def _top_panels(comparison: Comparison) -> tuple[str, str]:
    judged = any(comparison.judged(label) for label in comparison.labels)
    learned = "accuracy" if comparison.classifies else "loss"
    if comparison.privacy is not None:
        return (learned if comparison.evaluated else "regret" if judged else "seconds"), "leakage"
    if not comparison.evaluated:
        # In a real federation nobody knows what would have been best.
        return ("seconds", "num_completed") if comparison.real else ("regret", "seconds")
    # Totals of runs with different numbers of rounds would compare nothing.
    if judged and not comparison.uneven:
        return learned, "regret"
    both = comparison.classifies and comparison.trained
    return ("accuracy", "loss") if both else (learned, "seconds")


def _edge_panels(comparison: Comparison) -> list[str]:
    """The four that say most."""
    network, judged = comparison.network, any(map(comparison.judged, comparison.labels))
    assert network is not None
    learned = "accuracy" if comparison.classifies else "loss"
    wanted = {
        learned: comparison.evaluated,
        "leakage": comparison.privacy is not None,
        "utility": True,
        "regret": judged and not comparison.uneven,
        "participants": True,
        "budget_share": network.limited,
        "seconds": True,
        "loss": comparison.trained,
    }
    panels = [panel for panel, there in wanted.items() if there]
    return [*panels, "num_completed" if comparison.real else "regret"][:4]


def _policies(comparison: Comparison) -> str:
    count = len(comparison.labels)
    return comparison.labels[0] if count == 1 else f"{count} policies"
