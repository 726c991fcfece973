"""Cuts the power at random points of recorded workloads, and looks at what is left."""

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from tests.powercuts.recording import Disk, Operation, record, said
from tests.powercuts.workloads import WORKLOADS, remember_digests

_THOROUGHLY_EVERY = 10
"""After so many cuts a run is also continued to its end."""


class Campaign:
    """Recorded workloads, ready to be interrupted as often as wanted.

    Args:
        folder: an empty one.
        library: the recorder.
    """

    def __init__(self, folder: Path, library: Path) -> None:
        self.cuts: Counter[str] = Counter()
        self.bad: list[str] = []
        self._roots = {name: folder / name.replace(" ", "-") for name in WORKLOADS}
        self._operations: dict[str, list[Operation]] = {}
        remember_digests(folder / "in-peace")
        for name, root in self._roots.items():
            root.mkdir()
            command = [sys.executable, "-m", "tests.powercuts.workloads", name, str(root)]
            log = folder / f"{root.name}.log"
            self._operations[name] = record(command, library=library, root=root, log=log)

    def run(self, seeds: Iterable[int]) -> None:
        """One cut for each seed in each workload: at a sync, or anywhere."""
        for seed in seeds:
            for name in WORKLOADS:
                self.cuts[name] += 1
                try:
                    self._cut(name, seed)
                except Exception as error:
                    self.bad.append(f"{name}, seed {seed}: {type(error).__name__}: {error}"[:400])

    def _cut(self, name: str, seed: int) -> None:
        operations, root = self._operations[name], self._roots[name]
        rng = np.random.default_rng([seed, 1])
        syncs = [place for place, each in enumerate(operations) if each.kind in "SD"]
        point = int(rng.choice(syncs) if rng.random() < 0.5 else rng.integers(len(operations) + 1))
        disk = Disk(root)
        for operation in operations[:point]:
            disk.perform(operation)
        disk.cut(seed)
        thoroughly = seed % _THOROUGHLY_EVERY == 0
        WORKLOADS[name].check(root, said(operations[:point]), thoroughly=thoroughly)
