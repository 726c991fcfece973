"""A whole report in a folder: a page, figures, tables and the numbers behind them."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fedmuster.core.errors import ConfigError
from fedmuster.core.files import write_file
from fedmuster.report.exports import write_csv, write_parquet, write_tensorboard
from fedmuster.report.maps import network_maps
from fedmuster.report.page import to_html
from fedmuster.report.participation import tells_groups_apart
from fedmuster.report.runs import load
from fedmuster.report.score_series import planes, scored, timelines
from fedmuster.report.summary import Summary, summarise
from fedmuster.report.tables import tables, to_csv, to_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_report(
    paths: Iterable[Path],
    out: Path,
    formats: Sequence[str] = ("png", "svg"),
    baseline: str | None = None,
    target: float | None = None,
    *,
    parquet: bool = False,
    tensorboard: bool = False,
) -> list[Path]:
    """Report on experiment folders and run folders; what was written into ``out``.

    Args:
        paths: what to compare, see :func:`fedmuster.report.runs.load`.
        out: a folder; made if it is not there, files of an earlier report are replaced.
        formats: of the figures: png, svg, pdf. Without any, matplotlib is not needed.
        baseline: the policy that others are compared with; None for "random" or else the first.
        target: the accuracy (in a regression: loss) whose time is told; None for what
            every run of the baseline reaches.
        parquet: whether to write the numbers as Parquet too (needs pyarrow).
        tensorboard: whether to write event files for TensorBoard (needs tensorboardX).
    """
    comparison = load(paths)
    summary = summarise(comparison, baseline, target)
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file, expected a folder to write the report into")
    figures = _draw(summary, out, formats)
    texts = {
        "report.html": to_html(summary),
        "summary.md": to_markdown(tables(summary)),
        "summary.csv": to_csv(summary),
    }
    for name, text in texts.items():
        write_file(out / name, text.encode())
    return [
        *(out / name for name in texts),
        *write_csv(comparison, out),
        *(write_parquet(comparison, out) if parquet else ()),
        *(write_tensorboard(comparison, out) if tensorboard else ()),
        *figures,
    ]


def _draw(summary: Summary, out: Path, formats: Sequence[str]) -> list[Path]:
    if not formats:
        return []
    from fedmuster.report import figures  # here, because it needs matplotlib

    for kind in formats:
        if kind not in figures.FORMATS:
            raise ConfigError(
                f"format {kind!r}, expected one of: {', '.join(figures.FORMATS)}", key=("formats",)
            )
    comparison, target = summary.comparison, summary.target
    drawn: dict[str, Callable[[], Figure]] = {
        "overview": partial(figures.overview, comparison, target)
    }
    if comparison.classifies:
        drawn["accuracy"] = partial(figures.accuracy, comparison, target)
    if comparison.trained:
        drawn["loss"] = partial(figures.loss, comparison, target)
    if comparison.privacy is not None:
        drawn["leakage"] = partial(figures.leakage, comparison)
        if comparison.classifies:
            drawn["privacy-utility"] = partial(figures.privacy_utility, comparison)
    if comparison.network is not None:
        drawn["utility"] = partial(figures.utility, comparison)
        drawn["participants"] = partial(figures.participants, comparison)
        if comparison.network.limited:
            drawn["budget-use"] = partial(figures.budget_use, comparison)
        if network_maps(comparison).maps:
            drawn["network-map"] = partial(figures.network_map, comparison)
    if any(comparison.judged(label) for label in comparison.labels):
        drawn["regret"] = partial(figures.regret, comparison)
    if scored(comparison):
        drawn["score-convergence"] = partial(figures.score_convergence, comparison)
    if planes(comparison):
        drawn["validity-utility"] = partial(figures.validity_utility, comparison)
    if timelines(comparison):
        drawn["elimination"] = partial(figures.elimination, comparison)
    drawn[comparison.clock.replace(" ", "-")] = partial(figures.simulated_time, comparison)
    if tells_groups_apart(comparison):
        drawn["selection-by-group"] = partial(figures.selection_by_group, comparison)
    drawn["cohorts"] = partial(figures.cohorts, comparison)
    written = []
    for name, draw in drawn.items():
        figure = draw()
        for kind in formats:
            written.append(out / f"{name}.{kind}")
            figures.save(figure, written[-1])
    return written
