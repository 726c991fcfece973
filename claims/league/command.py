"""What ``fedmuster league`` does: run, copy from an earlier record, verify and replay a record."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from claims.league import tables
from claims.league.checks import Replay, code_state, differences
from claims.league.contestants import LeagueContestant, all_contestants, every_name
from claims.league.plan import Plan, full, quick
from claims.league.record import ContestantRecord, LeagueRecord, read_record
from claims.league.recording import record_of
from claims.league.runner import Progress, Store, run_league
from claims.league.score import Score
from fedmuster.report.tables import Table

Tell = Callable[[str], None]

_CELLS = "runs"


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """The options of the command.

    Args:
        names: of policies; empty for every policy of the registry.
        quick: whether to run the short form.
        first_seed: the first of the judging seeds.
        seeds: the number of judging seeds; None for 10, or 3 in the short form.
        processes: the number of runs at a time; None for one per core.
        folder: for all runs.
        beside: the path of an earlier record whose unchanged contestants are copied.
    """

    names: tuple[str, ...]
    quick: bool
    first_seed: int
    seeds: int | None
    processes: int | None
    folder: Path
    beside: str | None = None

    @property
    def plan(self) -> Plan:
        """How much is run."""
        make = quick if self.quick else full
        if self.seeds is None:
            return make(first_seed=self.first_seed)
        return make(first_seed=self.first_seed, seeds=self.seeds)

    @property
    def command(self) -> str:
        """The command that makes the same record again, with paths as they were written."""
        words = ["fedmuster", "league", *self.names, *["--quick"] * self.quick]
        if self.first_seed:
            words += ["--first-seed", str(self.first_seed)]
        if self.seeds is not None:
            words += ["--seeds", str(self.seeds)]
        if self.beside is not None:
            words += ["--beside", self.beside]
        return shlex.join(words)


def play(options: Options, progress: Progress, tell: Tell) -> LeagueRecord:
    """Run what is missing; ``tell`` is called for contestants that are left out or have failed."""
    contestants = all_contestants(options.names or every_name())
    store = Store(folder=options.folder / _CELLS, processes=options.processes, progress=progress)
    kept: list[ContestantRecord] = []
    if options.beside is not None:
        kept = _copied(options.beside, contestants, options, progress, tell)
    labels = {one.label for one in kept}
    plan = options.plan
    entries = run_league([one for one in contestants if one.label not in labels], plan, store)
    record = record_of(entries, plan, options.command, kept)
    for one in record.contestants:
        if one.failed:
            first = one.failed[0]
            tell(
                f"{one.label}: {tables.failed_text(one)}; the first in {first.setting!r}, seed "
                f"{first.seed}, round {first.round}: {first.error}"
            )
    return record


def _copied(
    path: str, named: Sequence[LeagueContestant], options: Options, progress: Progress, tell: Tell
) -> list[ContestantRecord]:
    """The contestants of an earlier record that have not changed; one run of each is replayed."""
    earlier = read_record(Path(path))
    labels, kept = {one.label for one in named}, []
    for one in earlier.contestants:
        state = code_state(one, options.plan, named)
        if state == "same":
            kept.append(one)
        elif state == "not known here":
            tell(f"{one.label} of {path} is left out, because it is not known here")
        elif one.label not in labels:
            tell(f"{one.label} of {path} has changed since: name it to run it again")
    if not kept:
        return []
    replay = Replay(
        earlier, named, seed=options.first_seed, processes=options.processes, progress=progress
    )
    found = replay.compare([replay.one_of(one) for one in kept])
    for sentences in found.values():
        for sentence in sentences:
            tell(f"not copied from {path}: {sentence}")
    return [
        replace(one, copied_from=one.copied_from or earlier.checksum)
        for one in kept
        if not found[one.label]
    ]


def short_tables(record: LeagueRecord) -> list[Table]:
    """For the terminal."""
    score = Score(record)
    return [tables.setting_shares(score), *tables.leaderboards(score)]


def verify(path: Path, names: Sequence[str]) -> tuple[LeagueRecord, list[str]]:
    """A record whose checksum is right, and what is not here as it was then.

    ``names`` are contestants from outside, whose files are compared, too.
    """
    record = read_record(path)
    return record, differences(record, all_contestants(names))


def rerun(
    record: LeagueRecord,
    names: Sequence[str],
    *,
    count: int,
    seed: int,
    processes: int | None,
    progress: Progress,
) -> tuple[list[str], list[str]]:
    """Play random runs of a record again.

    Return a sentence for each number that differs, and one for each contestant that is not here.
    """
    known = all_contestants(names)
    replay = Replay(record, known, seed=seed, processes=processes, progress=progress)
    found = replay.compare(replay.some(count))
    return [sentence for own in found.values() for sentence in own], replay.not_checked
