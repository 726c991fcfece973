"""Compares a record with what is here: its settings, the code of its contestants, single runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from claims.league import settings as frozen
from claims.league.cells import portable
from claims.league.contestants import LeagueContestant, rebuilt
from claims.league.plan import Choice, Plan, cell_of, fingerprint
from claims.league.record import ContestantRecord, LeagueRecord
from claims.league.recording import numbers_of
from claims.league.runner import Progress, Store
from claims.league.software import installed
from fedmuster.core.config import named, to_table
from fedmuster.core.errors import ConfigError, DataError
from fedmuster.core.registry import is_outside
from fedmuster.training.aggregation import SERVERS

CodeState = Literal["same", "changed", "not known here"]
_TOLD: Mapping[CodeState, str] = {
    "changed": "its fingerprint differs, so its code or versions differ",
    "not known here": "cannot be checked here, its policy is not known here",
}

_NOT_HERE = "source not here, not checked"


def plan_of(record: LeagueRecord) -> Plan | None:
    """The plan of a record; None if its settings are not those of this version."""
    by_name = {one.name: one for one in frozen.SETTINGS}
    settings = tuple(by_name[one.name] for one in record.settings if one.name in by_name)
    if record.version != frozen.VERSION or frozen.digest(settings) != record.settings_sha256:
        return None
    return Plan(
        settings=settings,
        rates=record.rates,
        finalists=record.finalists,
        tuning_seeds=record.tuning_seeds,
        judging_seeds=record.judging_seeds,
        quick=record.quick,
    )


def contestant_here(
    record: ContestantRecord, known: Iterable[LeagueContestant]
) -> LeagueContestant | None:
    """The contestant of a record, with the code that is here.

    None for a policy that is not known here. A policy from outside is taken from ``known`` alone:
    a record is no reason to run a file.
    """
    if any(is_outside(name) for part in (record.policy, *record.servers) for name in _names(part)):
        return next((one for one in known if one.label == record.label), None)
    try:
        return rebuilt(record.label, record.policy, record.federation, record.servers)
    except ConfigError:
        return None


def code_state(
    record: ContestantRecord, plan: Plan, known: Iterable[LeagueContestant] = ()
) -> CodeState:
    """Whether a contestant would have the runs of the record again, by its fingerprint."""
    here = contestant_here(record, known)
    if here is None:
        return "not known here"
    return "same" if fingerprint(here, plan) == record.fingerprint else "changed"


def differences(record: LeagueRecord, known: Iterable[LeagueContestant] = ()) -> list[str]:
    """What is not here as it was when the record was written, one sentence each.

    Args:
        record: the record.
        known: contestants from outside whose files are here.
    """
    found, known, plan = [], list(known), plan_of(record)
    for name, version in installed().items():
        if (then := record.software.get(name, "not named")) != version:
            found.append(f"{name} is {version} here, {then} in the record")
    if plan is None:
        return [
            f"the settings are not those of version {frozen.VERSION}, which is here: the record's "
            "numbers cannot be compared with runs of today",
            *found,
        ]
    found += [
        f"{one.label}: {_TOLD[state]}"
        for one in record.contestants
        if (state := code_state(one, plan, known)) != "same"
    ]
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedRun:
    """A judging run of a record.

    Args:
        contestant: whose run it is.
        setting: the name of its setting.
        place: the number of its seed in the record.
    """

    contestant: ContestantRecord
    setting: str
    place: int

    @property
    def numbers(self) -> dict[str, Any]:
        """Its numbers; see :func:`~claims.league.recording.numbers_of`."""
        columns = self.contestant.runs[self.setting].numbers
        return {name: own[self.place] for name, own in columns.items()}


class Replay:
    """Plays judging runs of a record again, and compares every number bit for bit.

    Args:
        record: the record.
        known: contestants from outside whose files are here.
        seed: chooses the runs, together with the checksum of the record.
        processes: the number of runs at a time; None for one per core.
        progress: receives the state.

    Raises:
        DataError: the settings of the record are not here.
    """

    def __init__(
        self,
        record: LeagueRecord,
        known: Iterable[LeagueContestant] = (),
        *,
        seed: int,
        processes: int | None,
        progress: Progress,
    ) -> None:
        plan = plan_of(record)
        if plan is None:
            raise DataError("no run can be played again: the settings of the record are not here")
        self.plan, self._processes, self._progress = plan, processes, progress
        known = list(known)
        self._here = {one.label: contestant_here(one, known) for one in record.contestants}
        self._contestants = record.contestants
        self._rng = np.random.default_rng([seed, int(record.checksum[:16], 16)])

    @property
    def not_checked(self) -> list[str]:
        """A sentence for each contestant that cannot be played here."""
        return [f"{label}: {_NOT_HERE}" for label, here in self._here.items() if here is None]

    def some(self, count: int) -> list[RecordedRun]:
        """``count`` random runs of the contestants that are here, or all if there are fewer."""
        runs = [run for one in self._contestants for run in self._runs_of(one)]
        chosen = self._rng.permutation(len(runs))[:count]
        return [runs[place] for place in sorted(chosen.tolist())]

    def one_of(self, contestant: ContestantRecord) -> RecordedRun:
        """A random run of a contestant."""
        runs = list(self._runs_of(contestant))
        return runs[int(self._rng.integers(len(runs)))]

    def _runs_of(self, contestant: ContestantRecord) -> Iterator[RecordedRun]:
        if self._here[contestant.label] is not None:
            for setting in self.plan.settings:
                for place in range(len(self.plan.judging_seeds)):
                    yield RecordedRun(contestant=contestant, setting=setting.name, place=place)

    def compare(self, runs: Sequence[RecordedRun]) -> dict[str, list[str]]:
        """By label, a sentence for each number that differs."""
        settings = {one.name: one for one in self.plan.settings}
        cells = []
        for run in runs:
            here, setting = self._here[run.contestant.label], settings[run.setting]
            assert here is not None
            seed, choice = self.plan.judging_seeds[run.place], _choice(run, here)
            cells.append(cell_of(here, setting, setting.judging, choice, seed))
        with TemporaryDirectory() as folder:  # no run that is kept elsewhere counts
            store = Store(folder=Path(folder), processes=self._processes, progress=self._progress)
            played = store.play(cells, "replay")
        found: dict[str, list[str]] = {run.contestant.label: [] for run in runs}
        for run, again in zip(runs, played, strict=True):
            numbers, label = numbers_of(again), run.contestant.label
            found[label] += [
                f"{label}, {run.setting}, seed {self.plan.judging_seeds[run.place]}: {name} is "
                f"{numbers[name]} here, {told} in the record"
                for name, told in run.numbers.items()
                if numbers[name] != told
            ]
        return found


def _choice(run: RecordedRun, here: LeagueContestant) -> Choice:
    runs = run.contestant.runs[run.setting]
    for server in here.servers:
        if portable(to_table(server)) == runs.server:
            return Choice(runs.learning_rate, server)
    return Choice(runs.learning_rate, named(SERVERS, runs.server, key=("server",), what="server"))


def _names(table: Mapping[str, Any]) -> Iterator[str]:
    """The names of a policy and of all its parts."""
    for key, value in table.items():
        if key == "name":
            yield value
        elif isinstance(value, Mapping):
            yield from _names(value)
