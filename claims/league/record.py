"""The record of a league: a JSON file with all numbers and a checksum, and its check."""

import hashlib
import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fedmuster
from claims.league import settings as frozen
from claims.league.cells import COSTS, Played
from claims.league.code import source_digest
from claims.league.contestants import LeagueContestant, base
from claims.league.plan import Choice, Plan, fingerprint
from claims.league.runner import Entry
from claims.measures import model_text, work_text
from fedmuster.core.config import to_table
from fedmuster.core.errors import DataError
from fedmuster.core.files import write_file
from fedmuster.core.policy import POLICIES
from fedmuster.core.records import FloatArray

_FORMAT = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingRecord:
    """A setting, as pages tell it.

    Args:
        name: of the setting.
        task: data, partition, model and work of clients, in words.
        target: the accuracy to reach.
        seconds: the horizon of judging runs.
        judging: the world that judges, in words.
        tuning: the world that tunes, in words, and its horizon.
    """

    name: str
    task: str
    target: float
    seconds: float
    judging: str
    tuning: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunsRecord:
    """The judging runs of a contestant in a setting, in the order of the seeds.

    Args:
        learning_rate: of clients, chosen on the tuning seeds.
        server: the server rule, chosen likewise.
        seconds: until the target; None where it was not reached.
        final_accuracy: the mean of the last tenth of the horizon.
        costs: by name, what had been spent at the target, or in all: see
            :class:`~claims.racing.milestones.Costs`.
        curve: the mean over the seeds of the smoothed accuracy, evenly spaced up to the horizon.
    """

    learning_rate: float
    server: Mapping[str, Any]
    seconds: tuple[float | None, ...]
    final_accuracy: tuple[float, ...]
    costs: Mapping[str, tuple[float, ...]]
    curve: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ContestantRecord:
    """A contestant and its runs.

    Args:
        label: its name.
        in_rounds: whether it works in rounds.
        policy: its settings.
        federation: how it works, where that is not rounds.
        source_sha256: of the policy's file, or of its folder.
        fingerprint: of all that decides its runs, see :func:`~claims.league.plan.fingerprint`.
        runs: by setting.
    """

    label: str
    in_rounds: bool
    policy: Mapping[str, Any]
    federation: Mapping[str, Any]
    source_sha256: str
    fingerprint: str
    runs: Mapping[str, RunsRecord]


@dataclass(frozen=True, kw_only=True, slots=True)
class LeagueRecord:
    """A league with its results.

    Args:
        command: that makes it again.
        quick: whether it is the short form, which decides nothing.
        version: of the settings.
        settings_sha256: of the settings that were run.
        software: versions that decide bits.
        rates: the learning rates that contestants chose from.
        tuning_seeds: by which rates were chosen, in the worlds for tuning.
        judging_seeds: of the runs in this record, in the worlds for judging.
        settings: in which contestants met.
        contestants: the base first.
    """

    command: str
    quick: bool
    version: int
    settings_sha256: str
    software: Mapping[str, str]
    rates: tuple[float, ...]
    tuning_seeds: tuple[int, ...]
    judging_seeds: tuple[int, ...]
    settings: tuple[SettingRecord, ...]
    contestants: tuple[ContestantRecord, ...]

    def to_json(self) -> bytes:
        """The record with its checksum."""
        content = json.loads(json.dumps({"format": _FORMAT, **asdict(self)}))
        signed = {**content, "sha256": _checksum(content)}
        return (json.dumps(signed, indent=1, ensure_ascii=False) + "\n").encode()

    def write(self, path: Path) -> None:
        """As a file."""
        write_file(path, self.to_json())


def read_record(path: Path) -> LeagueRecord:
    """The record in a file, whose checksum must be right.

    Raises:
        DataError: the file is no record of a league, or was changed.
    """
    try:
        content = json.loads(path.read_bytes())
        told = content.pop("sha256")
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise DataError(
            f"{path} is no record of a league: {type(error).__name__}: {error}"
        ) from error
    found = _checksum(content)
    if found != told:
        raise DataError(f"{path} was changed: its checksum is {found}, but it says {told}")
    if content.pop("format") != _FORMAT:
        raise DataError(f"{path} was written by another version of fedmuster: run the league again")
    settings = tuple(SettingRecord(**one) for one in content.pop("settings"))
    contestants = tuple(
        ContestantRecord(
            **{
                **one,
                "runs": {name: RunsRecord(**_tuples(runs)) for name, runs in one["runs"].items()},
            }
        )
        for one in content.pop("contestants")
    )
    return LeagueRecord(**_tuples(content), settings=settings, contestants=contestants)


