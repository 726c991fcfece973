"""A whole report in a folder: figures, tables and the numbers behind them."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from fedmuster.core.errors import ConfigError
from fedmuster.core.files import write_file
from fedmuster.report.runs import Comparison, Run, load
from fedmuster.report.summary import summarise
from fedmuster.report.tables import csv_number, tables, to_csv, to_markdown


def write_report(
    paths: Iterable[Path],
    out: Path,
    formats: Sequence[str] = ("png", "svg"),
    baseline: str | None = None,
) -> list[Path]:
    """Report on experiment folders and run folders; the files written into ``out``.

    Args:
        paths: what to compare, see :func:`fedmuster.report.runs.load`.
        out: a folder; made if it is not there, files of an earlier report are replaced.
        formats: of the figures: png, svg, pdf. Without any, matplotlib is not needed.
        baseline: the policy that others are compared with; None for "random" or else the first.
    """
    comparison = load(paths)
    summary = summarise(comparison, baseline)
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file, expected a folder to write the report into")
    figures = _draw(comparison, out, formats)
    summary_markdown, summary_csv = out / "summary.md", out / "summary.csv"
    write_file(summary_markdown, to_markdown(tables(summary)).encode())
    write_file(summary_csv, to_csv(summary).encode())
    rounds = out / "rounds.csv"
    _write_rounds(comparison, rounds)
    return [summary_markdown, summary_csv, rounds, *figures]


def _draw(comparison: Comparison, out: Path, formats: Sequence[str]) -> list[Path]:
    if not formats:
        return []
    from fedmuster.report import figures  # here, because it needs matplotlib

    for kind in formats:
        if kind not in figures.FORMATS:
            raise ConfigError(
                f"format {kind!r}, expected one of: {', '.join(figures.FORMATS)}", key=("formats",)
            )
    drawn = {
        "overview": figures.overview,
        "regret": figures.regret,
        "simulated-time": figures.simulated_time,
        "selection-by-group": figures.selection_by_group,
        "cohorts": figures.cohorts,
    }
    if not any(comparison.judged(label) for label in comparison.labels):
        del drawn["regret"]
    written = []
    for name, draw in drawn.items():
        figure = draw(comparison)
        for kind in formats:
            written.append(out / f"{name}.{kind}")
            figures.save(figure, written[-1])
    return written


def _write_rounds(comparison: Comparison, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            [
                "policy",
                "seed",
                "round",
                "seconds",
                "cumulative_seconds",
                "reward",
                "regret",
                "cumulative_regret",
                "num_available",
                "num_selected",
                "num_completed",
                "num_refused",
            ]
        )
        for runs in comparison.runs.values():
            for run in runs:
                writer.writerows(_round_rows(run))


def _round_rows(run: Run) -> Iterable[tuple[object, ...]]:
    columns = run.columns
    numbers = (
        columns["seconds"],
        np.cumsum(columns["seconds"]),
        columns["reward"],
        columns["regret"],
        np.cumsum(columns["regret"]),
    )
    counts = (
        columns["num_available"],
        run.cohort_sizes,
        columns["num_completed"],
        columns["num_refused"],
    )
    texts = [[csv_number(value) for value in column] for column in numbers]
    whole = [column.astype(np.int64).tolist() for column in counts]
    for index, row in enumerate(zip(*texts, *whole, strict=True)):
        yield (run.label, run.seed, index + 1, *row)
