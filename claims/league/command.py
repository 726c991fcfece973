"""What ``fedmuster league`` does: run, write the record and the page, verify a record."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from claims.league import tables
from claims.league.contestants import LeagueContestant, all_contestants, every_name
from claims.league.page import write_page
from claims.league.plan import Plan, fingerprint, full, quick
from claims.league.record import ContestantRecord, LeagueRecord, differences, read_record, record_of
from claims.league.runner import Progress, Store, run_league
from claims.league.score import Score
from fedmuster.report.tables import Table

_CELLS = "runs"


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """The options of the command.

    Args:
        names: of policies; empty for every policy of the registry.
        quick: whether to run the short form.
        first_seed: the first of the judging seeds.
        seeds: how many; None for 10, or 3 in the short form.
        processes: runs at a time; None for one per core.
        folder: for all runs.
        beside: an earlier record, whose contestants take part without being run again.
    """

    names: tuple[str, ...]
    quick: bool
    first_seed: int
    seeds: int | None
    processes: int | None
    folder: Path
    beside: Path | None = None

    @property
    def plan(self) -> Plan:
        """How much is run."""
        make = quick if self.quick else full
        if self.seeds is None:
            return make(first_seed=self.first_seed)
        return make(first_seed=self.first_seed, seeds=self.seeds)

    @property
    def command(self) -> str:
        """The command that makes the same record again."""
        words = ["fedmuster league", *self.names, *["--quick"] * self.quick]
        if self.first_seed:
            words.append(f"--first-seed {self.first_seed}")
        if self.seeds is not None:
            words.append(f"--seeds {self.seeds}")
        if self.beside is not None and self.names:
            words.append(f"--beside {self.beside.name}")
        return " ".join(words)


def play(options: Options, progress: Progress, tell: Callable[[str], None]) -> LeagueRecord:
    """Run what is missing; ``tell`` hears which contestants of the earlier record are left out."""
    contestants = all_contestants(options.names or every_name())
    store = Store(folder=options.folder / _CELLS, processes=options.processes, progress=progress)
    plan, kept = options.plan, list[ContestantRecord]()
    if options.beside is not None:
        kept, changed = _unchanged(read_record(options.beside), contestants, plan)
        for label in changed:
            tell(f"{label} of {options.beside} is left out: it would have to run again, so name it")
    labels = {one.label for one in kept}
    entries = run_league([one for one in contestants if one.label not in labels], plan, store)
    return record_of(entries, plan, options.command, kept)


def _unchanged(
    earlier: LeagueRecord, named: Sequence[LeagueContestant], plan: Plan
) -> tuple[list[ContestantRecord], list[str]]:
    """Contestants of an earlier record whose runs would be the same; labels of others not named."""
    here = {one.label: one for one in [*all_contestants(every_name()), *named]}
    kept = [
        one
        for one in earlier.contestants
        if one.label in here and fingerprint(here[one.label], plan) == one.fingerprint
    ]
    there = {one.label for one in [*kept, *named]}
    return kept, [one.label for one in earlier.contestants if one.label not in there]


def short_tables(record: LeagueRecord) -> list[Table]:
    """For the terminal."""
    score = Score(record)
    return [tables.setting_shares(score), *tables.leaderboards(score)]


def write(record: LeagueRecord, folder: Path) -> list[Path]:
    """The record, the page and its pictures."""
    return write_page(record, folder)


def verify(path: Path) -> tuple[LeagueRecord, Sequence[str]]:
    """A record whose checksum is right, and in what it differs from what is installed here."""
    record = read_record(path)
    return record, differences(record)