def differences(record: LeagueRecord) -> list[str]:
    """In what the record's settings, software and policies differ from those that are here."""
    found = []
    by_name = {one.name: one for one in frozen.SETTINGS}
    ours = tuple(by_name[one.name] for one in record.settings if one.name in by_name)
    if record.version != frozen.VERSION or frozen.digest(ours) != record.settings_sha256:
        found.append(
            f"the settings are not those of version {frozen.VERSION}, which is here: the record's "
            "numbers cannot be compared with runs of today"
        )
    for name, version in software().items():
        if record.software.get(name) != version:
            found.append(f"{name} is {version} here, {record.software.get(name)} in the record")
    for one in record.contestants:
        kind = POLICIES.get(one.policy["name"])
        if kind is not None and source_digest(kind) != one.source_sha256:
            found.append(f"{one.label}: the source of its policy is another one here")
    return found


def software() -> dict[str, str]:
    """The versions that decide bits."""
    return {
        "fedmuster": fedmuster.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
    }


def record_of(
    entries: Sequence[Entry], plan: Plan, command: str, kept: Sequence[ContestantRecord] = ()
) -> LeagueRecord:
    """The record of a league that has been run, and of contestants of an earlier record."""
    contestants = [*kept, *(_contestant(entry, plan) for entry in entries)]
    return LeagueRecord(
        command=command,
        quick=plan.quick,
        version=frozen.VERSION,
        settings_sha256=frozen.digest(plan.settings),
        software=software(),
        rates=plan.rates,
        tuning_seeds=plan.tuning_seeds,
        judging_seeds=plan.judging_seeds,
        settings=tuple(
            SettingRecord(
                name=one.name,
                task=f"{one.data.name}, {one.partition_text}, {model_text(one.model)}, "
                f"{work_text(one.local.steps)} in batches of {one.local.batch_size} a job",
                target=one.target,
                seconds=one.judging.seconds,
                judging=one.judging.about,
                tuning=f"{one.tuning.about}; {one.tuning.seconds:g} s",
            )
            for one in plan.settings
        ),
        contestants=tuple(sorted(contestants, key=lambda one: one.label != base().label)),
    )


def _contestant(entry: Entry, plan: Plan) -> ContestantRecord:
    one = entry.contestant
    return ContestantRecord(
        label=one.label,
        in_rounds=one.in_rounds,
        policy=_policy_table(one),
        federation=to_table(one.federation),
        source_sha256=source_digest(type(one.policy)),
        fingerprint=fingerprint(one, plan),
        runs={
            setting.name: _runs(entry.choices[setting.name], entry.played[setting.name])
            for setting in plan.settings
        },
    )


def _policy_table(contestant: LeagueContestant) -> dict[str, Any]:
    table = to_table(contestant.policy)
    return {**table, "name": Path(table["name"]).name}  # a file may lie anywhere


def _runs(choice: Choice, played: Sequence[Played]) -> RunsRecord:
    curves: FloatArray = np.array([one.curve for one in played])
    means = curves.mean(axis=0).tolist()  # NaN before the first evaluation of any run
    return RunsRecord(
        learning_rate=choice.rate,
        server=to_table(choice.server),
        seconds=tuple(one.seconds if np.isfinite(one.seconds) else None for one in played),
        final_accuracy=tuple(one.end for one in played),
        costs={name: tuple(getattr(one.costs, name) for one in played) for name in COSTS},
        curve=tuple(round(value, 4) if math.isfinite(value) else None for value in means),
    )


def _tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    """Lists, which is what JSON has, as tuples; also one level down."""

    def of(value: Any) -> Any:
        if isinstance(value, list):
            return tuple(value)
        if isinstance(value, dict):
            return {key: of(entry) for key, entry in value.items()}
        return value

    return {key: of(value) for key, value in table.items()}


def _checksum(content: Any) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
