"""Runs that may be compared: same world, training, reward and end, same seeds for every policy."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedmuster.core.config import to_table
from fedmuster.core.errors import ConfigError, StateError
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.experiments.journal import JournalReader, rounds_done
from fedmuster.experiments.run import SPEC_NAME
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.sweep import find_cells


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Run:
    """The first rounds of one policy under one seed.

    Args:
        label: of the policy.
        seed: of world and policy.
        columns: ``round``, ``seconds``, ``reward``, ``regret``, ``num_available``,
            ``num_completed``, ``num_refused``, ``loss``, ``accuracy``, ``train_loss``,
            ``num_aggregated``; one entry a round, NaN where there is none: loss and accuracy are
            of the test set, in the rounds that were evaluated.
        cohort_sizes: how many clients were chosen in each round.
        chosen: those clients, one round after the other.
        cohort_size: m.
        groups: [K], speed group of each client.
        typical_latency_seconds: [K], in the long run.
        rejections: [K], how often each client's update was not finite.
        num_samples: [K], None where all clients have equally much data.
        quality: [K] of the data, None where it is alike.
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

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return len(self.cohort_sizes)

    @property
    def num_clients(self) -> int:
        """K."""
        return len(self.groups)

    def selection_counts(self) -> IntArray:
        """[K], how often each client was chosen."""
        return np.bincount(self.chosen, minlength=self.num_clients)

    def chosen_rounds(self) -> IntArray:
        """The round, counted from 0, of each entry of ``chosen``."""
        return np.repeat(np.arange(len(self.cohort_sizes)), self.cohort_sizes)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Comparison:
    """Policies that faced the same world with the same luck.

    Args:
        runs: for each label, its runs in the order of ``seeds``.
        seeds: those that every policy has.
        rounds: how many of them all runs have: every run has exactly these, unless the
            experiment ends runs by simulated time, when each has its own number.
        cohort_size: m.
        notes: what a reader of any result has to know: rounds cut off, seeds left out.
        experiment: all of it, for the record.
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
    def num_clients(self) -> int:
        """K."""
        return self.runs[self.labels[0]][0].num_clients

    def column(self, label: str, name: str) -> FloatArray:
        """[seeds, rounds]: a column of the journals of a policy, the rounds that all runs have."""
        return np.stack([run.columns[name][: self.rounds] for run in self.runs[label]])

    def judged(self, label: str) -> bool:
        """Whether regret of this policy was measured."""
        return not np.isnan(self.column(label, "regret")).any()

    @property
    def by_time(self) -> bool:
        """Whether runs end by simulated time, so that they differ in their number of rounds."""
        return self.experiment.seconds is not None

    @property
    def trained(self) -> bool:
        """Whether a model was trained and evaluated; in some runs it may have diverged."""
        return self._measured("loss")

    @property
    def classifies(self) -> bool:
        """Whether the model has an accuracy."""
        return self._measured("accuracy")

    def _measured(self, column: str) -> bool:
        return any(
            np.isfinite(run.columns[column]).any() for runs in self.runs.values() for run in runs
        )

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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cell:
    """A run folder, its spec, and the path by which the user knows it."""

    folder: Path
    spec: Experiment
    path: Path

    @property
    def label(self) -> str:
        return next(iter(self.spec.policies))

    @property
    def seed(self) -> int:
        return self.spec.seeds[0]


def load(paths: Iterable[Path]) -> Comparison:
    """The runs in these experiment folders and run folders."""
    cells = _find(paths)
    for cell in cells[1:]:
        _check_comparable(cells[0], cell)
    by_label = _by_label(cells)
    seeds, seed_notes = _common_seeds(by_label)
    kept = [by_label[label][seed] for label in by_label for seed in seeds]
    journals = [_journal(cell) for cell in kept]
    lengths, notes = _common_length(kept, journals)
    runs = [
        _run(cell, journal, rounds)
        for cell, journal, rounds in zip(kept, journals, lengths, strict=True)
    ]
    _check_same_clients(kept, runs)
    return Comparison(
        runs={
            label: tuple(runs[start : start + len(seeds)])
            for label, start in zip(by_label, range(0, len(runs), len(seeds)), strict=True)
        },
        seeds=seeds,
        rounds=min(lengths),
        cohort_size=min(runs[0].cohort_size, runs[0].num_clients),
        notes=(*notes, *seed_notes),
        experiment=replace(
            kept[0].spec,
            policies={label: by_label[label][seeds[0]].spec.policies[label] for label in by_label},
            seeds=seeds,
        ),
        versions=_distinct(entry for journal in journals for entry in journal.versions),
    )


def _find(paths: Iterable[Path]) -> list[_Cell]:
    cells: dict[Path, _Cell] = {}
    for path in paths:
        for folder in find_cells(path):
            spec = Experiment.load(folder / SPEC_NAME)
            if len(spec.policies) != 1 or len(spec.seeds) != 1:
                raise ConfigError(
                    f"{folder / SPEC_NAME} has {len(spec.policies)} policies and "
                    f"{len(spec.seeds)} seeds, expected one of each: a run is one of both"
                )
            cells.setdefault(folder.resolve(), _Cell(folder=folder, spec=spec, path=path))
    if not cells:
        raise ConfigError("no run to report on: give the folder of an experiment or of a run")
    return list(cells.values())


def _check_comparable(first: _Cell, other: _Cell) -> None:
    for what in ("world", "reward", "training"):
        one, two = (_table(getattr(cell.spec, what)) for cell in (first, other))
        if one != two:
            raise ConfigError(
                f"{first.folder} and {other.folder} cannot be compared, they differ in {what}: "
                + _first_difference(one, two)
            )
    if first.spec.horizon != other.spec.horizon:
        raise ConfigError(
            f"{first.folder} and {other.folder} cannot be compared: the one has "
            f"{first.spec.horizon}, the other {other.spec.horizon}"
        )


def _table(config: Any) -> dict[str, Any]:
    return {} if config is None else to_table(config)


def _first_difference(one: Mapping[str, Any], two: Mapping[str, Any]) -> str:
    key = next(key for key in {**one, **two} if one.get(key) != two.get(key))
    return f"{key} = {one.get(key)!r} in the one, {two.get(key)!r} in the other"


def _by_label(cells: Sequence[_Cell]) -> dict[str, dict[int, _Cell]]:
    by_label: dict[str, dict[int, _Cell]] = {}
    for cell in cells:
        seeds = by_label.setdefault(cell.label, {})
        twin = next(iter(seeds.values()), cell)
        if cell.spec.policies != twin.spec.policies:
            raise ConfigError(
                f"{twin.folder} and {cell.folder} are both called {cell.label!r} but are different "
                "policies: give one of them a label of its own"
            )
        if cell.seed in seeds:
            raise ConfigError(
                f"{seeds[cell.seed].folder} and {cell.folder} are the same run (policy "
                f"{cell.label!r}, seed {cell.seed}): give one of them"
            )
        seeds[cell.seed] = cell
    return by_label


def _common_seeds(
    by_label: Mapping[str, Mapping[int, _Cell]],
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    sets = [set(seeds) for seeds in by_label.values()]
    common = set.intersection(*sets)
    if not common:
        raise ConfigError(
            "no seed is common to all policies, so nothing can be paired: "
            + "; ".join(f"{label} has {_listed(seeds)}" for label, seeds in by_label.items())
        )
    if not (rest := set.union(*sets) - common):
        return tuple(sorted(common)), ()
    note = f"Seeds that not every policy has are left out: {_listed(rest)}."
    return tuple(sorted(common)), (note,)


def _journal(cell: _Cell) -> JournalReader:
    if rounds_done(cell.folder) == 0:
        raise StateError(
            f"{cell.folder} has no rounds yet: run it with `fedmuster resume {cell.path}`"
        )
    return JournalReader(cell.folder)


def _common_length(
    cells: Sequence[_Cell], journals: Sequence[JournalReader]
) -> tuple[list[int], tuple[str, ...]]:
    """How many rounds of each run to compare, and what to say of it.

    As many as all runs have; or, where runs end by simulated time and are unfinished, those within
    the time that all of them have reached.
    """
    horizon = cells[0].spec.horizon
    done = [len(journal) for journal in journals]
    elapsed = [np.cumsum(journal.columns["seconds"]) for journal in journals]
    unfinished = [
        not horizon.reached(rounds, float(seconds[-1]))
        for rounds, seconds in zip(done, elapsed, strict=True)
    ]
    if horizon.seconds is None:
        kept = [min(done)] * len(done)
        last, extent = int(np.argmin(done)), f"{min(done):,} of {horizon.rounds:,} rounds"
    else:
        ends = [float(seconds[-1]) for seconds in elapsed]
        last, extent = int(np.argmin(ends)), f"{min(ends):g} of {horizon.seconds:g} s"
        kept = done
        if any(unfinished):
            kept = [max(int(np.searchsorted(s, min(ends), side="right")), 1) for s in elapsed]
    if not any(unfinished):
        return kept, ()
    note = (
        f"{sum(unfinished)} of {len(cells)} runs unfinished: all are cut to the first {extent}, "
        f"as far as {cells[last].label}, seed {cells[last].seed}, is."
    )
    return kept, (note,)


def _run(cell: _Cell, reader: JournalReader, rounds: int) -> Run:
    if not np.array_equal(reader.columns["round"], np.arange(1, len(reader) + 1)):
        raise StateError(f"{reader.path} is damaged: its rounds are not 1, 2, …, {len(reader)}")
    cohorts = reader.cohorts[:rounds]
    chosen = np.concatenate(cohorts)
    missing = {"group", "typical_latency_seconds", "cohort_size"} - reader.clients.keys()
    if missing:
        raise StateError(f"{reader.path} is damaged: it does not hold {', '.join(sorted(missing))}")
    groups = reader.clients["group"]
    if len(chosen) and not 0 <= chosen.min() <= chosen.max() < len(groups):
        raise StateError(
            f"{reader.path} is damaged: it names a client that is not one of {len(groups)}"
        )
    return Run(
        label=cell.label,
        seed=cell.seed,
        columns={name: column[:rounds] for name, column in reader.columns.items()},
        cohort_sizes=np.array([len(cohort) for cohort in cohorts], dtype=np.int64),
        chosen=chosen,
        groups=groups,
        cohort_size=int(reader.clients["cohort_size"]),
        typical_latency_seconds=reader.clients["typical_latency_seconds"],
        rejections=np.bincount(np.concatenate(reader.rejected[:rounds]), minlength=len(groups)),
        num_samples=reader.clients.get("num_samples"),
        quality=reader.clients.get("quality"),
    )


def _check_same_clients(cells: Sequence[_Cell], runs: Sequence[Run]) -> None:
    for cell, run in zip(cells, runs, strict=True):
        if run.num_clients != runs[0].num_clients:
            raise StateError(
                f"{cells[0].folder} has {runs[0].num_clients:,} clients and {cell.folder} has "
                f"{run.num_clients:,}: their world has changed between them"
            )


def _distinct(entries: Iterable[Mapping[str, str]]) -> tuple[Mapping[str, str], ...]:
    return tuple({tuple(entry.items()): entry for entry in entries}.values())


def _listed(seeds: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(seeds)))
