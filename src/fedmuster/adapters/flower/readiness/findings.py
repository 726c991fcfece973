"""What a check has to say."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "must change"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that was looked at.

    Args:
        level: whether it is fine, worth knowing, or in the way.
        about: what was looked at, in a word or two.
        text: what was found, and what to do.
        where: file and line, where there is one.
        write: lines to copy, where there are some.
    """

    level: Level
    about: str
    text: str
    where: str = ""
    write: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Readiness:
    """All findings about an app.

    Args:
        findings: in the order in which to read them.
        nodes: with how many nodes a round can be played, as far as that is known.
        importable: whether both components could be imported.
    """

    findings: tuple[Finding, ...]
    nodes: int = 1
    importable: bool = False

    @property
    def ready(self) -> bool:
        """Whether nothing must change."""
        return not self.must_change

    @property
    def must_change(self) -> tuple[Finding, ...]:
        """What is in the way."""
        return tuple(f for f in self.findings if f.level == "must change")
