"""Runs the league: tune on some worlds and seeds, judge on others, keep every run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from claims.league.cells import Cell, Played, job_of, play_job
from claims.league.contestants import LeagueContestant
from claims.league.plan import Choice, Plan
from claims.league.settings import LeagueSetting
from claims.racing.tuning import Trial, best_rate
from fedmuster.core.errors import ConfigError, StateError
from fedmuster.experiments.sweep import run_side_by_side

Key = TypeVar("Key")

NEVER: float = 2.0
"""A target that is not reached counts as reached after this many horizons."""

Progress = Callable[[str, int, int], None]
"""Called now and then with what is run, how many runs of it are done, and how many there are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Store:
    """The runs that have been played, a file each.

    A file is named by a digest of all that decides its run. So what is there is never run again,
    and what has changed, be it a line of a policy, is another run.

    Args:
        folder: for the files.
        processes: how many runs are played at a time; None for one per core.
        progress: is told how far it is.
    """

    folder: Path
    processes: int | None
    progress: Progress

    def play(self, cells: Iterable[Cell], what: str) -> list[Played]:
        """What came of these cells, after playing those that are missing."""
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
        except BrokenProcessPool as error:
            raise StateError(
                "a worker process died (killed, or out of memory): nothing is lost, start the same "
                "command again"
            ) from error
        return [Played.from_json(path.read_bytes()) for path in paths]

    def _path(self, cell: Cell) -> Path:
        key = cell.key()
        return self.folder / key[:2] / f"{key}.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A contestant after the league.

    Args:
        contestant: who.
        choices: by setting, the rates that it has chosen on the tuning seeds.
        played: by setting, its runs on the judging seeds.
    """

    contestant: LeagueContestant
    choices: Mapping[str, Choice]
    played: Mapping[str, tuple[Played, ...]]


def run_league(contestants: Sequence[LeagueContestant], plan: Plan, store: Store) -> list[Entry]:
    """Tune and judge all contestants in all settings."""
    for contestant in contestants:
        rehearse(contestant, plan)
    choices = tune(contestants, plan, store)
    cells = {
        (contestant.label, setting.name): list(
            plan.judging_cells(contestant, setting, choices[contestant.label][setting.name])
        )
        for setting in plan.settings
        for contestant in contestants
    }
    played = _play_by_key(cells, store, "judging")
    return [
        Entry(
            contestant=contestant,
            choices=choices[contestant.label],
            played={
                setting.name: tuple(played[contestant.label, setting.name])
                for setting in plan.settings
            },
        )
        for contestant in contestants
    ]


def rehearse(contestant: LeagueContestant, plan: Plan) -> None:
    """Play one aggregation, so that a policy that does not fit fails before any run."""
    setting = plan.settings[0]
    (cell, *_) = plan.judging_cells(contestant, setting, plan.choices(contestant)[0])
    try:
        with closing(cell.experiment.simulation(Path(), run="rehearsal")) as simulation:
            simulation.step()
    except ConfigError as error:
        raise ConfigError(f"{contestant.label}: {error}", key=error.key) from error


def tune(
    contestants: Sequence[LeagueContestant], plan: Plan, store: Store
) -> dict[str, dict[str, Choice]]:
    """By contestant and setting, the best rates: all on the first seed, the best few on the others.

    Only the worlds for tuning are used.
    """
    cells = {
        (contestant.label, setting.name, choice): list(
            plan.tuning_cells(contestant, setting, choice)
        )
        for setting in plan.settings
        for contestant in contestants
        for choice in plan.choices(contestant)
    }
    first = _play_by_key({key: own[:1] for key, own in cells.items()}, store, "tuning")
    finalists = [
        (contestant.label, setting.name, choice)
        for setting in plan.settings
        for contestant in contestants
        for choice in _best(
            {c: first[contestant.label, setting.name, c] for c in plan.choices(contestant)},
            setting,
            count=plan.finalists,
        )
    ]
    whole = _play_by_key({key: cells[key] for key in finalists}, store, "tuning, best rates")
    chosen: dict[str, dict[str, Choice]] = {}
    for setting in plan.settings:
        for contestant in contestants:
            label = contestant.label
            own = {key[2]: runs for key, runs in whole.items() if key[:2] == (label, setting.name)}
            (chosen.setdefault(label, {})[setting.name],) = _best(own, setting, count=1)
    return chosen


def _best(
    runs: Mapping[Choice, Sequence[Played]], setting: LeagueSetting, *, count: int
) -> list[Choice]:
    """The choices that are soonest at the target, see :func:`~claims.racing.tuning.best_rate`."""
    late = NEVER * setting.tuning.seconds
    trials = {
        choice: Trial(
            seconds=np.minimum([one.seconds for one in own], late),
            ends=np.nan_to_num([one.end for one in own]),
        )
        for choice, own in runs.items()
    }
    found: list[Choice] = []
    while trials and len(found) < count:
        found.append(best_rate(trials))
        del trials[found[-1]]
    return found


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
