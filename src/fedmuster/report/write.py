"""A whole report in a folder: a page, figures, tables and the numbers behind them."""

import csv
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.errors import ConfigError, MissingExtraError
from fedmuster.core.files import write_file
from fedmuster.core.words import harmless_cell
from fedmuster.report.costs import cost_columns
from fedmuster.report.curves import thinned
from fedmuster.report.edge_views import network_maps, spread_of_shares
from fedmuster.report.job_views import jobs_of
from fedmuster.report.page import to_html
from fedmuster.report.participation import tells_groups_apart
from fedmuster.report.runs import Comparison, Run, load
from fedmuster.report.score_series import planes, scored, timelines
from fedmuster.report.statistics import quotients
from fedmuster.report.summary import Summary, summarise
from fedmuster.report.tables import csv_cell, tables, to_csv, to_markdown
from fedmuster.report.target import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_CLIENT_ROWS = 2_000_000
_MOST_SCORE_ROWS = 1_000_000
_PLOTTED = ("accuracy", "loss", "train_loss", "seconds", "regret", "spent_max", "spent_mean")
_OF_ROUNDS = (
    *("round", "seconds", "cumulative_seconds", "reward", "regret", "cumulative_regret"),
    *("num_available", "num_selected", "num_completed", "num_refused"),
    *("loss", "accuracy", "train_loss", "num_aggregated"),
    *("spent_max", "spent_mean", "num_exhausted"),
)
_AT_EDGES = ("participants", "utility", "budget_share")
Columns = Mapping[str, NDArray[Any]]


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
    summary = summarise(load(paths), baseline, target)
    return write_summary(summary, out, formats, parquet=parquet, tensorboard=tensorboard)


