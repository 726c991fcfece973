"""A claim of a paper, the seeds of its runs, and the page that says whether it holds."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fedmuster.core.files import write_file
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.sweep import lay_out_or_complete
from fedmuster.report.runs import Comparison, load
from fedmuster.report.tables import Table, to_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FIRST: ContextVar[int] = ContextVar("first seed", default=0)


def seeds(count: int) -> tuple[int, ...]:
    """The first ``count`` seeds of the claim that runs now.

    Example:
        >>> with seeds_from(100):
        ...     seeds(3)
        (100, 101, 102)
        >>> seeds(2)
        (0, 1)
    """
    return tuple(range(_FIRST.get(), _FIRST.get() + count))


@contextmanager
def seeds_from(first: int) -> Iterator[None]:
    """Let :func:`seeds` begin with ``first`` inside the context."""
    token = _FIRST.set(first)
    try:
        yield
    finally:
        _FIRST.reset(token)


RunCells = Callable[[list[Path]], None]
"""Runs the cells that are not finished yet, and shows how far they are."""


class Finding(NamedTuple):
    """One sentence of a claim, and what the runs measured.

    ``ours`` marks what the paper does not say: it is shown, but the claim does not hang on it.
    """

    sentence: str
    measured: str
    holds: bool
    ours: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """The results of a claim's experiments.

    Args:
        setting: what was run, over how many seeds.
        findings: the sentences of the claim, one by one.
        tables: the numbers.
        figures: pictures by file name (without ending).
        notes: what a reader must know to judge the findings.
    """

    setting: str
    findings: tuple[Finding, ...]
    tables: tuple[Table, ...] = ()
    figures: Mapping[str, "Figure"] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Gather(Protocol):
    """Runs the experiments of a claim in a folder, or finishes them if they were interrupted."""

    def __call__(self, folder: Path, *, quick: bool, run: RunCells) -> Evidence:
        """Evidence for or against the claim."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A statement of a paper that can be run.

    Args:
        name: on the command line.
        source: paper and figure or theorem.
        statement: what the paper says.
        gather: runs the experiments and returns the evidence.
        heavy: whether it takes more than a laptop's hour, so that "all" leaves it out.
    """

    name: str
    source: str
    statement: str
    gather: Gather
    heavy: bool = False

    def check(self, folder: Path, *, quick: bool, run: RunCells, first_seed: int = 0) -> "Result":
        """Run the claim's experiments and judge its findings.

        Args:
            folder: for its runs.
            quick: whether to use fewer seeds and rounds, too few to decide.
            run: plays the cells.
            first_seed: the first of the seeds, usually 0.
        """
        scale = _with_seeds("quick" if quick else "full", first_seed)
        with seeds_from(first_seed):
            evidence = self.gather(folder / scale, quick=quick, run=run)
        return Result(claim=self, evidence=evidence, quick=quick, first_seed=first_seed)


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """A claim and its evidence, to be read by people."""

    claim: Claim
    evidence: Evidence
    quick: bool
    first_seed: int = 0

    @property
    def holds(self) -> bool:
        """Whether every sentence of the paper holds; our own findings do not count."""
        return all(finding.holds for finding in self.evidence.findings if not finding.ours)

    @property
    def command(self) -> str:
        """The command that makes this result again."""
        others = f" --first-seed {self.first_seed}" if self.first_seed else ""
        return f"fedmuster claims {self.claim.name}" + " --quick" * self.quick + others

    def to_text(self) -> str:
        """The verdict, for the terminal."""
        lines = [
            f"{self.claim.name} ({self.claim.source})",
            f"  the paper:  {self.claim.statement}",
            f"  we ran:     {self.evidence.setting}",
        ]
        for finding in self.evidence.findings:
            verdict = _verdict(finding.holds).upper()
            lines.append(f"  {verdict:<15} {_whose(finding)}{finding.sentence}")
            lines.append(f"  {'':<15} measured: {finding.measured}")
        lines += [f"  note: {note}" for note in self.evidence.notes]
        few = " (a quick run has too few seeds to decide)" if self.quick else ""
        lines.append(f"  in all: {_verdict(self.holds)}{few}")
        return "\n".join(lines)

    def to_markdown(self) -> str:
        """The verdict as a page with tables and pictures."""
        evidence = self.evidence
        parts = [
            f"# {self.claim.name}: {_verdict(self.holds)}",
            f"*{self.claim.source}.* {self.claim.statement}",
            f"**What was run.** {evidence.setting}",
            f"Made by `{self.command}`.",
            "| sentence | measured | verdict |\n|---|---|---|\n"
            + "\n".join(
                f"| {_whose(finding)}{finding.sentence} | {finding.measured} | "
                f"**{_verdict(finding.holds)}** |"
                for finding in evidence.findings
            ),
            *(f"> {note}" for note in evidence.notes),
            *(f"![{name}]({self.file_stem}-{name}.png)" for name in evidence.figures),
            to_markdown(evidence.tables),
        ]
        return "\n\n".join(part for part in parts if part).rstrip() + "\n"

    @property
    def file_stem(self) -> str:
        """The common beginning of the names of the result's files."""
        return _with_seeds(self.claim.name + "-quick" * self.quick, self.first_seed)

    def write(self, folder: Path) -> list[Path]:
        """The page, its pictures, and the findings as JSON."""
        from fedmuster.report.figures import save

        page = folder / f"{self.file_stem}.md"
        write_file(page, self.to_markdown().encode())
        numbers = folder / f"{self.file_stem}.json"
        findings = {
            "claim": self.claim.name,
            "command": self.command,
            "holds": self.holds,
            "findings": [finding._asdict() for finding in self.evidence.findings],
        }
        write_file(numbers, (json.dumps(findings, indent=2, ensure_ascii=False) + "\n").encode())
        pictures = []
        for name, figure in self.evidence.figures.items():
            pictures.append(folder / f"{self.file_stem}-{name}.png")
            save(figure, pictures[-1])
        return [page, numbers, *pictures]


def play(experiment: Experiment, folder: Path, run: RunCells) -> Comparison:
    """Run an experiment, or what is missing of it, and read its journals."""
    run(lay_out_or_complete(folder, experiment))
    return load([folder])


def _with_seeds(name: str, first_seed: int) -> str:
    return name + (f"-from-seed-{first_seed}" if first_seed else "")


def _whose(finding: Finding) -> str:
    return "(ours, not the paper's) " if finding.ours else ""


def _verdict(holds: bool) -> str:
    return "holds" if holds else "does not hold"
