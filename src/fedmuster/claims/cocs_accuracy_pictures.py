"""COCS's Fig. 4a, c, e and 7: accuracy over rounds, and beside it what participants made of it."""

from typing import TYPE_CHECKING

from fedmuster.claims.cocs_accuracy import Accuracies, participants
from fedmuster.claims.fedsuv_findings import each
from fedmuster.report.statistics import mean_and_half_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def accuracy_over_rounds(accuracies: Accuracies) -> "Figure":
    """Accuracy with bands; and in the end, against participants a round."""
    import matplotlib

    from fedmuster.report.figures import style
    from fedmuster.report.figures.curve_figures import draw_evaluations

    comparison = accuracies.comparison
    many = each(comparison, participants)
    with matplotlib.rc_context(style.STYLE):
        figure = style.new_figure(comparison, "Test accuracy", height=3.8)
        curves, ends = figure.subplots(1, 2, width_ratios=(3, 2))
        draw_evaluations(curves, comparison, "accuracy", "round", accuracies.target)
        for line in curves.get_lines():
            label = str(line.get_label())
            if label not in many:
                continue
            x, y = (
                mean_and_half_width(values) for values in (many[label], accuracies.accuracy(label))
            )
            ends.errorbar(
                x[0], y[0], xerr=x[1], yerr=y[1], color=line.get_color(), marker="o", capsize=2
            )
        ends.set(
            title="in the end, against participants a round",
            xlabel="participants a round",
            ylabel="test accuracy (%)",
            xlim=(0, None),
        )
        low, high = ends.get_ylim()
        ends.set_ylim(max(low, 0.0), min(high, 100.0))  # two seeds may have any interval
        curves.set_title("over rounds")
        style.add_legend(figure, comparison, comparison.labels, below=True)
        return figure
