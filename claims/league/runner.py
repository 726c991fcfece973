"""Runs the league: tune on some worlds and seeds, judge on others, keep every run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from claims.league.cells import Cell, Failure, Played, job_of, play_job
from claims.league.contestants import LeagueContestant
from claims.league.plan import Choice, Plan
from claims.league.settings import LeagueSetting
from claims.racing.tuning import Trial, ranked_rates
from fedmuster.core.errors import ConfigError, FedmusterError, StateError
from fedmuster.experiments.sweep import run_side_by_side

Key = TypeVar("Key")

NEVER: float = 2.0
"""A target that is not reached counts as reached after this many horizons."""

Progress = Callable[[str, int, int], None]
"""Called with the name of a stage, the number of its runs that are done, and of all its runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Store:
    """The runs that have been played, a file each.

    The name of a file is a digest of all that decides its run. A run whose file exists is not run
    again. A change, even of a line of a policy, makes another run.

    Args:
        folder: for the files.
        processes: the number of runs at a time; None for one per core.
        progress: receives the state of each stage.
    """

    folder: Path
    processes: int | None
    progress: Progress

    def play(self, cells: Iterable[Cell], what: str) -> list[Played]:
        """The results of these cells; those without a file are played first."""
        wanted = list(cells)
        paths = [self._path(cell) for cell in wanted]
        missing = {
            path: cell for path, cell in zip(paths, wanted, strict=True) if not path.exists()
        }
        have = len(set(paths)) - len(missing)

        def tick() -> None:
            done = sum(path.exists() for path in missing)
            self.progress(what, have + done, have + len(missing))

        try:
            run_side_by_side(
                play_job,
                [job_of(cell, path) for path, cell in missing.items()],
                processes=self.processes,
                tick=tick,
            )
        except (BrokenProcessPool, OSError, MemoryError) as error:
            raise StateError(
                f"a run was cut short ({type(error).__name__}: {error}). Finished runs are kept. "
                "Start the same command again."
            ) from error
        return [Played.from_json(path.read_bytes()) for path in paths]

    def has(self, cell: Cell) -> bool:
        """Whether a run has been played."""
        return self._path(cell).exists()

    def _path(self, cell: Cell) -> Path:
        key = cell.key()
        return self.folder / key[:2] / f"{key}.json"


class FailedRun(NamedTuple):
    """A run that ended with an error.

    Args:
        setting: the name of the setting.
        use: "tuning" or "judging".
        seed: of the run.
        failure: the round and the error.
    """

    setting: str
    use: str
    seed: int
    failure: Failure


