"""What decides the last bits of floating-point results, beside the source."""

import platform
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

import numpy as np


def fingerprint() -> dict[str, str]:
    """The class of this machine: equal fingerprints must give equal bits."""
    config: Any = np.show_config(mode="dicts")
    blas = config["Build Dependencies"]["blas"]
    simd = config["SIMD Extensions"]
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": np.__version__,
        "blas": f"{blas['name']} {blas['version']} {_core()}",
        "simd": " ".join([*simd["baseline"], *simd.get("found", [])]),
        "scipy": _version("scipy"),
        "torch": f"{_version('torch')} {_torch_capability()}",
    }


def _version(library: str) -> str:
    return metadata.version(library) if find_spec(library) else "none"


def _core() -> str:
    """Whose kernels BLAS has chosen, where threadpoolctl can tell."""
    if not find_spec("threadpoolctl"):
        return "unknown core"
    found: Any = import_module("threadpoolctl").threadpool_info()
    cores = {str(library.get("architecture")) for library in found if library["user_api"] == "blas"}
    return " ".join(sorted(cores))


def _torch_capability() -> str:
    if not find_spec("torch"):
        return ""
    import torch

    return str(torch.backends.cpu.get_cpu_capability())
