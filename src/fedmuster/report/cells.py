"""Which runs may be compared: same world, training, reward and end, same seeds for every policy."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedmuster.core.errors import ConfigError
from fedmuster.core.words import several, span
from fedmuster.experiments.journal import JournalReader
from fedmuster.experiments.run import SPEC_NAME
from fedmuster.experiments.spec import Experiment, first_difference
from fedmuster.experiments.spec_tables import table_of
from fedmuster.experiments.sweep import Cells, find_cells
from fedmuster.federation import Federation, Horizon
from fedmuster.privacy.budget import Privacy


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """A run folder, its spec, and the path by which the user knows it."""

    folder: Path
    spec: Experiment
    path: Path

    @property
    def label(self) -> str:
        """The policy's label."""
        return next(iter(self.spec.policies))

    @property
    def seed(self) -> int:
        """The seed of world and policy."""
        return self.spec.seeds[0]

    @property
    def name(self) -> str:
        """Policy and seed, for headings."""
        return f"{self.label}, seed {self.seed}"

    @property
    def privacy(self) -> Privacy | None:
        """What its clients were promised. Which file kept account of it compares nothing."""
        if self.spec.privacy is None or self.spec.unprotected:
            return None
        return replace(self.spec.privacy, ledger=None)

    @property
    def federation(self) -> Federation | None:
        """When clients are asked, when the server aggregates, what old answers are worth."""
        return self.spec.federation_of(self.label)


def find_comparable(paths: Iterable[Path] | Cells) -> dict[str, dict[int, Cell]]:
    """The runs in these folders by label and seed, or an error that says what does not fit."""
    cells = _find(paths)
    for cell in cells[1:]:
        _check_like(cells[0], cell)
    _check_same_promise([cell for cell in cells if cell.privacy is not None])
    return _by_label(cells)


