"""Bends files of every kind and counts what their readers make of them."""

import json
import resource
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.kinds import KINDS, Kind, restore
from tests.fuzz.mutating import mutated

from fedmuster.core.errors import FedmusterError
from fedmuster.core.files import write_file

_SAVED_EVERY = 200
_KIB = 1024


@dataclass
class Tally:
    """What came of the mutations so far.

    ``counts`` are by kind and outcome: "refused", "same" (a reader got what it would have got from
    the whole file), "another" (files of people only: another valid one), "wrong" (the reader got
    something else and said nothing) and "traceback" (an error that is none of fedmuster's).
    """

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)
    most_kib: int = 0
    """By how much a single mutation has raised the peak of this process's memory."""

    def add(self, kind: str, outcome: str) -> None:
        """Count one mutation."""
        self.counts.setdefault(kind, Counter())[outcome] += 1

    def total(self, outcome: str | None = None) -> int:
        """The number of mutations, or of those with this outcome."""
        every = self.counts.values()
        return sum(sum(c.values()) if outcome is None else c[outcome] for c in every)

    def save(self, path: Path, done: int) -> None:
        """Write down where a campaign stands."""
        table = {"done": done, "counts": self.counts, "bad": self.bad, "most_kib": self.most_kib}
        write_file(path, json.dumps(table, indent=1).encode())

    @classmethod
    def load(cls, path: Path) -> "tuple[Tally, int]":
        """Where a campaign stands, and how many seeds are done."""
        if not path.is_file():
            return cls(), 0
        table = json.loads(path.read_text())
        counts = {kind: Counter(found) for kind, found in table["counts"].items()}
        return cls(counts, table["bad"], table["most_kib"]), table["done"]


class Bench:
    """A kind of file, whole, and a place where copies of it are bent."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind = kind
        self._whole, self._copy = folder / kind.name / "whole", folder / kind.name / "copy"
        self._whole.mkdir(parents=True)
        self._name = kind.make(self._whole).name
        self._image = (self._whole / self._name).read_bytes()
        restore(self._whole, self._copy)
        self._expected = kind.read(self._copy / self._name)

    def bend(self, seed: int) -> str:
        """What the reader makes of the file that this seed bends."""
        image = mutated(self._image, seed)
        restore(self._whole, self._copy)
        path = self._copy / self._name
        path.write_bytes(image)
        try:
            found = self.kind.read(path)
        except FedmusterError:
            return "refused"
        except Exception as error:
            return f"traceback: {type(error).__name__}: {error}"[:300]
        if found == self._expected:
            return "same"
        return "another" if self.kind.may_differ else "wrong"


def run(seeds: Iterable[int], folder: Path, tally: Tally, *, save_to: Path | None = None) -> Tally:
    """Bend a file of each kind with each seed."""
    benches = [Bench(kind, folder) for kind in KINDS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of twins before we refuse them
        for seed in seeds:
            for bench in benches:
                before = _peak_kib()
                outcome = bench.bend(seed)
                tally.most_kib = max(tally.most_kib, _peak_kib() - before)
                tally.add(bench.kind.name, outcome.partition(":")[0])
                if outcome.startswith(("wrong", "traceback")):
                    tally.bad.append(f"{bench.kind.name}, seed {seed}: {outcome}")
            if save_to is not None and seed % _SAVED_EVERY == 0:
                tally.save(save_to, seed + 1)
    return tally


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def told(tally: Tally) -> list[dict[str, Any]]:
    """The counts as rows."""
    return [{"kind": kind, **counts} for kind, counts in sorted(tally.counts.items())]
