"""Reads the journals of runs that faced the same world with the same luck."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedmuster.bandits.utility import EdgeUtility
from fedmuster.core.errors import ConfigError, StateError
from fedmuster.core.records import BoolArray, FloatArray, IntArray
from fedmuster.core.words import plain, several, span
from fedmuster.experiments.journal import JournalReader, rounds_done
from fedmuster.experiments.origin import require_same_spec
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.sweep import Cells
from fedmuster.privacy.budget import Privacy
from fedmuster.report.cells import (
    Cell,
    Ending,
    common_seeds,
    compared_rounds,
    early_end,
    ending_notes,
    find_comparable,
    together,
)
from fedmuster.report.edge_rows import NetworkHistory, Scores, read_network, read_scores
from fedmuster.report.federated_runs import check_clients, match_clients
from fedmuster.report.job_history import JobHistory, read_jobs
from fedmuster.report.promise import statement
from fedmuster.worlds.real_federation import RealFederation


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Run:
    """The first rounds of one policy under one seed; without rounds, its first aggregations.

    Args:
        label: of the policy.
        seed: of world and policy.
        columns: those of :class:`JournalReader`, one entry a round; with edge servers also
            ``participants`` (in time), their ``utility``, and ``budget_share``, the mean part of
            the budgets that was spent.
        cohort_sizes: how many clients were chosen in each round; without rounds, how many jobs
            ended before each aggregation.
        chosen: those clients, one round after the other.
        cohort_size: m.
        groups: [K], speed group of each client.
        typical_latency_seconds: [K], in the long run.
        rejections: [K], how often each client's update was not finite.
        num_samples: [K], None where all clients have equally much data.
        quality: [K] of the data, None where it is alike.
        num_parameters: how many numbers an update has, None where nothing was trained.
        validity: [K], the true probability of an answer in time, None where the world has none.
        utility: [K], what an answer is worth in truth, None where the world has none.
        scores: what the policy thought of clients, None where the journal kept no scores.
        network: what happened at the edge servers, None where there are none.
        identities: the names of real clients, None in a simulation.
        answered: [K], whether a latency was ever seen, None in a simulation, where all are known.
        present: [K], whether the client was in this run at all, None for all.
        jobs: every job that was asked for, None in rounds.
        slots: how many jobs may be open at once, None in rounds.
    """

    label: str
    seed: int
    columns: Mapping[str, FloatArray]
    cohort_sizes: IntArray
    chosen: IntArray
    cohort_size: int
    groups: IntArray
    typical_latency_seconds: FloatArray
    rejections: IntArray
    num_samples: IntArray | None = None
    quality: FloatArray | None = None
    num_parameters: int | None = None
    validity: FloatArray | None = None
    utility: FloatArray | None = None
    scores: Scores | None = None
    network: NetworkHistory | None = None
    identities: tuple[str, ...] | None = None
    answered: BoolArray | None = None
    present: BoolArray | None = None
    jobs: JobHistory | None = None
    slots: int | None = None

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return len(self.cohort_sizes)

    @property
    def num_clients(self) -> int:
        """K."""
        return len(self.groups)

    @property
    def private(self) -> bool:
        """Whether a ledger was kept."""
        return not np.isnan(self.columns["spent_max"][-1])

    @property
    def elapsed_seconds(self) -> FloatArray:
        """[rounds], the time at the end of each round, or of each aggregation."""
        return np.cumsum(self.columns["seconds"])

    @property
    def at_edges(self) -> NetworkHistory:
        """The network of a run that has one."""
        assert self.network is not None
        return self.network

    @property
    def ranking(self) -> FloatArray:
        """[K], the order of clients in pictures: by price where they have one, else by latency."""
        if self.network is None or self.network.price is None:
            return self.typical_latency_seconds
        return self.network.price

    def selection_counts(self) -> IntArray:
        """[K], how often each client was chosen."""
        return np.bincount(self.chosen, minlength=self.num_clients)

    def in_time_counts(self) -> IntArray:
        """[K], how often each client was chosen and in time, with edge servers."""
        return np.bincount(self.chosen[self.at_edges.in_time], minlength=self.num_clients)

    def chosen_rounds(self) -> IntArray:
        """The round, counted from 0, of each entry of ``chosen``."""
        return np.repeat(np.arange(self.rounds), self.cohort_sizes)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Comparison:
    """Policies that faced the same world with the same luck.

    Args:
        runs: for each label, its runs in the order of ``seeds``.
        seeds: those that every policy has.
        rounds: how many rounds all runs have: every run has exactly these, unless runs end by
            simulated time or privacy ended some of them, when each has its own number.
        cohort_size: m.
        notes: what a reader of any result has to know: rounds cut off, runs that ended early,
            seeds left out, whether privacy was real.
        experiment: the one experiment that these are the runs of.
        versions: of what ran, every different one.
    """

    runs: Mapping[str, tuple[Run, ...]]
    seeds: tuple[int, ...]
    rounds: int
    cohort_size: int
    notes: tuple[str, ...]
    experiment: Experiment
    versions: tuple[Mapping[str, str], ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """The policies, in the order of the specs."""
        return tuple(self.runs)

    @property
    def every_run(self) -> list[Run]:
        """The runs of all policies, those of one after those of the other."""
        return [run for runs in self.runs.values() for run in runs]

    @property
    def num_clients(self) -> int:
        """K."""
        return self.every_run[0].num_clients

    @property
    def num_parameters(self) -> int | None:
        """How many numbers an update has, None where nothing was trained."""
        return self.every_run[0].num_parameters

    @property
    def network(self) -> NetworkHistory | None:
        """Of the first run, in rounds if any is; None where there are no edge servers."""
        return self.runs[(*self.in_rounds, *self.labels)[0]][0].network

    @property
    def usual_cohort_size(self) -> float:
        """m, or the mean of all rounds where budgets of edge servers or single answers decide."""
        if self.network is None and not self.round_less:
            return self.cohort_size
        return float(np.concatenate([run.cohort_sizes for run in self.every_run]).mean())

    @property
    def ranking(self) -> tuple[str, str, str]:
        """The first and the last of clients in order, and by what, see :attr:`Run.ranking`."""
        if self.network is None or self.network.price is None:
            return "fast", "slow", "speed"
        return "cheap", "dear", "price"

    @property
    def who_is_chosen(self) -> str:
        """How many of how many; with edge servers, whose budgets decide how many, at how many."""
        clients = f"{self.num_clients:,} clients"
        if self.network is not None:
            return f"{clients} at {several(self.network.num_edges, 'edge server')}"
        if not self.round_less:
            return f"{self.cohort_size:,} of {clients} a round"
        at_once = [run.cohort_size if run.slots is None else run.slots for run in self.every_run]
        return f"{span(min(at_once), max(at_once))} of {clients} at a time"

    def column(self, label: str, name: str) -> FloatArray:
        """[seeds, rounds]: a column of the journals of a policy, the rounds that all runs have."""
        return np.stack([run.columns[name][: self.rounds] for run in self.runs[label]])

    def judged(self, label: str) -> bool:
        """Whether regret of this policy was measured."""
        return not np.isnan(self.column(label, "regret")).any()

    @property
    def round_less(self) -> tuple[str, ...]:
        """The contestants that work without rounds."""
        return tuple(label for label, (run, *_) in self.runs.items() if run.jobs is not None)

    @property
    def in_rounds(self) -> tuple[str, ...]:
        """The contestants that work in rounds."""
        return tuple(label for label in self.labels if label not in self.round_less)

    @property
    def step(self) -> str:
        """What a row of a journal is: a round; where a contestant has none, an aggregation."""
        return "aggregation" if self.round_less else "round"

    @property
    def a_step(self) -> str:
        """The same, for "answers a round"."""
        return f"an {self.step}" if self.round_less else f"a {self.step}"

    @property
    def any_judged(self) -> bool:
        """Whether regret of any policy was measured."""
        return any(map(self.judged, self.labels))

    @property
    def real(self) -> bool:
        """Whether clients were real, and not simulated."""
        return isinstance(self.experiment.world, RealFederation)

    @property
    def clock(self) -> str:
        """What kind of time it is that passes."""
        return "wall-clock time" if self.real else "simulated time"

    @property
    def evaluated_on(self) -> str:
        """Before "accuracy" or "loss": a real federation does not tell on what it evaluates."""
        return "" if self.real else "test "

    @property
    def by_time(self) -> bool:
        """Whether runs end by simulated time, so that they differ in their number of rounds."""
        return self.experiment.seconds is not None

    @property
    def uneven(self) -> bool:
        """Whether runs have their own numbers of rounds, so that totals compare nothing."""
        return self.by_time or self.most_rounds > self.rounds

    @property
    def most_rounds(self) -> int:
        """The number of rounds of the longest run."""
        return max(run.rounds for run in self.every_run)

    @property
    def length(self) -> str:
        """How much was run, for titles."""
        if self.experiment.seconds is not None:
            return f"{plain(self.experiment.seconds)} s"
        return "up to " * self.uneven + several(self.most_rounds, self.step)

    @property
    def protected(self) -> tuple[str, ...]:
        """The policies that ran with privacy."""
        if self.experiment.privacy is None:
            return ()
        return tuple(label for label in self.labels if label not in self.experiment.unprotected)

    @property
    def privacy(self) -> Privacy | None:
        """What was promised to the clients of these; None where no policy has privacy."""
        return self.experiment.privacy if self.protected else None

    @property
    def evaluated(self) -> bool:
        """Whether a model was trained and evaluated, be it that only its accuracy was told."""
        return self.trained or self.classifies

    @property
    def trained(self) -> bool:
        """Whether the model has a loss; in some runs it may have diverged."""
        return self._measured("loss")

    @property
    def classifies(self) -> bool:
        """Whether the model has an accuracy."""
        return self._measured("accuracy")

    def _measured(self, column: str) -> bool:
        return any(np.isfinite(run.columns[column]).any() for run in self.every_run)

    def watched(self, *names: str) -> dict[str, Run]:
        """The first run of each policy that published scores of all these names."""
        return {
            label: run
            for label, (run, *_) in self.runs.items()
            if run.scores is not None and run.scores.values.keys() >= set(names)
        }

    def baseline(self, wanted: str | None = None) -> str:
        """The policy that the others are held against: ``wanted``, or "random", or the first."""
        if wanted is None:
            return "random" if "random" in self.runs else self.labels[0]
        if wanted not in self.runs:
            raise ConfigError(
                f"baseline = {wanted!r}, expected one of: {', '.join(self.labels)}",
                key=("baseline",),
            )
        return wanted


def load(paths: Iterable[Path] | Cells) -> Comparison:
    """The runs in these experiment folders and run folders, or runs whose specs are known."""
    by_label = find_comparable(paths)
    seeds, seed_notes = common_seeds(by_label)
    kept = [by_label[label][seed] for label in by_label for seed in seeds]
    journals = [_journal(cell) for cell in kept]
    real = isinstance(kept[0].spec.world, RealFederation)
    client_notes = match_clients(journals) if real else ()
    step = "round" if all(journal.jobs is None for journal in journals) else "aggregation"
    names = [cell.name for cell in kept]
    lengths, notes = compared_rounds(kept[0].spec.horizon, names, journals, step=step)
    runs = [
        _run(cell, journal, rounds)
        for cell, journal, rounds in zip(kept, journals, lengths, strict=True)
    ]
    _check_same_clients(kept, runs)
    experiment = together(kept, seeds)
    versions = [entry for journal in journals for entry in journal.versions]
    endings = [
        Ending(cell.label, cell.seed, rounds, reason)
        for cell, journal, rounds in zip(kept, journals, lengths, strict=True)
        if rounds == len(journal)
        and (reason := early_end(experiment.horizon, journal, step=step)) is not None
    ]
    return Comparison(
        runs={
            label: tuple(runs[start : start + len(seeds)])
            for label, start in zip(by_label, range(0, len(runs), len(seeds)), strict=True)
        },
        seeds=seeds,
        rounds=min(lengths),
        cohort_size=min(runs[0].cohort_size, runs[0].num_clients),
        notes=(
            *notes,
            *ending_notes(endings, seeds=len(seeds), runs=len(runs), step=step),
            *seed_notes,
            *client_notes,
            *statement(experiment),
        ),
        experiment=experiment,
        versions=tuple({tuple(entry.items()): entry for entry in versions}.values()),
    )


def _journal(cell: Cell) -> JournalReader:
    if rounds_done(cell.folder) == 0:
        real = isinstance(cell.spec.world, RealFederation)
        how = "run its app with `flwr run`" if real else f"run `fedmuster resume {cell.path}`"
        if gone := cell.spec.unavailable:
            how = f"report the other runs by their folders, for this cannot run: {gone[0].reason}"
        raise StateError(f"{cell.folder} has no rounds yet: {how}")
    reader = JournalReader(cell.folder)
    if reader.origin is not None:
        require_same_spec(reader.origin, cell.spec, cell.folder)
    return reader


def _run(cell: Cell, reader: JournalReader, rounds: int) -> Run:
    if not np.array_equal(reader.columns["round"], np.arange(1, len(reader) + 1)):
        raise StateError(f"{reader.path} is damaged: its rounds are not 1, 2, …, {len(reader)}")
    check_clients(reader, "group", "typical_latency_seconds", "cohort_size")
    cohorts, groups = reader.cohorts[:rounds], reader.clients["group"]
    network = read_network(reader, rounds)
    names, parameters = (reader.clients.get(key) for key in ("identity", "num_parameters"))
    return Run(
        label=cell.label,
        seed=cell.seed,
        columns={
            **{name: column[:rounds] for name, column in reader.columns.items()},
            **_edge_columns(reader, cell.spec, network),
        },
        cohort_sizes=np.array([len(cohort) for cohort in cohorts], dtype=np.int64),
        chosen=np.concatenate(cohorts),
        groups=groups,
        cohort_size=int(reader.clients["cohort_size"]),
        typical_latency_seconds=reader.clients["typical_latency_seconds"],
        rejections=np.bincount(np.concatenate(reader.rejected[:rounds]), minlength=len(groups)),
        num_samples=reader.clients.get("num_samples"),
        quality=reader.clients.get("quality"),
        num_parameters=None if parameters is None else int(parameters),
        validity=reader.clients.get("validity"),
        utility=reader.clients.get("utility"),
        scores=read_scores(reader, rounds),
        network=network,
        identities=None if names is None else tuple(names.tolist()),
        answered=reader.clients.get("answered"),
        present=reader.clients.get("present"),
        jobs=read_jobs(reader, rounds),
        slots=None if reader.jobs is None else _slots(cell, reader, network),
    )


def _slots(cell: Cell, reader: JournalReader, network: NetworkHistory | None) -> int:
    """How many jobs may be open at once, at all edge servers together."""
    at_one = None if cell.federation is None else cell.federation.concurrency
    servers = 1 if network is None else network.num_edges
    return servers * (int(reader.clients["cohort_size"]) if at_one is None else at_one)


def _edge_columns(
    reader: JournalReader, spec: Experiment, network: NetworkHistory | None
) -> dict[str, FloatArray]:
    """None without edge servers. Unlike the journal's reward, utility needs no judge.

    Utility is of a round: NaN for all aggregations of a run without rounds.
    """
    utility = spec.reward if isinstance(spec.reward, EdgeUtility) else None
    if (network is None) != (utility is None):
        raise StateError(
            f"{reader.path} is damaged: it tells {'nothing ' * (network is None)}of edge servers, "
            f"and the world {spec.world.name} has {'none' if utility is None else 'some'}"
        )
    if network is None or utility is None:
        return {}
    worth = np.full(len(network.participants), np.nan)
    if reader.jobs is None:
        edges = network.num_edges
        worth[:] = [utility.of(n, num_edges=edges) for n in network.participants.tolist()]
    return {
        "participants": network.participants.astype(np.float64),
        "utility": worth,
        "budget_share": network.mean_share,
    }


def _check_same_clients(cells: Sequence[Cell], runs: Sequence[Run]) -> None:
    for cell, run in zip(cells, runs, strict=True):
        if run.num_clients != runs[0].num_clients:
            raise StateError(
                f"{cells[0].folder} has {runs[0].num_clients:,} clients and {cell.folder} has "
                f"{run.num_clients:,}: their world has changed between them"
            )
