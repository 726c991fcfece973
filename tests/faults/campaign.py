"""Real ``kill -9`` at random points of private runs, an audit after each, and how it ended."""

import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from time import monotonic
from typing import Final, NamedTuple

from tests.faults.auditor import Key, LedgerAudit, RunAudit, audit_ledger, audit_run
from tests.faults.board import Board, Point
from tests.faults.killing import Pace, complaint, kill_somewhere, start, wait
from tests.faults.scenarios import SCENARIOS, Scenario
from tests.faults.watching import RELEASES

from fedmuster.experiments.journal import JournalReader, rounds_done
from fedmuster.experiments.run import SPEC_NAME, prepare
from fedmuster.privacy.ledger.guards import STATE_FOLDER_VARIABLE

STAGES: Final = ("debit", "release", "aggregation", "checkpoint")
LEAST_SHARE: Final = 0.05
"""Of all kills must have hit each stage."""

_MOST_KILLS_A_TRIAL: Final = 8


class Reference(NamedTuple):
    """A run that nobody killed."""

    pace: Pace
    rounds: int
    digest: str
    ending: str | None


@dataclass(kw_only=True, slots=True)
class Result:
    """What a campaign has seen."""

    kills: Counter[Point] = field(default_factory=Counter)
    kills_by_scenario: Counter[str] = field(default_factory=Counter)
    trials: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    audits: int = 0
    debits: int = 0
    releases: int = 0
    repeated_releases: int = 0
    runs: int = 0
    identical_runs: int = 0
    secure_rounds: int = 0
    lost_rounds: int = 0
    secure_jobs: int = 0
    lost_jobs: int = 0

    @property
    def total(self) -> int:
        return self.kills.total()

    def hits(self, stage: str) -> int:
        return sum(count for point, count in self.kills.items() if point.stage == stage)

    @property
    def neglected(self) -> list[str]:
        """Stages that were hit too rarely for the campaign to say anything about them."""
        return [stage for stage in STAGES if self.hits(stage) < LEAST_SHARE * self.total]


class Campaign:
    """Kills runs until there were enough kills and every run has come to its end.

    Args:
        kills: how many at least.
        seed: of what is run, where it is killed and when; the machine's scheduler has a say, too.
        progress: called after each kill with their number.
    """

    def __init__(self, *, kills: int, seed: int, progress: Callable[[int], None]) -> None:
        self.result = Result()
        self.rng = random.Random(seed)
        self.board = Board()
        self.progress = progress
        self._wanted = kills
        self._references: dict[str, tuple[list[Reference], dict[Key, int]]] = {}
        # Commits to a disk take long and can be hit inside; those to memory are soon over, and
        # leave time for more of the others.
        self._places = [Path(gettempdir())]
        if os.access("/dev/shm", os.W_OK):
            self._places.append(Path("/dev/shm"))

    def run(self) -> Result:
        """Until it is over, or something is wrong."""
        while True:
            for name in self.rng.sample(list(SCENARIOS), len(SCENARIOS)):
                if self._over() or self.result.faults:
                    return self.result
                self._try(name)

    def _over(self) -> bool:
        """Luck may neglect a stage: then somewhat longer."""
        total = self.result.total
        return total >= 2 * self._wanted or (total >= self._wanted and not self.result.neglected)

    def _try(self, name: str) -> None:
        for place in (self._places[-1], self.rng.choice(self._places)):
            with TemporaryDirectory(dir=place, prefix="fedmuster-faults-") as folder:
                os.environ[STATE_FOLDER_VARIABLE] = str(Path(folder) / "state")
                trial = _Trial(self, name, Path(folder))
                if name not in self._references:
                    self._references[name] = trial.uninterrupted()
                    continue
                trial.play(*self._references[name])
                self.result.trials[name] += 1
                return


