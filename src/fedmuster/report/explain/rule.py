"""What an explanation must know of a policy: what it chooses by, and how to say it."""

from typing import Protocol, runtime_checkable

from fedmuster.core.records import FloatArray
from fedmuster.report.explain.moment import Moment
from fedmuster.report.explain.words import number

Parts = tuple[tuple[str, float], ...]
"""Terms and the factors with which they add up to another."""


def parts_in_words(moment: Moment, client: int, parts: Parts) -> str:
    """`` (0.5 · mean_reward 0.8 + owed_rounds 2)``, or nothing where there are no parts."""
    told = ""
    for name, factor in parts:
        sign = " - " if factor < 0 else " + "
        times = "" if abs(factor) == 1 else f"{number(abs(factor))} · "
        value = number(float(moment.column(name)[client]))
        told += f"{sign if told or factor < 0 else ''}{times}{name} {value}"
    return f" ({told})" if told else ""


class Rule(Protocol):
    """How a policy chooses, in words."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The terms without which it cannot be told."""
        ...

    def about(self, moment: Moment) -> str:
        """The rule, with the policy's own numbers."""
        ...

    def merit(self, moment: Moment) -> FloatArray:
        """[K], who is shown first: the higher, the sooner; infinite for those who come first."""
        ...

    def worth(self, moment: Moment) -> str | None:
        """What the cohort is worth, if that is a number."""
        ...

    def chosen(self, moment: Moment, client: int) -> str:
        """Why it was chosen; continues "client 3 was chosen: "."""
        ...

    def passed_over(self, moment: Moment, client: int) -> str:
        """Why it was not, though it was available; continues "client 3 was not chosen: "."""
        ...


@runtime_checkable
class Optimistic(Protocol):
    """A rule that takes some terms for infinite, where a client was never tried."""

    @property
    def unlimited(self) -> tuple[str, ...]:
        """These terms."""
        ...


def unlimited_terms(rule: Rule) -> tuple[str, ...]:
    """Terms that are infinite where there is no number; of most rules none."""
    return rule.unlimited if isinstance(rule, Optimistic) else ()
