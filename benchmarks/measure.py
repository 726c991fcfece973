"""Time things in turns, so that a noisy machine slows all of them, and keep the numbers."""

import json
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESULTS = Path(__file__).parent / "results"


def in_turns(
    contenders: Mapping[str, Callable[[], object]], *, turns: int, repeat: int = 1
) -> dict[str, float]:
    """Median seconds of one call of each contender, over ``turns`` turns of all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for call in contenders.values():
        call()  # warm caches and allocator
    for _ in range(turns):
        for name, call in contenders.items():
            start = perf_counter()
            for _ in range(repeat):
                call()
            seconds[name].append((perf_counter() - start) / repeat)
    return {name: median(values) for name, values in seconds.items()}


def read(*arrays: NDArray[Any]) -> None:
    """The floor of everything that looks at all clients: one pass over the arrays."""
    for array in arrays:
        array.sum()


def write(name: str, numbers: Any) -> None:
    """Keep the numbers of a benchmark as JSON."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    path.write_text(json.dumps({"versions": versions, "results": numbers}, indent=2) + "\n")
    print(f"wrote {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
