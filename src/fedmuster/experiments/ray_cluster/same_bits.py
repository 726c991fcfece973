"""Whether two machines compute the same bits."""

import hashlib
import platform
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np

import fedmuster
from fedmuster.experiments.run import versions

_NOT_IN_RUNS: Final = ("adapters", "claims", "flower", "cli", "report", "testing")
"""Rooms of this package that stand above experiments or beside them."""


def bits_here(*, networks: bool) -> dict[str, str]:
    """All that decides the last bits of a result on this machine.

    Args:
        networks: whether PyTorch is part of it.
    """
    config: Any = np.show_config(mode="dicts")
    instructions = config.get("SIMD Extensions", {})
    blas = config.get("Build Dependencies", {}).get("blas", {})
    found = {
        **versions(),
        "processor": " ".join((*instructions.get("baseline", ()), *instructions.get("found", ()))),
        "BLAS": f"{blas.get('name')} {blas.get('version')}",
        "C library": " ".join(platform.libc_ver()),
        "sources": _digest_of_sources(),
    }
    found.pop("torch", None)  # named only where it is loaded already
    if networks:
        found["torch"] = _torch_version()
    return found


def differences(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """What differs, for people; empty if nothing does.

    Example:
        >>> differences({"numpy": "2.3.0", "python": "3.11.2"}, {"numpy": "2.4.1"})
        'numpy 2.3.0 (here: 2.4.1)'
    """
    return ", ".join(
        f"{name} {there.get(name, 'unknown')} (here: {value})"
        for name, value in here.items()
        if there.get(name) != value
    )


@cache
def _digest_of_sources() -> str:
    """Of fedmuster itself, for two checkouts may bear the same version."""
    folder = Path(fedmuster.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        place = path.relative_to(folder)
        if place.parts[0] not in _NOT_IN_RUNS:
            digest.update(f"{place.as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def _torch_version() -> str:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "not installed"
