"""The land that edge servers cover: discs of the same radius, which may overlap."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fedmuster.core.records import FloatArray

_CHUNK = 2**14
"""Positions tried together: keeps the temporaries small, however many edges there are."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CoverageArea:
    """M discs in the plane.

    Args:
        centres_km: [M, 2].
        radius_km: of each.
    """

    centres_km: FloatArray
    radius_km: float

    def distance_km(self, position_km: FloatArray) -> FloatArray:
        """[n, M], from each of [n, 2] positions to each edge server."""
        east, north = (
            position_km[:, :1] - self.centres_km[:, 0],
            position_km[:, 1:] - self.centres_km[:, 1],
        )
        return np.hypot(east, north)

    def uniform(self, count: int, rng: Generator) -> FloatArray:
        """[count, 2], positions that are uniform in the union of the discs."""
        centres = np.unique(self.centres_km, axis=0)  # where all coincide, there is one disc
        union = CoverageArea(centres_km=centres, radius_km=self.radius_km)
        parts, missing = [np.empty((0, 2))], count
        while missing > 0:
            size = min(missing, _CHUNK)
            disc = rng.integers(len(centres), size=size)
            from_centre = self.radius_km * np.sqrt(rng.random(size))  # uniform in the disc
            position = centres[disc] + _polar(from_centre, rng)
            covered = union.distance_km(position) <= self.radius_km
            # Each point of an overlap counts for the first of its discs alone.
            owned = covered.any(axis=1) & (covered.argmax(axis=1) == disc)
            parts.append(position[owned])
            missing -= len(parts[-1])
        return np.concatenate(parts)

    def around_edges(self, count: int, rng: Generator) -> FloatArray:
        """[count, 2], positions at a uniform distance from an edge server drawn at random."""
        centre = self.centres_km[rng.integers(len(self.centres_km), size=count)]
        return centre + _polar(self.radius_km * rng.random(count), rng)


def hexagonal_spiral(count: int, spacing_km: float) -> FloatArray:
    """[count, 2], points of a triangular lattice from the origin outwards, ring by ring.

    Example:
        >>> hexagonal_spiral(3, 2.0).round(3)
        array([[0.   , 0.   ],
               [2.   , 0.   ],
               [1.   , 1.732]])
    """
    corners = np.exp(1j * np.pi / 3 * np.arange(7))
    rings, ring = [np.zeros(1, dtype=np.complex128)], 0
    while sum(map(len, rings)) < count:
        ring += 1
        along = np.arange(ring) * np.diff(corners)[:, None]  # from each corner to the next
        rings.append((ring * corners[:-1, None] + along).ravel())
    points = spacing_km * np.concatenate(rings)[:count]
    return np.column_stack([points.real, points.imag])


def _polar(radius: FloatArray, rng: Generator) -> FloatArray:
    """[n, 2], offsets of this length in random directions."""
    angle = 2.0 * np.pi * rng.random(len(radius))
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
