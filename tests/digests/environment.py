"""What is set before NumPy, torch and rich are loaded, so that bits are the same everywhere."""

import platform
from importlib import metadata

ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "COLUMNS": "400",
    "NO_COLOR": "1",
}
"""One thread, and tables of the command line that are not broken into several lines."""

if platform.machine() == "x86_64":
    # Machines with AVX-512 round otherwise: all take the kernels that those with AVX2 have.
    ENVIRONMENT |= {
        "OPENBLAS_CORETYPE": "Haswell",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    }
    if metadata.version("numpy").startswith("2.4."):  # others have other names for them
        ENVIRONMENT["NPY_DISABLE_CPU_FEATURES"] = "X86_V4 AVX512_ICL"
