"""Processor time of a process and all its descendants: Ray's actors, our workers."""

import os
from collections import defaultdict
from pathlib import Path

_PROCESSES = Path("/proc")


def processor_seconds(process: int) -> float:
    """So far, of those that are alive or were waited for; NaN where there is no ``/proc``."""
    ticks: dict[int, int] = {}
    children: defaultdict[int, list[int]] = defaultdict(list)
    for path in _PROCESSES.glob("[0-9]*/stat"):
        try:
            # The name, in brackets, may hold spaces; state, parent, … follow it (man 5 proc).
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        number = int(path.parent.name)
        ticks[number] = sum(int(field) for field in fields[11:15])
        children[int(fields[1])].append(number)
    if process not in ticks:
        return float("nan")
    total, family = 0, [process]
    while family:
        member = family.pop()
        total += ticks[member]
        family += children[member]
    return total / float(os.sysconf("SC_CLK_TCK"))
