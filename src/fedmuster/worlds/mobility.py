"""Mobility: where clients are, drawn anew each round or moving.

A mobility is a config; ``start`` draws it. Positions depend on the seed and the round alone, so
rounds can be drawn in any order, and all policies meet the same clients at the same places.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import FloatArray
from fedmuster.core.config import check_types, require
from fedmuster.core.streams import MOBILITY, stream

_CHUNK = 2**14
"""Positions tried together: keeps the temporaries small, however many edges there are."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CoverageArea:
    """M discs in the plane, one around each edge server: ``centres_km`` is [M, 2]."""

    centres_km: FloatArray
    radius_km: float

    def distance_km(self, position_km: FloatArray) -> FloatArray:
        """[n, M], from each of [n, 2] positions to each edge server."""
        east = position_km[:, :1] - self.centres_km[:, 0]
        return np.hypot(east, position_km[:, 1:] - self.centres_km[:, 1])

    def uniform(self, count: int, rng: Generator) -> FloatArray:
        """[count, 2], positions that are uniform in the union of the discs."""
        centres = np.unique(self.centres_km, axis=0)  # coinciding discs are one
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


_KM_PER_M = 1e-3


class MobilityRun(Protocol):
    """Where K clients are."""

    def at(self, round_number: int) -> FloatArray:
        """[K, 2], positions in km in round t = 1, 2, …"""

    def sample(self, count: int, rng: Generator) -> FloatArray:
        """[count, 2], independent positions by the law that a client follows in every round."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Redrawn:
    """Clients are at new places in each round, all of them covered.

    Args:
        uniform: in the "area", the union of the discs; or in the "distance" from an edge server
            drawn at random, U[0, radius] as in COCS Sec. VI-A.
    """

    name: ClassVar[str] = "redrawn"

    uniform: Literal["area", "distance"] = "area"

    def __post_init__(self) -> None:
        check_types(self)

    def start(
        self, area: CoverageArea, num_clients: int, *, step_seconds: float, seed: int
    ) -> "RedrawnRun":
        """Nothing is drawn yet; how long a round lasts does not matter."""
        draw = area.uniform if self.uniform == "area" else area.around_edges
        return RedrawnRun(draw=draw, num_clients=num_clients, seed=seed)


@dataclass(frozen=True, kw_only=True, slots=True)
class RedrawnRun:
    """See :class:`Redrawn`; ``draw`` draws [n, 2] positions."""

    draw: Callable[[int, Generator], FloatArray]
    num_clients: int
    seed: int

    def at(self, round_number: int) -> FloatArray:
        """See :class:`MobilityRun`."""
        return self.draw(self.num_clients, stream(self.seed, MOBILITY, round_number))

    def sample(self, count: int, rng: Generator) -> FloatArray:
        """See :class:`MobilityRun`."""
        return self.draw(count, rng)


class _Start(NamedTuple):
    """Clients amid a journey: on the way to a waypoint, or waiting there."""

    position_km: FloatArray
    waypoint_km: FloatArray
    arrives_seconds: FloatArray
    leaves_seconds: FloatArray


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomWaypoint:
    """Clients go straight to a random waypoint, wait there, and go to the next.

    Waypoints are uniform in the union of the discs, but the way between two of them may leave it.
    Round t finds clients where they are after (t - 1) steps, and a step is as long as the deadline,
    however long rounds last: else policies would meet clients at different places, and could not be
    compared.

    Clients start amid their journeys, from the stationary law (J.-Y. Le Boudec and M. Vojnović,
    Perfect Simulation and Stationarity of a Class of Mobility Models, INFOCOM 2005). So no round
    differs in law from another. Ranges are this package's choice: from a walk to a car in town.

    Args:
        speed_m_per_second: its range, > 0; uniform over ways.
        pause_seconds: range of the time at a waypoint; uniform over waypoints.
    """

    name: ClassVar[str] = "random-waypoint"

    speed_m_per_second: tuple[float, float] = (1.0, 15.0)
    pause_seconds: tuple[float, float] = (0.0, 60.0)

    def __post_init__(self) -> None:
        check_types(self)
        slow, fast = self.speed_m_per_second
        expected = "two numbers in [1e-3, 1e6], the lower first"
        require(1e-3 <= slow <= fast <= 1e6, self, "speed_m_per_second", expected)
        short, long = self.pause_seconds
        expected = "two numbers in [0, 1e9], the lower first"
        require(0 <= short <= long <= 1e9, self, "pause_seconds", expected)

    def start(
        self, area: CoverageArea, num_clients: int, *, step_seconds: float, seed: int
    ) -> "RandomWaypointRun":
        """Draw where all clients are, and their first waypoints."""
        return RandomWaypointRun(self, area, num_clients, step=step_seconds, seed=seed)

    def midway(self, area: CoverageArea, count: int, rng: Generator) -> _Start:
        """The stationary law: a moment falls into a way (or pause) with a probability in proportion
        to its length, and is uniform within it."""
        slow, fast = self.speed_m_per_second
        short, long = self.pause_seconds
        mean_inverse = 1.0 / slow if slow == fast else np.log(fast / slow) / (fast - slow)
        longest = _longest_km(area) / _KM_PER_M
        moves = longest * mean_inverse  # if all ways were the longest; shorter ones are rejected
        parts, missing = [], count
        while missing > 0:
            moving = rng.random(missing) * (moves + 0.5 * (short + long)) < moves
            origin = area.uniform(missing, rng)
            waypoint = np.where(moving[:, None], area.uniform(missing, rng), origin)
            metres = _length_m(origin, waypoint)
            speed = slow * (fast / slow) ** rng.random(missing)  # by time, not by way: ~ 1 / v
            share = rng.random(missing)
            fresh = rng.uniform(short, long, missing)
            # A pause of length s is met with a probability ~ s.
            met = np.sqrt(short**2 + rng.random(missing) * (long**2 - short**2))
            arrives = (1.0 - share) * metres / speed
            start = _Start(
                position_km=origin + share[:, None] * (waypoint - origin),
                waypoint_km=waypoint,
                arrives_seconds=arrives,
                leaves_seconds=arrives + np.where(moving, fresh, (1.0 - share) * met),
            )
            kept = ~moving | (rng.random(missing) * longest < metres)
            parts.append([values[kept] for values in start])
            missing -= int(kept.sum())
        return _Start(*(np.concatenate(values) for values in zip(*parts, strict=True)))


class RandomWaypointRun:
    """See :class:`RandomWaypoint`. Ways are drawn when their time is asked for, and kept."""

    def __init__(
        self, law: RandomWaypoint, area: CoverageArea, num_clients: int, *, step: float, seed: int
    ) -> None:
        self._law, self._area, self._step, self._seed = law, area, step, seed
        start = law.midway(area, num_clients, stream(seed, MOBILITY, 0))
        # [ways, K]: when each way begins, and when it ends; [ways + 1, K, 2]: from where to where.
        self._departs = np.zeros((1, num_clients))
        self._arrives = start.arrives_seconds[None]
        self._places = np.stack([start.position_km, start.waypoint_km])
        self._leaves = start.leaves_seconds

    def at(self, round_number: int) -> FloatArray:
        """See :class:`MobilityRun`."""
        time = (round_number - 1) * self._step
        self._draw_until(time)
        way = np.count_nonzero(self._departs <= time, axis=0) - 1
        client = np.arange(len(way))
        departs, arrives = self._departs[way, client], self._arrives[way, client]
        origin, waypoint = self._places[way, client], self._places[way + 1, client]
        arrived = time >= arrives
        share = np.divide(time - departs, arrives - departs, out=np.ones(len(way)), where=~arrived)
        return np.asarray(origin + share[:, None] * (waypoint - origin))

    def sample(self, count: int, rng: Generator) -> FloatArray:
        """See :class:`MobilityRun`."""
        return self._law.midway(self._area, count, rng).position_km

    def _draw_until(self, time: float) -> None:
        """Draw further ways, of all clients at once, until each last one outlasts ``time``."""
        departs, arrives, places = [self._departs], [self._arrives], [self._places]
        count = len(self._departs)
        while self._leaves.min() <= time:
            rng = stream(self._seed, MOBILITY, count)
            waypoint = self._area.uniform(len(self._leaves), rng)
            speed = rng.uniform(*self._law.speed_m_per_second, len(waypoint))
            departs.append(self._leaves[None])
            arrives.append(departs[-1] + _length_m(places[-1][-1], waypoint) / speed)
            places.append(waypoint[None])
            self._leaves = arrives[-1][0] + rng.uniform(*self._law.pause_seconds, len(waypoint))
            count += 1
        if len(departs) > 1:
            self._departs = np.concatenate(departs)
            self._arrives = np.concatenate(arrives)
            self._places = np.concatenate(places)


Mobility = Redrawn | RandomWaypoint


def _length_m(origin_km: FloatArray, waypoint_km: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.norm(waypoint_km - origin_km, axis=-1) / _KM_PER_M)


def _longest_km(area: CoverageArea) -> float:
    """No way is longer than the diagonal of a box around all discs."""
    extent = np.ptp(area.centres_km, axis=0) + 2.0 * area.radius_km
    return float(np.linalg.norm(extent))
