"""The numbers behind a report as files: CSV, Parquet, TensorBoard's event files."""

import csv
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.errors import MissingExtraError
from fedmuster.report.edge_metrics import spread_of_shares
from fedmuster.report.runs import Comparison, Run


def network_columns(run: Run, *, everyone: bool = True) -> Mapping[str, NDArray[Any]]:
    """One entry a client; only those that were chosen if not ``everyone``."""
    network = run.network
    assert network is not None
    clients, chosen = np.arange(run.num_clients), run.selection_counts()
    start = _places(network.start_km, clients)
    places = _places(network.place_km, run.chosen)
    columns = {
        "client": clients,
        "times_chosen": chosen,
        "times_in_time": np.bincount(run.chosen[network.in_time], minlength=len(clients)),
        "paid": np.bincount(run.chosen, weights=network.cost, minlength=len(clients)),
        "price": _numbers(network.price, len(clients)),
        "start_x_km": start[:, 0],
        "start_y_km": start[:, 1],
        "chosen_mean_x_km": _means(run.chosen, places[:, 0], chosen),
        "chosen_mean_y_km": _means(run.chosen, places[:, 1], chosen),
    }
    if everyone:
        return columns
    return {name: values[chosen > 0] for name, values in columns.items()}


def edge_columns(run: Run) -> Mapping[str, NDArray[Any]]:
    """One entry an edge server; shares are of its budget, in a round."""
    network = run.network
    assert network is not None
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


def _numbers(values: FloatArray | None, count: int) -> FloatArray:
    return np.full(count, np.nan) if values is None else values


def _means(client: IntArray, values: FloatArray, counts: IntArray) -> FloatArray:
    mean = np.full(len(counts), np.nan)
    sums = np.bincount(client, weights=values, minlength=len(counts))
    np.divide(sums, counts, out=mean, where=counts > 0)
    return mean


# The numbers behind a report as files: CSV, Parquet, TensorBoard's event files.

_MOST_CLIENT_ROWS = 2_000_000
_MOST_SCORE_ROWS = 1_000_000
_PLOTTED = ("accuracy", "loss", "train_loss", "seconds", "regret", "spent_max", "spent_mean")
_AT_EDGES = ("participants", "utility", "budget_share")
Columns = Mapping[str, NDArray[Any]]


def round_columns(run: Run) -> Columns:
    """One entry a round."""
    columns = run.columns
    return {
        "round": np.arange(1, run.rounds + 1),
        "seconds": columns["seconds"],
        "cumulative_seconds": np.cumsum(columns["seconds"]),
        "reward": columns["reward"],
        "regret": columns["regret"],
        "cumulative_regret": np.cumsum(columns["regret"]),
        "num_available": columns["num_available"].astype(np.int64),
        "num_selected": run.cohort_sizes,
        "num_completed": columns["num_completed"].astype(np.int64),
        "num_refused": columns["num_refused"].astype(np.int64),
        "loss": columns["loss"],
        "accuracy": columns["accuracy"],
        "train_loss": columns["train_loss"],
        "num_aggregated": columns["num_aggregated"].astype(np.int64),
        "spent_max": columns["spent_max"],
        "spent_mean": columns["spent_mean"],
        "num_exhausted": columns["num_exhausted"].astype(np.int64),
        **{name: columns[name] for name in _AT_EDGES if name in columns},
    }


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
    if everyone:
        return columns
    return {name: values[counts > 0] for name, values in columns.items()}


def score_columns(run: Run, *, most_rounds: int) -> Columns:
    """One entry for each score of a client in a round, of at most so many rounds, evenly."""
    scores = run.scores
    assert scores is not None
    places = np.arange(len(scores.rounds))
    if len(places) > most_rounds:
        places = np.rint(np.linspace(0, len(places) - 1, most_rounds)).astype(np.int64)
    names = sorted(scores.values)
    values = np.stack([scores.values[name][places] for name in names], axis=-1)
    round_, client, name = np.nonzero(~np.isnan(values))
    return {
        "round": scores.rounds[places][round_],
        "client": scores.clients[client],
        "score": np.array(names)[name],
        "value": values[round_, client, name],
    }


def write_csv(comparison: Comparison, out: Path) -> list[Path]:
    """Rounds, clients, scores, edges: every number that was measured reads back bit for bit."""
    written = []
    for name, (runs, columns_of) in _kinds(comparison).items():
        written.append(out / f"{name}.csv")
        with written[-1].open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            for run in runs:
                columns = columns_of(run)
                if run is runs[0]:
                    writer.writerow(["policy", "seed", *columns])
                texts = (map(_cell, values.tolist()) for values in columns.values())
                writer.writerows(
                    (run.label, run.seed, *cells) for cells in zip(*texts, strict=True)
                )
    return written


def write_parquet(comparison: Comparison, out: Path) -> list[Path]:
    """The same, typed; null where there is none."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", extra="parquet", purpose="writing Parquet") from error
    written = []
    for name, (runs, columns_of) in _kinds(comparison).items():
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
    for run in _runs(comparison):
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


def _kinds(comparison: Comparison) -> dict[str, tuple[list[Run], Callable[[Run], Columns]]]:
    """By the name of the file: of which runs it tells, and what of each."""
    runs = list(_runs(comparison))
    watched = [run for run in runs if run.scores is not None]
    everyone = comparison.num_clients * len(runs) <= _MOST_CLIENT_ROWS
    kinds: dict[str, tuple[list[Run], Callable[[Run], Columns]]] = {
        "rounds": (runs, round_columns),
        "clients": (runs, partial(client_columns, everyone=everyone)),
    }
    if watched:
        # Of every run the same number of rounds, and of each round all scores of all clients.
        entries_a_round = sum(
            len(run.scores.clients) * len(run.scores.values)
            for run in watched
            if run.scores is not None
        )
        most = max(_MOST_SCORE_ROWS // entries_a_round, 1)
        kinds["scores"] = watched, partial(score_columns, most_rounds=most)
    if comparison.network is not None:
        kinds["network"] = runs, partial(network_columns, everyone=everyone)
        kinds["edges"] = runs, edge_columns
    return kinds


def _runs(comparison: Comparison) -> Iterable[Run]:
    return (run for runs in comparison.runs.values() for run in runs)


def _cell(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return "" if math.isnan(value) else repr(value)
