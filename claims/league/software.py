"""The versions that decide the bits of a run."""

import platform
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import Final

import numpy as np

import fedmuster

_SCIPY: Final = "scipy"


def versions(libraries: Iterable[str] = ()) -> dict[str, str]:
    """The versions of fedmuster, NumPy, Python, the type of machine, and these libraries."""
    return {
        "fedmuster": fedmuster.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        **{name: _version(name) for name in sorted(set(libraries))},
    }


def installed() -> dict[str, str]:
    """The versions that can decide bits of fedmuster's own policies."""
    return versions([_SCIPY])


@cache
def _version(library: str) -> str:
    """The versions of all distributions that a package comes from."""
    found = packages_distributions().get(library, [library])
    try:
        return ", ".join(sorted({version(name) for name in found}))
    except PackageNotFoundError:
        return "not installed"
