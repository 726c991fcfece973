"""How much of each run is compared, and what to say of runs that are shorter than planned."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedmuster.experiments.journal import JournalReader
from fedmuster.simulation import Horizon


class Ending(NamedTuple):
    """A run that was over before its horizon, and why."""

    label: str
    seed: int
    rounds: int
    reason: str


def compared_rounds(
    horizon: Horizon, names: Sequence[str], journals: Sequence[JournalReader]
) -> tuple[list[int], tuple[str, ...]]:
    """How many rounds of each run to compare, and what to say of it.

    All, where every run is over, be it at its horizon or before; else as many as the unfinished
    runs have, or those within the simulated time that they have reached.
    """
    done = [len(journal) for journal in journals]
    elapsed = [np.cumsum(journal.columns["seconds"]) for journal in journals]
    unfinished = [
        place
        for place, journal in enumerate(journals)
        if journal.ending is None and not horizon.reached(done[place], float(elapsed[place][-1]))
    ]
    if not unfinished:
        return done, ()
    if horizon.seconds is None:
        last = min(unfinished, key=lambda place: done[place])
        kept = [min(rounds, done[last]) for rounds in done]
        extent = f"{done[last]:,} of {horizon.rounds:,} rounds"
    else:
        last = min(unfinished, key=lambda place: float(elapsed[place][-1]))
        end = float(elapsed[last][-1])
        kept = [max(int(np.searchsorted(own, end, side="right")), 1) for own in elapsed]
        extent = f"{end:g} of {horizon.seconds:g} s"
    note = (
        f"{len(unfinished)} of {len(journals)} runs unfinished: all are cut to the first {extent}, "
        f"as far as {names[last]}, is."
    )
    return kept, (note,)


def ending_notes(endings: Sequence[Ending], *, seeds: int, runs: int) -> tuple[str, ...]:
    """At most one note, however many runs ended early: what all have in common, and one in full.

    Example:
        >>> ending_notes([Ending("random", 3, 212, "nobody is left")], seeds=2, runs=4)
        ('random, seed 3, ended after 212 rounds: nobody is left.',)
    """
    if not endings:
        return ()
    first, who = endings[0], f"{endings[0].label}, seed {endings[0].seed}"
    if len(endings) == 1:
        return (f"{who}, ended after {first.rounds:,} rounds: {first.reason}.",)
    by_label: dict[str, list[int]] = {}
    for ending in endings:
        by_label.setdefault(ending.label, []).append(ending.rounds)
    listed = ", ".join(
        f"{label} after {_span(rounds)} rounds"
        + (f" ({len(rounds)} of {seeds} seeds)" if len(rounds) < seeds else "")
        for label, rounds in by_label.items()
    )
    return (f"{len(endings)} of {runs} runs ended early: {listed}. {who}: {first.reason}.",)


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"
