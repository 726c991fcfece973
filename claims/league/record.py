"""The record of a league: a JSON file with all numbers and a checksum."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedmuster.core.errors import DataError
from fedmuster.core.files import write_file

_FORMAT = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingRecord:
    """A setting, as pages tell it.

    Args:
        name: of the setting.
        task: data, partition, model and work of clients, in words.
        target: the accuracy to reach.
        seconds: the horizon of judging runs.
        judging: the world of the judging runs, in words.
        tuning: the world of the tuning runs, in words, and its horizon.
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
        seconds: until the target; None where it was not reached, or where the run failed.
        final_accuracy: the mean of the last tenth of the horizon; None where there was none.
        costs: by name, the costs at the target, or of the whole run: see
            :class:`~claims.racing.milestones.Costs`; None where the run failed.
        curve: the mean over the seeds of the smoothed accuracy, evenly spaced up to the horizon.
        at_work: "mean" and "peak" number of clients at work until the target, or in the whole run.
    """

    learning_rate: float
    server: Mapping[str, Any]
    seconds: tuple[float | None, ...]
    final_accuracy: tuple[float | None, ...]
    costs: Mapping[str, tuple[float | None, ...]]
    curve: tuple[float | None, ...]
    at_work: Mapping[str, tuple[float | None, ...]]

    @property
    def numbers(self) -> dict[str, tuple[float | None, ...]]:
        """Every number of every run, by names such as "seconds" and "costs.megabytes"."""
        costs = {f"costs.{name}": own for name, own in self.costs.items()}
        at_work = {f"at_work.{name}": own for name, own in self.at_work.items()}
        return {"seconds": self.seconds, "final_accuracy": self.final_accuracy, **costs, **at_work}


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureRecord:
    """A run that ended with an error, and counts as one that never reached the target.

    Args:
        setting: in which it ran.
        use: "tuning" or "judging".
        seed: of the run.
        round: the number of the aggregation in which the error was raised.
        error: its class and its message.
    """

    setting: str
    use: str
    seed: int
    round: int
    error: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ContestantRecord:
    """A contestant and its runs.

    Args:
        label: its name.
        in_rounds: whether it works in rounds.
        policy: its settings.
        federation: the federation that it works in.
        source_sha256: of the policy's file, or of its folder.
        runs: by setting.
        fingerprint: of all that decides its runs, see :func:`~claims.league.plan.fingerprint`.
        servers: the server rules that it chose from.
        failed: its runs that ended with an error.
        copied_from: the checksum of the earlier record that its runs were copied from; empty if
            they were run for this record.
    """

    label: str
    in_rounds: bool
    policy: Mapping[str, Any]
    federation: Mapping[str, Any]
    source_sha256: str
    runs: Mapping[str, RunsRecord]
    fingerprint: str
    servers: tuple[Mapping[str, Any], ...]
    failed: tuple[FailureRecord, ...] = ()
    copied_from: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeagueRecord:
    """A league with its results.

    Args:
        command: the command that makes it again.
        quick: whether it is the short form, which decides nothing.
        version: of the settings.
        settings_sha256: of the settings that were run.
        software: versions that decide bits.
        rates: the learning rates that contestants chose from.
        tuning_seeds: the seeds of the runs that chose rates, in the worlds for tuning.
        judging_seeds: the seeds of the runs in this record, in the worlds for judging.
        settings: all settings that were run.
        contestants: the base first.
        finalists: the number of choices that ran on all tuning seeds.
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
    finalists: int

    @property
    def checksum(self) -> str:
        """SHA-256 of everything in the record."""
        return _checksum(self._content())

    def to_json(self) -> bytes:
        """The record with its checksum."""
        signed = {**self._content(), "sha256": self.checksum}
        return (json.dumps(signed, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()

    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(json.dumps({"format": _FORMAT, **asdict(self)}))
        return content

    def write(self, path: Path) -> None:
        """As a file."""
        write_file(path, self.to_json())


def read_record(path: Path) -> LeagueRecord:
    """The record in a file, whose checksum must be right.

    Raises:
        DataError: the file is no record of a league, was edited, or has an unknown format.
    """
    try:
        content = json.loads(path.read_bytes())
        told = content.pop("sha256")
        if (found := _checksum(content)) != told:
            raise DataError(f"{path} was edited: its checksum is {found}, but it says {told}")
        if (written := content.pop("format")) != _FORMAT:
            raise DataError(f"{path} has format {written}, expected {_FORMAT}")
        return _record(content)
    except DataError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path} is no record of a league: {type(error).__name__}: {error}"
        ) from error


def _record(content: dict[str, Any]) -> LeagueRecord:
    settings = tuple(SettingRecord(**one) for one in content.pop("settings"))
    contestants = tuple(_contestant(one) for one in content.pop("contestants"))
    return LeagueRecord(**_tuples(content), settings=settings, contestants=contestants)


def _contestant(table: dict[str, Any]) -> ContestantRecord:
    runs = {
        name: RunsRecord(**{**_tuples(own), "server": own["server"]})
        for name, own in table.pop("runs").items()
    }
    failed = tuple(FailureRecord(**one) for one in table.pop("failed"))
    servers = tuple(table.pop("servers"))
    return ContestantRecord(**table, runs=runs, failed=failed, servers=servers)


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