class Tuned(NamedTuple):
    """The rates of a contestant by setting, and the tuning runs that failed."""

    choices: dict[str, Choice]
    failed: list[FailedRun]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A contestant after the league.

    Args:
        contestant: The contestant.
        choices: by setting, the rates that were chosen on the tuning seeds.
        played: by setting, its runs on the judging seeds.
        failed: its runs that ended with an error.
    """

    contestant: LeagueContestant
    choices: Mapping[str, Choice]
    played: Mapping[str, tuple[Played, ...]]
    failed: tuple[FailedRun, ...] = ()


def run_league(contestants: Sequence[LeagueContestant], plan: Plan, store: Store) -> list[Entry]:
    """Tune and judge all contestants in all settings."""
    rehearse(contestants, plan, store)
    tuned = tune(contestants, plan, store)
    cells = {
        (one.label, setting.name): list(
            plan.judging_cells(one, setting, tuned[one.label].choices[setting.name])
        )
        for setting in plan.settings
        for one in contestants
    }
    played = _play_by_key(cells, store, "judging")
    entries = []
    for one in contestants:
        own = {setting.name: played[one.label, setting.name] for setting in plan.settings}
        failed = list(tuned[one.label].failed)
        for name, runs in own.items():
            failed += _failed(name, "judging", plan.judging_seeds, runs)
        entries.append(
            Entry(
                contestant=one,
                choices=tuned[one.label].choices,
                played={name: tuple(runs) for name, runs in own.items()},
                failed=tuple(failed),
            )
        )
    return entries


def rehearse(contestants: Sequence[LeagueContestant], plan: Plan, store: Store) -> None:
    """Load all data, and play one aggregation of every contestant in both worlds of each setting.

    A contestant that has a run of a setting in the store was rehearsed before that run.

    Raises:
        ConfigError: a data set is missing, or a policy does not fit; it names the setting and the
            contestant.
    """
    for setting in plan.settings:
        try:
            setting.data.load(plan.judging_seeds[0])
        except FedmusterError as error:
            raise ConfigError(f"{setting.name}: {error}", key=("data",)) from error
    whole = len(plan.settings) * len(contestants)
    for number, (setting, one) in enumerate(product(plan.settings, contestants)):
        store.progress("rehearsal", number, whole)
        try:
            choice = plan.choices(one)[0]
            cells = [
                next(of(one, setting, choice)) for of in (plan.tuning_cells, plan.judging_cells)
            ]
            if store.has(cells[0]):
                continue
            for cell in cells:
                with closing(cell.simulation()) as simulation:
                    simulation.step()
        except Exception as error:
            raise ConfigError(
                f"{one.label} cannot play in {setting.name!r}: {type(error).__name__}: {error}",
                key=getattr(error, "key", ()),
            ) from error
    store.progress("rehearsal", whole, whole)


def tune(contestants: Sequence[LeagueContestant], plan: Plan, store: Store) -> dict[str, Tuned]:
    """By contestant, the best rates: all on the first seed, the best few on the others.

    Only the worlds for tuning are used.
    """
    cells = {
        (one.label, setting.name, choice): list(plan.tuning_cells(one, setting, choice))
        for setting in plan.settings
        for one in contestants
        for choice in plan.choices(one)
    }
    first = _play_by_key({key: own[:1] for key, own in cells.items()}, store, "tuning")
    finalists = [
        (one.label, setting.name, choice)
        for setting in plan.settings
        for one in contestants
        for choice in _ranked(_of(first, one, setting, plan), setting)[: plan.finalists]
    ]
    whole = _play_by_key({key: cells[key] for key in finalists}, store, "tuning, best rates")
    tuned = {one.label: Tuned({}, []) for one in contestants}
    for setting in plan.settings:
        for one in contestants:
            own = _of(whole, one, setting, plan)
            choices, failed = tuned[one.label]
            choices[setting.name] = _ranked(own, setting)[0]
            for runs in (_of(first, one, setting, plan) | own).values():
                failed += _failed(setting.name, "tuning", plan.tuning_seeds, runs)
    return tuned


def _of(
    runs: Mapping[tuple[str, str, Choice], list[Played]],
    contestant: LeagueContestant,
    setting: LeagueSetting,
    plan: Plan,
) -> dict[Choice, list[Played]]:
    """The runs of a contestant in a setting, by choice."""
    keys = [(contestant.label, setting.name, choice) for choice in plan.choices(contestant)]
    return {key[2]: runs[key] for key in keys if key in runs}


def _failed(
    setting: str, use: str, seeds: Sequence[int], runs: Sequence[Played]
) -> list[FailedRun]:
    return [
        FailedRun(setting, use, seed, one.failure)
        for seed, one in zip(seeds, runs, strict=False)  # the first stage of tuning plays one seed
        if one.failure is not None
    ]


def _ranked(runs: Mapping[Choice, Sequence[Played]], setting: LeagueSetting) -> list[Choice]:
    """The choices, the best first; see :func:`~claims.racing.tuning.ranked_rates`."""
    late = NEVER * setting.tuning.seconds
    return ranked_rates(
        {
            choice: Trial(
                seconds=np.minimum([one.seconds for one in own], late),
                ends=np.nan_to_num([one.end for one in own]),
            )
            for choice, own in runs.items()
        }
    )


def _play_by_key(
    cells: Mapping[Key, Sequence[Cell]], store: Store, what: str
) -> dict[Key, list[Played]]:
    """The runs of each key; those of one world and seed are played after each other."""
    flat = [(number, key, cell) for key, own in cells.items() for number, cell in enumerate(own)]
    flat.sort(key=lambda one: one[0])  # stable: settings keep their order
    found: dict[Key, list[Played]] = {key: [] for key in cells}
    for (_, key, _), played in zip(
        flat, store.play((cell for *_, cell in flat), what), strict=True
    ):
        found[key].append(played)
    return found