def write_summary(
    summary: Summary,
    out: Path,
    formats: Sequence[str],
    *,
    parquet: bool = False,
    tensorboard: bool = False,
) -> list[Path]:
    """As :func:`write_report`, of runs that are loaded and summarised already."""
    comparison = summary.comparison
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file, expected a folder to write the report into")
    there = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not os.access(there, os.W_OK):
        raise ConfigError(f"{there} is read-only: choose another folder for the report with --out")
    pictures = _draw(summary, out, formats)
    texts = {
        "report.html": to_html(summary),
        "summary.md": to_markdown(tables(summary)),
        "summary.csv": to_csv(summary),
    }
    for name, text in texts.items():
        write_file(out / name, text.encode())
    return [
        *(out / name for name in texts),
        *write_csv(comparison, out, summary.target),
        *(write_parquet(comparison, out, summary.target) if parquet else ()),
        *(write_tensorboard(comparison, out) if tensorboard else ()),
        *pictures,
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
    comparison, target, network = summary.comparison, summary.target, summary.comparison.network
    private, classifies = comparison.privacy is not None, comparison.classifies
    without_rounds, learned = bool(comparison.round_less), comparison.evaluated
    wanted: dict[str, tuple[bool, Callable[[Comparison], Figure]]] = {
        "overview": (True, lambda shown: figures.overview(shown, target)),
        "accuracy": (classifies, lambda shown: figures.accuracy(shown, target)),
        "loss": (comparison.trained, lambda shown: figures.loss(shown, target)),
        "leakage": (private, figures.leakage),
        "privacy-utility": (private and classifies, figures.privacy_utility),
        "accuracy-work" if classifies else "loss-work": (
            without_rounds and learned,
            lambda shown: figures.accuracy_work(shown, target),
        ),
        "staleness": (without_rounds, figures.staleness),
        "slots": (without_rounds, figures.slots),
        "work": (without_rounds, figures.work),
        "utility": (network is not None and bool(comparison.in_rounds), figures.utility),
        "participants": (network is not None, figures.participants),
        "budget-use": (network is not None and network.limited, figures.budget_use),
        "network-map": (bool(network_maps(comparison).maps), figures.network_map),
        "regret": (comparison.any_judged, figures.regret),
        "score-convergence": (bool(scored(comparison)), figures.score_convergence),
        "validity-utility": (bool(planes(comparison)), figures.validity_utility),
        "elimination": (bool(timelines(comparison)), figures.elimination),
        comparison.clock.replace(" ", "-"): (True, figures.simulated_time),
        "selection-by-group": (tells_groups_apart(comparison), figures.selection_by_group),
        "cohorts": (True, figures.cohorts),
    }
    written = []
    for name, (there, draw) in wanted.items():
        if not there:
            continue
        figure = draw(comparison)
        for kind in formats:
            written.append(out / f"{name}.{kind}")
            figures.save(figure, written[-1])
    return written


# The numbers behind a report as files: CSV, Parquet, TensorBoard's event files.


def network_columns(run: Run, *, everyone: bool = True) -> Columns:
    """One entry a client; only those that were chosen if not ``everyone``."""
    network = run.at_edges
    clients, chosen = np.arange(run.num_clients), run.selection_counts()
    start = _places(network.start_km, clients)
    places = _places(network.place_km, run.chosen)
    columns = {
        "client": clients,
        "times_chosen": chosen,
        "times_in_time": run.in_time_counts(),
        "paid": np.bincount(run.chosen, weights=network.cost, minlength=len(clients)),
        "price": np.full(len(clients), np.nan) if network.price is None else network.price,
        "start_x_km": start[:, 0],
        "start_y_km": start[:, 1],
        **{
            f"chosen_mean_{axis}_km": quotients(
                np.bincount(run.chosen, weights=values, minlength=len(clients)), chosen
            )
            for axis, values in zip("xy", places.T, strict=True)
        },
    }
    return columns if everyone else _rows(columns, chosen > 0)


def edge_columns(run: Run) -> Columns:
    """One entry an edge server; shares are of its budget, in a round."""
    network = run.at_edges
    count = network.num_edges
    places = _places(network.edge_km, np.arange(count))
    use = spread_of_shares([run])
    return {
        "edge": np.arange(count),
        "x_km": places[:, 0],
        "y_km": places[:, 1],
        "radius_km": np.full(count, np.nan if network.radius_km is None else network.radius_km),
        "times_chosen": np.bincount(network.edges, minlength=count),
        "times_in_time": np.bincount(network.edges[network.in_time], minlength=count),
        "spent": network.spent.sum(axis=0),
        "budget": network.budget.sum(axis=0),
        **{f"share_{name}": values for name, values in use._asdict().items()},
    }


def _places(km: FloatArray | None, like: IntArray) -> FloatArray:
    return np.full((len(like), 2), np.nan) if km is None else km


def _rows(columns: Columns, kept: BoolArray) -> Columns:
    return {name: values[kept] for name, values in columns.items()}


def round_columns(run: Run) -> Columns:
    """One entry a round."""
    columns: dict[str, NDArray[Any]] = {
        name: values.astype(np.int64) if name.startswith("num_") else values
        for name, values in run.columns.items()
    }
    columns["round"] = np.arange(1, run.rounds + 1)
    columns["num_selected"] = run.cohort_sizes
    for name in ("seconds", "regret"):
        columns[f"cumulative_{name}"] = np.cumsum(run.columns[name])
    return {name: columns[name] for name in (*_OF_ROUNDS, *_AT_EDGES) if name in columns}


def client_columns(run: Run, *, everyone: bool = True) -> Columns:
    """One entry a client; only those that were chosen if not ``everyone``."""
    absent = np.full(run.num_clients, np.nan)
    counts = run.selection_counts()
    latency = run.typical_latency_seconds
    columns: dict[str, NDArray[Any]] = {
        "client": np.arange(run.num_clients),
        **({} if run.identities is None else {"identity": np.array(run.identities)}),
        "group": run.groups,
        "typical_latency_seconds": (
            latency if run.answered is None else np.where(run.answered, latency, np.nan)
        ),
        "num_samples": absent if run.num_samples is None else run.num_samples,
        "quality": absent if run.quality is None else run.quality,
        "times_chosen": counts,
        "times_rejected": run.rejections,
    }
    return columns if everyone else _rows(columns, counts > 0)


def score_columns(run: Run, *, most_rounds: int) -> Columns:
    """One entry for each score of a client in a round, of at most ``most_rounds`` rounds."""
    scores = run.scores
    assert scores is not None
    places = thinned(np.arange(len(scores.rounds)), most_rounds)
    names = sorted(scores.values)
    values = np.stack([scores.values[name][places] for name in names], axis=-1)
    round_, client, name = np.nonzero(~np.isnan(values))
    return {
        "round": scores.rounds[places][round_],
        "client": scores.clients[client],
        "score": np.array(names)[name],
        "value": values[round_, client, name],
    }


def write_csv(comparison: Comparison, out: Path, target: Target | None = None) -> list[Path]:
    """Rounds, clients, scores, edges: every number that was measured reads back bit for bit.

    Where a contestant has no rounds, also its jobs, and what all cost until their end and until
    the target.
    """
    written = []
    for name, (runs, columns_of) in _kinds(comparison, target).items():
        written.append(out / f"{name}.csv")
        with written[-1].open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            for run in runs:
                columns = columns_of(run)
                if run is runs[0]:
                    writer.writerow(["policy", "seed", *map(harmless_cell, columns)])
                texts = (map(csv_cell, values.tolist()) for values in columns.values())
                label = harmless_cell(run.label)
                writer.writerows((label, run.seed, *cells) for cells in zip(*texts, strict=True))
    return written


def write_parquet(comparison: Comparison, out: Path, target: Target | None = None) -> list[Path]:
    """The rows as typed values; null where there is none."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", extra="parquet", purpose="writing Parquet") from error
    written = []
    for name, (runs, columns_of) in _kinds(comparison, target).items():
        parts = []
        for run in runs:
            columns = columns_of(run)
            count = len(next(iter(columns.values())))
            policy = arrow.DictionaryArray.from_arrays(
                arrow.array(np.zeros(count, dtype=np.int32)), arrow.array([run.label])
            )
            arrays = {
                "policy": policy,
                "seed": arrow.array(np.full(count, run.seed)),
                **{key: arrow.array(column, from_pandas=True) for key, column in columns.items()},
            }
            parts.append(arrow.table(arrays))
        written.append(out / f"{name}.parquet")
        parquet.write_table(arrow.concat_tables(parts).unify_dictionaries(), written[-1])
    return written


def write_tensorboard(comparison: Comparison, out: Path) -> list[Path]:
    """Event files, a folder for each run, with the round as the step.

    The wall time of an event is the run's own, so that TensorBoard's "Relative" axis shows it.
    """
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise MissingExtraError(
            "tensorboardX", extra="tensorboard", purpose="writing event files for TensorBoard"
        ) from error
    written = []
    for run in comparison.every_run:
        folder = out / "tensorboard" / run.label / f"seed-{run.seed}"
        for earlier in folder.glob("events.out.tfevents.*"):
            earlier.unlink()
        with SummaryWriter(logdir=str(folder)) as events:
            elapsed = np.cumsum(run.columns["seconds"])
            for name in (*_PLOTTED, *_AT_EDGES):
                if name not in run.columns:
                    continue
                column = run.columns[name]
                for index in np.flatnonzero(np.isfinite(column)):
                    events.add_scalar(
                        name, float(column[index]), int(index) + 1, walltime=float(elapsed[index])
                    )
        written.append(folder)
    return written


def job_columns(run: Run) -> Columns:
    """One entry a job; a job that is open at the end of the run has no end."""
    jobs = jobs_of(run)
    return {
        "client": jobs.client,
        "edge": jobs.edge,
        "decision": jobs.decision,
        "asked_at": jobs.asked_at_seconds,
        "ended_at": jobs.ended_at_seconds,
        "answered": jobs.answered,
        "used": jobs.used,
        "version": jobs.version,
        "age": jobs.age,
    }


def _kinds(
    comparison: Comparison, target: Target | None
) -> dict[str, tuple[list[Run], Callable[[Run], Columns]]]:
    """By the name of the file: of which runs it tells, and what of each."""
    runs = comparison.every_run
    watched = [run for run in runs if run.scores is not None]
    everyone = comparison.num_clients * len(runs) <= _MOST_CLIENT_ROWS
    kinds: dict[str, tuple[list[Run], Callable[[Run], Columns]]] = {
        "rounds": (runs, round_columns),
        "clients": (runs, partial(client_columns, everyone=everyone)),
    }
    if watched:
        # Of every run the same number of rounds, and of each round all scores of all clients.
        scores = [run.scores for run in runs if run.scores is not None]
        entries_a_round = sum(len(own.clients) * len(own.values) for own in scores)
        most = max(_MOST_SCORE_ROWS // entries_a_round, 1)
        kinds["scores"] = watched, partial(score_columns, most_rounds=most)
    if comparison.round_less:
        kinds["jobs"] = [run for run in runs if run.jobs is not None], job_columns
        kinds["costs"] = runs, partial(cost_columns, target=target)
    if comparison.network is not None:
        kinds["network"] = runs, partial(network_columns, everyone=everyone)
        kinds["edges"] = runs, edge_columns
    return kinds