def common_seeds(
    by_label: Mapping[str, Mapping[int, Cell]],
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The seeds that every policy has, and what to say of the others."""
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


def together(cells: Sequence[Cell], seeds: tuple[int, ...]) -> Experiment:
    """The one experiment that these are the runs of."""
    if len(cells) == 1:
        return cells[0].spec
    privacy = next((cell.privacy for cell in cells if cell.privacy is not None), None)
    unprotected = {cell.label for cell in cells if cell.privacy is None}
    federation, *others = dict.fromkeys(cell.spec.federation for cell in cells)
    federations = {label: own for cell in cells for label, own in cell.spec.federations.items()}
    if others:  # each contestant has its own way of working
        ways = {cell.label: cell.federation for cell in cells}
        federation = None
        federations = {label: way for label, way in ways.items() if way not in (None, Federation())}
    return replace(
        cells[0].spec,
        policies={cell.label: cell.spec.policies[cell.label] for cell in cells},
        seeds=seeds,
        privacy=privacy,
        unprotected=frozenset() if privacy is None else frozenset(unprotected),
        federation=federation,
        federations=federations,
    )


def _find(paths: Iterable[Path] | Cells) -> list[Cell]:
    cells: dict[Path, Cell] = {}
    for path in paths:
        found = {path: paths[path]} if isinstance(paths, Mapping) else find_cells(path)
        for folder, spec in found.items():
            if len(spec.policies) != 1 or len(spec.seeds) != 1:
                raise ConfigError(
                    f"{folder / SPEC_NAME} has {len(spec.policies)} policies and "
                    f"{len(spec.seeds)} seeds, expected one of each: a run is one of both"
                )
            cells.setdefault(folder.resolve(), Cell(folder=folder, spec=spec, path=path))
    if not cells:
        raise ConfigError("no run to report on: give the folder of an experiment or of a run")
    return list(cells.values())


def _check_like(first: Cell, other: Cell) -> None:
    for what in ("world", "reward", "training"):
        _check_equal(first, other, what, getattr(first.spec, what), getattr(other.spec, what))
    if first.spec.horizon != other.spec.horizon:
        raise ConfigError(
            f"{first.folder} and {other.folder} cannot be compared: the one has "
            f"{first.spec.horizon}, the other {other.spec.horizon}"
        )


def _check_same_promise(protected: Sequence[Cell]) -> None:
    """Policies with and without privacy may be compared, but not two kinds of it."""
    for cell in protected[1:]:
        _check_equal(protected[0], cell, "privacy", protected[0].privacy, cell.privacy)


def _check_equal(first: Cell, other: Cell, what: str, *configs: Any) -> None:
    one, two = ({} if own is None else table_of(own) for own in configs)
    found = first_difference(one, two)
    if found is not None:
        key, ours, theirs = found
        raise ConfigError(
            f"{first.folder} and {other.folder} cannot be compared, they differ in {what}: "
            f"{'.'.join(key)} = {ours!r} in the one, {theirs!r} in the other"
        )


def _by_label(cells: Sequence[Cell]) -> dict[str, dict[int, Cell]]:
    by_label: dict[str, dict[int, Cell]] = {}
    for cell in cells:
        seeds = by_label.setdefault(cell.label, {})
        twin = next(iter(seeds.values()), cell)
        if cell.spec.policies != twin.spec.policies:
            raise ConfigError(
                f"{twin.folder} and {cell.folder} are both called {cell.label!r} but are different "
                "policies: give one of them a label of its own"
            )
        if cell.privacy != twin.privacy:
            raise ConfigError(
                f"{twin.folder} and {cell.folder} are both called {cell.label!r}, but only one of "
                "them has privacy: give one of them a label of its own"
            )
        if cell.federation != twin.federation:
            raise ConfigError(
                f"{twin.folder} and {cell.folder} are both called {cell.label!r}, but their "
                "federations work differently: give one of them a label of its own"
            )
        if cell.seed in seeds:
            raise ConfigError(
                f"{seeds[cell.seed].folder} and {cell.folder} are the same run (policy "
                f"{cell.label!r}, seed {cell.seed}): give one of them"
            )
        seeds[cell.seed] = cell
    return by_label


def _listed(seeds: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(seeds)))


class Ending(NamedTuple):
    """A run that was over before its horizon, and why."""

    label: str
    seed: int
    rounds: int
    reason: str


def compared_rounds(
    horizon: Horizon, names: Sequence[str], journals: Sequence[JournalReader], *, step: str
) -> tuple[list[int], tuple[str, ...]]:
    """How many rounds of each run to compare, and what to say of it; ``step`` is their name.

    All, where every run is over, be it at its horizon or before; else as many as the unfinished
    runs have, or those within the simulated time that they have reached.
    """
    done = [len(journal) for journal in journals]
    elapsed = [np.cumsum(journal.columns["seconds"]) for journal in journals]
    unfinished = [
        place
        for place, journal in enumerate(journals)
        if journal.ending is None and not horizon.reached(done[place], float(elapsed[place][-1]))
    ]
    if not unfinished:
        return done, ()
    if horizon.seconds is None:
        last = min(unfinished, key=lambda place: done[place])
        kept = [min(rounds, done[last]) for rounds in done]
        extent = f"{done[last]:,} of {several(horizon.rounds, step)}"
    else:
        last = min(unfinished, key=lambda place: float(elapsed[place][-1]))
        end = float(elapsed[last][-1])
        kept = [max(int(np.searchsorted(own, end, side="right")), 1) for own in elapsed]
        extent = f"{end:g} of {horizon.seconds:g} s"
    note = (
        f"{len(unfinished)} of {len(journals)} runs unfinished: all are cut to the first {extent}, "
        f"as far as {names[last]}, is."
    )
    return kept, (note,)


def early_end(horizon: Horizon, journal: JournalReader, *, step: str) -> str | None:
    """Why a run that is over did not come to the end of its horizon; None if it did.

    A run that should end by time may have had all of its rounds before.
    """
    seconds, rounds = float(journal.columns["seconds"].sum()), len(journal)
    if horizon.seconds is not None and seconds < horizon.seconds and rounds >= horizon.rounds:
        return f"it had {several(rounds, step)} by {seconds:.6g} s; write more rounds"
    return None if horizon.reached(rounds, seconds) else journal.ending


def ending_notes(
    endings: Sequence[Ending], *, seeds: int, runs: int, step: str = "round"
) -> tuple[str, ...]:
    """At most one note, however many runs ended early: what all have in common, and one in full.

    Example:
        >>> ending_notes([Ending("random", 3, 212, "nobody is left")], seeds=2, runs=4)
        ('random, seed 3, ended after 212 rounds: nobody is left.',)
    """
    if not endings:
        return ()
    first, who = endings[0], f"{endings[0].label}, seed {endings[0].seed}"
    if len(endings) == 1:
        return (f"{who}, ended after {first.rounds:,} {step}s: {first.reason}.",)
    by_label: dict[str, list[int]] = {}
    for ending in endings:
        by_label.setdefault(ending.label, []).append(ending.rounds)
    listed = ", ".join(
        f"{label} after {span(min(rounds), max(rounds))} {step}s"
        + (f" ({len(rounds)} of {seeds} seeds)" if len(rounds) < seeds else "")
        for label, rounds in by_label.items()
    )
    return (f"{len(endings)} of {runs} runs ended early: {listed}. {who}: {first.reason}.",)