class _Trial:
    """A scenario that is killed several times."""

    def __init__(self, campaign: Campaign, name: str, folder: Path) -> None:
        self._name = name
        self._campaign = campaign
        self._result = campaign.result
        self._scenario: Scenario = SCENARIOS[name]
        self._folder = folder
        self._runs = self._scenario.placed(folder)
        self._hit: dict[Path, list[int]] = {run: [] for run in self._runs}
        for run, experiment in self._runs.items():
            prepare(run, experiment)

    def uninterrupted(self) -> tuple[list[Reference], dict[Key, int]]:
        """What every run and the ledger must come to."""
        board, references = self._campaign.board, []
        for run in self._runs:
            begun = monotonic()
            if (code := wait(start(run, board))) != 0:
                raise RuntimeError(f"{self._name}, not killed, ended with {code}: {complaint(run)}")
            pace = Pace(
                monotonic() - begun,
                {point: board.times(point) for point in Point},
                {point: board.shortest_nanoseconds(point) for point in Point},
            )
            journal = JournalReader(run)
            references.append(Reference(pace, len(journal), journal.digest(), journal.ending))
        ledger, audits = self._audit()
        self._require(not self._result.faults, "faults in a run that was not killed")
        return references, self._debits(ledger, audits)

    def play(self, references: list[Reference], debits: dict[Key, int]) -> None:
        """Kill, audit and continue, until all runs are over."""
        rng, kills = self._campaign.rng, self._campaign.rng.randint(1, _MOST_KILLS_A_TRIAL)
        reference = dict(zip(self._runs, references, strict=True))
        unfinished = list(self._runs)
        while unfinished and not self._result.faults:
            run = rng.choice(unfinished) if self._scenario.in_turns else unfinished[0]
            killed = self._continue(run, reference[run] if kills > 0 else None)
            kills -= killed
            if not killed:
                unfinished.remove(run)
            ledger, audits = self._audit()
        self._compare(references, debits, ledger, audits)

    def _continue(self, run: Path, killed_as: Reference | None) -> bool:
        """Whether the run was killed; else it is over."""
        campaign, result = self._campaign, self._result
        pid = start(run, campaign.board)
        if killed_as is not None:
            left = 1 - rounds_done(run) / max(killed_as.rounds, 1)
            kill_somewhere(pid, campaign.board, campaign.rng, killed_as.pace, left)
        code = wait(pid)
        if code == -signal.SIGKILL:
            result.kills[campaign.board.point] += 1
            result.kills_by_scenario[self._name] += 1
            self._hit[run].append(campaign.board.round)
            campaign.progress(result.total)
            return True
        said = complaint(run)
        outspent = self._scenario.in_turns and "Use another ledger" in said  # by the other run
        self._require(code == 0 or outspent, f"{run.name} ended with {code}: {said}")
        return False

    def _audit(self) -> tuple[LedgerAudit, list[RunAudit]]:
        self._result.audits += 1
        spec = next(iter(self._runs)) / SPEC_NAME
        ledger = audit_ledger(self._scenario.ledger(self._folder), spec, self._folder / "state")
        audits = [audit_run(run, run / RELEASES, ledger) for run in self._runs]
        for faults in (ledger.faults, *(audit.faults for audit in audits)):
            for fault in faults:
                self._require(False, fault)
        return ledger, audits

    def _compare(
        self,
        references: list[Reference],
        debits: dict[Key, int],
        ledger: LedgerAudit,
        audits: list[RunAudit],
    ) -> None:
        result = self._result
        result.runs += len(audits)
        result.debits += len(ledger.debits)
        for run, reference, audit in zip(self._runs, references, audits, strict=True):
            sent = Counter(round_ for round_, *_ in set(audit.releases))
            result.releases += sent.total()
            result.repeated_releases += len(audit.releases) - sent.total()
            if audit.jobs:
                self._check_jobs(run, audit)
            elif self._scenario.secure:
                self._check_losses(run, audit.aggregated, sent)
            if self._scenario.comparable:
                journal = JournalReader(run)
                same = (journal.digest(), journal.ending) == (reference.digest, reference.ending)
                self._require(same, f"{run.name} is not what it would have been")
                complete = bool(audit.jobs) or audit.aggregated.items() >= sent.items()
                self._require(complete, f"{run.name} lost updates")
                result.identical_runs += same
        if self._scenario.comparable:
            self._require(self._debits(ledger, audits) == debits, "the ledger has other debits")

    def _check_losses(self, run: Path, aggregated: dict[int, int], sent: Counter[int]) -> None:
        """What is released once only is lost with its round, but no other round is."""
        self._result.secure_rounds += len(aggregated)
        self._result.lost_rounds += sum(not many for many in aggregated.values())
        for round_, many in aggregated.items():
            self._require(
                0 < many == sent[round_] or round_ in self._hit[run],
                f"{run.name} lost round {round_}, in which nobody killed it",
            )

    def _check_jobs(self, run: Path, audit: RunAudit) -> None:
        """Without rounds: what was sent is answered, but for jobs that a kill has hit."""
        sent = {(release.round, release.client) for release in audit.releases}
        if not self._scenario.secure:
            lost = [key for key, job in audit.jobs.items() if key in sent and not job.answered]
            self._require(not lost, f"{run.name} lost {lost}")
            return
        lost = [key for key, job in audit.jobs.items() if not job.answered]
        self._result.secure_jobs += len(audit.jobs)
        self._result.lost_jobs += len(lost)
        # A kill costs the jobs that are open, and those that were paid for since the checkpoint.
        slots = self._runs[run].federation_of(next(iter(self._runs[run].policies))).slots
        most = 3 * slots * len(self._hit[run])
        self._require(len(lost) <= most, f"{run.name} lost {len(lost)} jobs, at most {most}")

    def _debits(self, ledger: LedgerAudit, audits: list[RunAudit]) -> dict[Key, int]:
        """By the run's number, for its id is drawn anew each time."""
        numbers = {audit.run: f"run {number}" for number, audit in enumerate(audits, start=1)}
        return {
            (numbers[run], round_, client): units
            for (run, round_, client), units in ledger.debits.items()
        }

    def _require(self, holds: bool, fault: str) -> None:
        if not holds:
            where = self._campaign.board.point.name
            self._result.faults.append(f"{self._name} (killed last at {where}): {fault}")
