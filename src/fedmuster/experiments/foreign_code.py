"""The code that a run names and that its reader may not know: run folders are also received."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedmuster.experiments.run import SPEC_NAME
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.sweep import EXPERIMENT_NAME
from fedmuster.training.models import OwnFactory


def factories(spec: Experiment) -> list[str]:
    """The functions, "module:function", that playing a run imports and calls."""
    if spec.training is None:
        return []
    parts = (spec.training.data, spec.training.model)
    return [part.factory for part in parts if isinstance(part, OwnFactory)]


def files_inside(folder: Path) -> list[Path]:
    """The Python files within the folder that its specs name; nothing is imported to find them."""
    specs = [path for name in (SPEC_NAME, EXPERIMENT_NAME) for path in folder.rglob(name)]
    named = {Path(text.rpartition(":")[0]).resolve() for path in specs for text in _texts_in(path)}
    return sorted(path for path in named if path.is_relative_to(folder.resolve()))


def _texts_in(spec: Path) -> Iterator[str]:
    """The texts in a spec that name something in a Python file."""
    try:
        table = tomllib.loads(spec.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # reading it says what is wrong
        return
    yield from (text for text in _leaves(table) if ".py:" in text)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _leaves(part)
    elif isinstance(value, list):
        for part in value:
            yield from _leaves(part)
