"""Noise that is safe against floating-point attacks, against numpy's, which is not, and OpenDP's.

A release is clipping, rounding onto the lattice and noise. numpy's contender clips in the same norm
and adds ``Generator.laplace`` or ``normal``: the floor. OpenDP only adds noise, to fewer
coordinates, and is compared by the coordinate. CPU time on one core, in turns.

    python -m benchmarks.noise_speed
"""

from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from time import process_time

import numpy as np
from numpy.random import Generator, default_rng

from benchmarks.measure import write
from fedmuster.core.records import FloatArray
from fedmuster.privacy.mechanisms import Gaussian, Laplace
from fedmuster.privacy.randomness import secure_bytes, seeded_bytes

COORDINATES = (26_000, 1_000_000)
OPENDP_COORDINATES = 5_000
TURNS = 15
CASES: dict[str, tuple[Laplace | Gaussian, float]] = {
    "Laplace vector, ε = 0.4": (Laplace(), 0.4),
    "Laplace vector, ε = 0.01": (Laplace(), 0.01),
    "Laplace per coordinate, ε = 0.4": (Laplace(mode="per-coordinate"), 0.4),
    "Gaussian, ρ = 0.05": (Gaussian(), 0.05),
}


def textbook(
    mechanism: Laplace | Gaussian, update: FloatArray, scale: float, rng: Generator
) -> FloatArray:
    """What one does with numpy: clip, add floating-point noise."""
    if isinstance(mechanism, Gaussian):
        clipped = update / max(1.0, float(np.linalg.norm(update)))
        return clipped + rng.normal(scale=scale, size=update.size)
    if mechanism.mode == "vector":
        clipped = update / max(1.0, float(np.abs(update).sum()))
    else:
        clipped = np.clip(update, -1, 1)
    return clipped + rng.laplace(scale=scale, size=update.size)


def opendp(mechanism: Laplace | Gaussian, scale: float) -> Callable[[], object] | None:
    """OpenDP's own lattice noise of the same scale, where it is installed."""
    try:
        import opendp.prelude as dp
    except ImportError:
        return None
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    if isinstance(mechanism, Gaussian):
        measurement = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)
    else:
        measurement = dp.m.make_laplace(domain, dp.l1_distance(T=float), scale=scale)
    return partial(measurement, [0.0] * OPENDP_COORDINATES)


def cpu_seconds(contenders: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Median over turns of all of them, without the first."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(1 + TURNS):
        for name, call in contenders.items():
            start = process_time()
            call()
            seconds[name].append(process_time() - start)
    return {name: median(values[1:]) for name, values in seconds.items()}


def main() -> None:
    """Print nanoseconds a coordinate, and ratios."""
    rows = []
    print(f"median of {TURNS} turns; CPU ns a coordinate")
    print(
        f"{'':<34}{'d':>10}{'secure':>8}{'10⁶/s':>7}{'seeded':>8}{'numpy':>7}{'× numpy':>9}"
        f"{'OpenDP':>9}{'faster by':>11}"
    )
    for name, (mechanism, amount) in CASES.items():
        scale = mechanism.noise_scale(amount)
        for size in COORDINATES:
            update = default_rng(1).normal(size=size)
            simulated = seeded_bytes(default_rng(2))
            contenders: dict[str, Callable[[], object]] = {
                "secure": partial(mechanism.release, update, amount, secure_bytes),
                "seeded": partial(mechanism.release, update, amount, simulated),
                "numpy": partial(textbook, mechanism, update, scale, default_rng(3)),
            }
            peer = opendp(mechanism, scale)
            if peer is not None:
                contenders["opendp"] = peer
            each = {
                key: value / (OPENDP_COORDINATES if key == "opendp" else size) * 1e9
                for key, value in cpu_seconds(contenders).items()
            }
            theirs = each.get("opendp", float("nan"))
            print(
                f"{name:<34}{size:>10,}{each['secure']:>8.0f}{1e3 / each['secure']:>7.1f}"
                f"{each['seeded']:>8.0f}{each['numpy']:>7.0f}{each['secure'] / each['numpy']:>9.1f}"
                f"{theirs:>9,.0f}{theirs / each['secure']:>10,.0f}×"
            )
            rows.append({"case": name, "coordinates": size, "nanoseconds": each})
    write("noise_speed", rows)


if __name__ == "__main__":
    main()
